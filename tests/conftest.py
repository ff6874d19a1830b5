"""Shared fixtures: tiny models are built once per session, real ones found by environment."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from fixtures import tiny


def pytest_configure() -> None:
    """A shell that starts us in the background has us ignore Ctrl-C, and our children inherit that."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A function from the name of a tiny model to the path of its GGUF."""
    folder = tmp_path_factory.mktemp("tiny")

    def path(name: str) -> Path:
        target = folder / f"{name}.gguf"
        return target if target.exists() else tiny.build(name, target)

    return path


@pytest.fixture(scope="session")
def real_model() -> Callable[[str], Path]:
    """A function from a file name to a real model's path; skips, or fails under REQUIRE_MODELS=1."""

    def path(name: str) -> Path:
        folder = os.environ.get("GAUGEBLOCK_MODELS")
        reason = f"{name} is absent: GAUGEBLOCK_MODELS does not name a folder that holds it "
        reason += "(`make models`, then `GAUGEBLOCK_MODELS=models make test`)"
        if folder and (Path(folder) / name).is_file():
            return Path(folder) / name
        if os.environ.get("REQUIRE_MODELS") == "1":
            pytest.fail(reason)
        pytest.skip(reason)

    return path
