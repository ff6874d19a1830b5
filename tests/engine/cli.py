"""The command line as a user meets it: a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def gaugeblock(*args: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run ``python -m engine`` with the arguments; text in, text out."""
    command = [sys.executable, "-m", "engine", *map(str, args)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **options.pop("env", {})}
    defaults: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 120, "check": False}
    return subprocess.run(command, cwd=ROOT, env=environment, **{**defaults, **options})


def document(result: subprocess.CompletedProcess[str], schema: str) -> dict[str, Any]:
    """The one JSON document on standard output."""
    assert result.returncode == 0, result.stderr
    value: dict[str, Any] = json.loads(result.stdout)
    assert value["schema"] == f"gaugeblock.{schema}"
    return value
