"""Servers as processes of a check: started, waited for, asked over HTTP, ended.

A server prints one JSON line with its ``url`` (on standard error ours, on standard output a
reference's worker); everything else that it writes is kept, its end shown where it dies.
"""

from __future__ import annotations

import collections
import contextlib
import json
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import IO, Any

from engine.errors import EngineError

START_TIMEOUT_S = 300.0


class ServerError(EngineError):
    """A server of ours did not start, or died; the text holds the end of what it wrote."""


class ServerProcess:
    """One server. ``url`` is where it listens."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        self._tail: collections.deque[str] = collections.deque(maxlen=20)
        self._ready: dict[str, Any] = {}
        self._known = threading.Event()
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            list(command), stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True, errors="replace",
            env=None if env is None else dict(env),
        )  # fmt: skip
        assert self._process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reader.start()
        if not self._known.wait(START_TIMEOUT_S) or not self._ready:
            self.close()
            raise ServerError(f"the server did not start: {self.tail}")

    @property
    def url(self) -> str:
        """Where it listens."""
        return str(self._ready["url"])

    @property
    def ready(self) -> Mapping[str, Any]:
        """What it said when it was ready."""
        return self._ready

    @property
    def tail(self) -> str:
        """The end of what it wrote."""
        return " | ".join(self._tail)[-800:] or "it wrote nothing"

    def check(self) -> None:
        """Raise ServerError where the process has ended, or ends within a moment."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = self._process.wait(2)
            how = signal.Signals(-status).name if status < 0 else f"exit status {status}"
            raise ServerError(f"the server ended ({how}): {self.tail}")

    def close(self) -> None:
        """End the process: politely, then not. Safe to call twice."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()
        self._reader.join(5)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            if not self._ready and '"url"' in line:
                try:
                    self._ready = json.loads(line)
                    self._known.set()
                    continue
                except ValueError:
                    pass
            self._tail.append(line.strip()[:200])
        self._known.set()
