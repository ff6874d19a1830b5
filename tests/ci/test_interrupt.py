"""Ctrl-C in the long targets of the Makefile ends quietly."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("script", ["identity/run.py", "ci/fuzz.py", "ci/sanitize.py"])
def test_an_interrupt_is_exit_130_without_a_traceback(script: str, tmp_path: Path) -> None:
    """The compilers here say that they have started, and then take for ever."""
    started = tmp_path / "started"
    for name in ("gcc", "clang"):
        (tmp_path / name).write_text(f"#!/bin/sh\ntouch {started}\nexec sleep 300\n")
        (tmp_path / name).chmod(0o755)
    with subprocess.Popen(
        [sys.executable, str(ROOT / "tests" / script)],
        cwd=tmp_path,
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "GAUGEBLOCK_MODELS": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            deadline = time.monotonic() + 120
            while not started.exists():
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < deadline
                time.sleep(0.05)
            os.killpg(process.pid, signal.SIGINT)
            _, err = process.communicate(timeout=60)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 130
    assert "Traceback" not in err
