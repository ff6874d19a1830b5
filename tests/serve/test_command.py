"""The command's module is light; what is missing is named with the command that installs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def python(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )


def test_server_packages_are_imported_by_a_running_server_only() -> None:
    heavy = ("fastapi", "starlette", "uvicorn", "h11", "pydantic")
    program = f"import sys, engine.cli, engine.serve.command; print([m for m in {heavy} if m in sys.modules])"
    assert python(program).stdout.strip() == "[]"


@pytest.mark.parametrize("package", ["fastapi", "uvicorn"])
def test_a_missing_package_is_named(package: str) -> None:
    start = "from engine.cli import main; main(['serve', '-m', 'absent.gguf'])"
    result = python(f"import sys; sys.modules[{package!r}] = None; {start}")
    assert result.returncode == 1
    assert f"{package} is missing" in result.stderr
    assert "pip install 'gaugeblock[serve]'" in result.stderr
    assert "Traceback" not in result.stderr
