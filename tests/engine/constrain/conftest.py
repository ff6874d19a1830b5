"""Fixtures of the tests of constraints."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import pytest

from tests.engine.constrain import languages as lib


@pytest.fixture(scope="session")
def language_library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The languages compiled alone; skips where there is no compiler."""
    found = lib.library_fixture(tmp_path_factory.mktemp("languages"))
    if isinstance(found, str):
        pytest.skip(found)
    assert isinstance(found, ctypes.CDLL)
    return found


@pytest.fixture(scope="session")
def languages(language_library: ctypes.CDLL) -> Callable[..., lib.Languages]:
    """A function that makes a fresh set of languages; takes max_bytes and max_steps."""
    return lambda **limits: lib.Languages(language_library, **limits)
