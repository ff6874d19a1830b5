"""``gaugeblock serve`` as a process of its own, started as a user starts it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGTERM
from typing import Any

from openai import OpenAI

from tests.serve.fakes import HTTP, PATIENCE, until

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-W", "error", "-c", "from engine.cli import main; main()", "serve"]


@dataclass
class Served:
    """A running server. ``log`` grows with the lines of its standard error."""

    process: subprocess.Popen[str]
    log: list[str] = field(default_factory=list)
    ready: dict[str, Any] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return str(self.ready["url"])

    @property
    def port(self) -> int:
        return int(self.ready["port"])

    def client(self) -> OpenAI:
        """The SDK, without retries that would hide a refusal."""
        return OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, timeout=PATIENCE * 5)

    def health(self) -> dict[str, Any]:
        return dict(HTTP.get(f"{self.url}/health").json())

    def idle(self) -> dict[str, Any]:
        """/health once nothing runs or waits."""
        until(lambda: self.health()["active"] + self.health()["queued"] == 0, "the server is idle")
        return self.health()

    def _read(self) -> None:
        for line in self.process.stderr or ():
            self.log.append(line)
            if '"event": "ready"' in line:
                self.ready = json.loads(line)


@contextlib.contextmanager
def served(*options: str, end_with: int = SIGTERM, exit_code: int = 0) -> Iterator[Served]:
    """Start a server on a free port; ends it with a signal and expects its exit code."""
    command = [*COMMAND, "--port", "0", *options]
    process = subprocess.Popen(
        command, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    server = Served(process)
    reader = threading.Thread(target=server._read)
    reader.start()
    try:
        until(lambda: bool(server.ready) or process.poll() is not None, "the server is ready")
        assert server.ready, "".join(server.log)
        yield server
        process.send_signal(end_with)
        assert process.wait(PATIENCE) == exit_code, "".join(server.log)
    finally:
        process.kill()
        process.wait()
        reader.join()
        if process.stderr is not None:
            process.stderr.close()


def refused(*options: str) -> tuple[int, str]:
    """Exit code and standard error of a server that does not start."""
    result = subprocess.run(
        [*COMMAND, *options], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    return result.returncode, result.stderr
