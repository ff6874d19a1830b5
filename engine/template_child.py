"""One persistent child process for chat templates, shared by this process and replaced when it dies."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import signal
import struct
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from engine.errors import TemplateError

WORKER = Path(__file__).with_name("template_worker.py")
START_S = 60.0


@dataclass(frozen=True)
class Limits:
    """What one rendering may take.

    ``cpu_s`` bounds the work whatever else the machine does, ``wall_s`` the wait; ``memory_bytes`` is
    the child's whole address space, and ``output_bytes`` the rendered text in UTF-8.
    """

    cpu_s: int = 5
    wall_s: float = 30.0
    memory_bytes: int = 256 << 20
    output_bytes: int = 16 << 20


class Child:
    """Starts the worker when it is first needed; renderings take turns."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the running worker, or None."""
        return None if self._process is None else self._process.pid

    def render(self, request: dict[str, Any], limits: Limits) -> str:
        """Render in the child. Raises TemplateError by name for every limit and for every failure."""
        body = json.dumps({**request, **vars(limits)}).encode("ascii")
        with self._lock:
            try:
                return self._exchange(body, limits)
            except BaseException as error:
                if not isinstance(error, _Failed):
                    self._stop()
                    raise
                raise TemplateError(str(error)) from None

    def _exchange(self, body: bytes, limits: Limits) -> str:
        process = self._running()
        deadline = time.monotonic() + limits.wall_s
        try:
            self._send(process, struct.pack("<I", len(body)) + body, deadline)
            reply = self._receive(process, deadline)
        except TimeoutError:
            self._stop()
            raise _Failed(f"the chat template did not end within {limits.wall_s:g} s") from None
        except EOFError:
            raise _Failed(f"the chat template {self._died(limits)}") from None
        if reply.get("spent"):
            self._stop()
        if "error" in reply:
            raise _Failed(f"the chat template failed: {reply['error']}")
        return str(reply["text"])

    def _running(self) -> subprocess.Popen[bytes]:
        """The worker, started or replaced where it is not alive."""
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._stop()
        environment = {name: os.environ[name] for name in ("TZ", "LANG", "LC_ALL") if name in os.environ}
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-B", str(WORKER), json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**environment, **_library_path()},
            start_new_session=True,
        )
        for stream in (self._process.stdin, self._process.stdout):
            os.set_blocking(_fileno(stream), False)
        try:
            self._receive(self._process, time.monotonic() + START_S)
        except (EOFError, TimeoutError):
            self._stop()
            raise TemplateError(
                "the process that renders chat templates does not start: is jinja2 installed?"
            ) from None
        return self._process

    @staticmethod
    def _send(process: subprocess.Popen[bytes], data: bytes, deadline: float) -> None:
        fd, rest = _fileno(process.stdin), memoryview(data)
        while rest:
            _wait(fd, select.POLLOUT, deadline)
            try:
                rest = rest[os.write(fd, rest) :]
            except BlockingIOError:
                continue
            except BrokenPipeError:
                raise EOFError from None

    @staticmethod
    def _receive(process: subprocess.Popen[bytes], deadline: float) -> dict[str, Any]:
        fd, data, size = _fileno(process.stdout), bytearray(), 4
        while len(data) < size:
            _wait(fd, select.POLLIN, deadline)
            try:
                chunk = os.read(fd, 1 << 16)
            except BlockingIOError:
                continue
            if not chunk:
                raise EOFError
            data += chunk
            if len(data) >= 4:
                size = 4 + struct.unpack_from("<I", data)[0]
        reply: dict[str, Any] = json.loads(data[4:])
        return reply

    def _died(self, limits: Limits) -> str:
        """Say why the worker has gone, and forget it."""
        process = self._process
        if process is None:
            return "ended its process"
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5)
        code = process.returncode
        self._stop()
        if code == -signal.SIGXCPU:
            return f"took more than {limits.cpu_s} s of processor time"
        if code is not None and code < 0:
            return f"ended its process (signal {-code})"
        return f"ended its process (exit {code})"

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def close(self) -> None:
        """End the worker; the next rendering starts another."""
        with self._lock:
            self._stop()

    def forget(self) -> None:
        """After a fork: the worker belongs to the parent process."""
        if self._process is not None:
            self._process.returncode = 0  # not a child of this process, and no concern of its destructor
        self._lock = threading.Lock()
        self._process = None


class _Failed(Exception):
    """A rendering failed while the worker is in order, or has been dealt with."""


def _fileno(stream: IO[bytes] | None) -> int:
    if stream is None:
        raise EOFError
    return stream.fileno()


def _wait(fd: int, event: int, deadline: float) -> None:
    poller = select.poll()
    poller.register(fd, event)
    left = deadline - time.monotonic()
    if left <= 0 or not poller.poll(left * 1000):
        raise TimeoutError


def _library_path() -> dict[str, str]:
    """An interpreter that needs a library path to start needs it in the child too."""
    names = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PYTHONHOME")
    return {name: os.environ[name] for name in names if name in os.environ}


CHILD = Child()
atexit.register(CHILD.close)
os.register_at_fork(after_in_child=CHILD.forget)
