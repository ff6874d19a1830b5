"""The build: what the library says of itself is what pyproject.toml asks for."""

from __future__ import annotations

import tomllib
from pathlib import Path

from engine import native

ROOT = Path(__file__).resolve().parents[2]


def project() -> dict[str, object]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_recorded_flags_are_the_flags_of_the_extension() -> None:
    [extension] = project()["tool"]["setuptools"]["ext-modules"]  # type: ignore[index]
    assert native.build().flags == " ".join(extension["extra-compile-args"])


def test_every_source_of_the_core_is_compiled_into_the_extension() -> None:
    [extension] = project()["tool"]["setuptools"]["ext-modules"]  # type: ignore[index]
    present = {f"engine/src/{file.name}" for file in (ROOT / "engine" / "src").glob("*.c")}
    assert present - set(extension["sources"]) == {"engine/src/gbbench.c", "engine/src/gbdigest.c"}


def test_the_version_of_the_library_is_the_version_of_the_distribution() -> None:
    assert native.build().version == project()["project"]["version"]  # type: ignore[index]
