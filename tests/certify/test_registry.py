"""The registry: a check that cannot be loaded is an error, never a check that is not there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from certify import registry

GOOD = """
REQUIREMENT = "It MUST hold."
VERSION = 1
N = {"type": "integer", "default": 3}
PARAMETERS = {"type": "object", "additionalProperties": False, "properties": {"n": N}}
def run(ctx): ...
"""


def package(folder: Path, name: str, files: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> str:
    """A package of checks of its own."""
    root = folder / name
    root.mkdir()
    for file, text in {"__init__": "", **files}.items():
        (root / f"{file}.py").write_text(text)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return name


def test_the_file_name_is_the_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = package(tmp_path, "good_checks", {"alpha": GOOD, "beta": GOOD, "_private": "1/0"}, monkeypatch)
    found = registry.load(name)
    assert list(found) == ["alpha", "beta"]
    assert found["alpha"].with_defaults({}) == {"n": 3}
    assert found["alpha"].with_defaults({"n": 5}) == {"n": 5}
    assert found["alpha"].problems({"n": "x", "m": 1}) != []
    with pytest.raises(registry.RegistryError, match="known are alpha, beta"):
        registry.get("gamma", name)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import nothing_of_that_name", "cannot be imported: ModuleNotFoundError"),
        ("def broken(:", "cannot be imported: SyntaxError"),
        (GOOD.replace("VERSION = 1", ""), "lacks VERSION"),
        (GOOD.replace("def run(ctx): ...", ""), "lacks run"),
        (GOOD.replace("REQUIREMENT", "OTHER"), "lacks REQUIREMENT"),
        (GOOD.replace("MUST", "should"), "not normative"),
        (GOOD.replace("False", "True"), "allow no others"),
        (GOOD.replace('"integer"', '"whole"'), "no JSON Schema"),
    ],
)
def test_a_broken_check_is_loud(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    unique = f"bad_checks_{abs(hash(request.node.name))}"
    name = package(tmp_path, unique, {"alpha": GOOD, "beta": text}, monkeypatch)
    with pytest.raises(registry.RegistryError, match=message):
        registry.load(name)


def test_the_harness_has_its_eight_checks() -> None:
    names = [
        "fidelity", "greedy_reference", "identity", "load", "performance", "tokenizer", "tool", "truncation",
    ]  # fmt: skip
    assert list(registry.load()) == names
    for check in registry.load().values():
        assert check.problems(check.with_defaults({})) == []
