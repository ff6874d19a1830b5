"""llama.cpp as a reference: the copy inside the ``xllamacpp`` wheel, driven in a process of its own.

The wheel's extension module exports llama.cpp's C interface; ``llama_cpp_worker`` calls it and
answers over a socket pair. So logits come whole and raw, and a crash stays in the child.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, cast

import numpy as np

from certify.references import (
    EvalOptions,
    FloatArray,
    ReferenceCrashed,
    ReferenceRefused,
    ReferenceUnavailable,
)
from engine.machine import usable_cpus

PACKAGE = "xllamacpp"
HEADER = struct.Struct("<IQ")  # bytes of JSON, bytes of payload
INSTALL = "pip install 'gaugeblock[reference]'"


def installed_version() -> str | None:
    """Version of the wheel, or None where it is not installed."""
    try:
        return importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return None


def revision_of(package_version: str) -> str:
    """``2026.10.11549`` → ``b11549``: the last part is llama.cpp's build number."""
    last = package_version.rsplit(".", 1)[-1]
    return f"b{last}" if last.isdigit() else "unknown"


def library_path() -> Path:
    """The extension module that holds llama.cpp, found without importing it."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ReferenceUnavailable(f"the package {PACKAGE} is not installed: {INSTALL}")
    for folder in spec.submodule_search_locations:
        for path in sorted(Path(folder).glob(f"{PACKAGE}*.so")):
            return path
    raise ReferenceUnavailable(f"the package {PACKAGE} holds no extension module: {INSTALL}")


def send_frame(sock: socket.socket, head: Mapping[str, Any], payload: bytes | memoryview = b"") -> None:
    """Write one message: header, JSON, raw bytes."""
    text = json.dumps(head).encode()
    sock.sendall(HEADER.pack(len(text), len(payload)) + text)
    if len(payload):
        sock.sendall(payload)


def receive_exactly(sock: socket.socket, n: int) -> bytearray:
    """``n`` bytes; EOFError where the other side has gone."""
    data = bytearray(n)
    view = memoryview(data)
    done = 0
    while done < n:
        got = sock.recv_into(view[done:], min(n - done, 1 << 20))
        if got == 0:
            raise EOFError
        done += got
    return data


def receive_frame(sock: socket.socket) -> tuple[dict[str, Any], bytearray]:
    """Read one message."""
    head_bytes, payload_bytes = HEADER.unpack(receive_exactly(sock, HEADER.size))
    head = json.loads(receive_exactly(sock, head_bytes))
    return cast("dict[str, Any]", head), receive_exactly(sock, payload_bytes)


class LlamaCpp:
    """One model file open in one llama.cpp process. Not for several threads at a time."""

    name = "llama.cpp"
    provider = PACKAGE

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        threads: int | None = None,
        timeout_s: float = 900.0,
        hurried: bool = False,
    ):
        version = installed_version()
        if version is None:
            raise ReferenceUnavailable(f"the package {PACKAGE} is not installed: {INSTALL}")
        self.package_version = version
        self.revision = revision_of(version)
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 (closed by close())
        self._sock, theirs = socket.socketpair()
        command = [sys.executable, "-m", "certify.references.llama_cpp_worker", str(theirs.fileno())]
        with theirs:
            self._process = subprocess.Popen(
                command,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._stderr,
                stderr=self._stderr,
                env=_environment(hurried),
            )
        self._sock.settimeout(timeout_s)
        self._finalizer = weakref.finalize(self, _stop, self._process, self._sock, self._stderr)
        try:
            hello, _ = self._ask(
                {
                    "op": "open",
                    "library": str(library_path()),
                    "model": str(Path(model).absolute()),
                    "threads": threads or min(usable_cpus(), 8),
                }
            )
        except BaseException:
            self.close()
            raise
        self.vocab = int(hello["vocab"])
        self.cpu_features = tuple(hello["cpu_features"])
        self.reported_version = str(hello["version"])

    def tokenize(self, text: str | bytes, *, special: bool) -> list[int]:
        """Ids of ``text`` with nothing added; lone surrogates are refused by the encoding."""
        data = text.encode() if isinstance(text, str) else text
        _, ids = self._ask({"op": "tokenize", "special": special}, data)
        return _ids_from(ids)

    def detokenize(self, ids: Sequence[int], *, special: bool = False) -> bytes:
        """The bytes of ``ids``; control tokens are written out only with ``special``."""
        _, text = self._ask({"op": "detokenize", "special": special}, _ids_bytes(ids))
        return bytes(text)

    def is_end(self, token: int) -> bool:
        """Whether llama.cpp ends a generation at ``token``."""
        head, _ = self._ask({"op": "is_end", "token": int(token)})
        return bool(head["value"])

    def rows(
        self, ids: Sequence[int], positions: Sequence[int] | None = None, options: EvalOptions | None = None
    ) -> Iterator[tuple[int, FloatArray]]:
        """Stream ``(position, float32 [vocab])``, ascending. Memory: one batch of rows."""
        options = options or EvalOptions()
        wanted = list(range(len(ids))) if positions is None else sorted({int(p) for p in positions})
        request = {"op": "rows", "positions": wanted, **vars(options)}
        for head, payload in self._stream(request, _ids_bytes(ids)):
            block = np.frombuffer(payload, dtype="<f4").reshape(len(head["positions"]), self.vocab)
            yield from zip(head["positions"], block, strict=True)

    def logits(
        self, ids: Sequence[int], positions: Sequence[int] | None = None, options: EvalOptions | None = None
    ) -> FloatArray:
        """All rows at once, float32 [positions, vocab]."""
        return np.stack([row for _, row in self.rows(ids, positions, options)])

    def greedy_rows(
        self, ids: Sequence[int], n: int, *, stop: bool = False, options: EvalOptions | None = None
    ) -> Iterator[tuple[int, FloatArray]]:
        """Stream ``(pick, float32 [vocab])`` of a greedy generation: each row is what the pick came from."""
        request = {"op": "greedy", "n": n, "stop": stop, "logits": True, **vars(options or EvalOptions())}
        for head, payload in self._stream(request, _ids_bytes(ids)):
            yield int(head["pick"]), np.frombuffer(payload, dtype="<f4")

    def greedy(
        self, ids: Sequence[int], n: int, *, stop: bool = False, options: EvalOptions | None = None
    ) -> list[int]:
        """The ``n`` greedy ids after ``ids``, ties to the lower id; ``stop``: an end token is the last."""
        request = {"op": "greedy", "n": n, "stop": stop, "logits": False, **vars(options or EvalOptions())}
        return [int(head["pick"]) for head, _ in self._stream(request, _ids_bytes(ids))]

    def seconds(
        self, before: Sequence[int], ids: Sequence[int], *, together: bool, flash: str, threads: int
    ) -> float:
        """Seconds to evaluate ``ids`` behind ``before``, at once or one by one, measured in the process."""
        how = {"op": "seconds", "together": together, "flash": flash, "threads": threads}
        head, _ = self._ask({**how, "before": len(before)}, _ids_bytes([*before, *ids]))
        return float(head["seconds"])

    def start_command(self, prompt: str, threads: int, context_tokens: int) -> list[str] | None:
        """The wheel's own binding is not used here, so there is none to time."""
        return None

    def close(self) -> None:
        """End the process. Safe to call twice."""
        self._finalizer()

    def __enter__(self) -> LlamaCpp:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _stream(self, head: Mapping[str, Any], payload: bytes) -> Iterator[tuple[dict[str, Any], bytearray]]:
        """Every answer to one request, up to the one that says done."""
        self._send(head, payload)
        done = False
        try:
            while True:
                answer, block = self._receive()
                if answer.get("done"):
                    done = True
                    return
                yield answer, block
        except (ReferenceRefused, ReferenceCrashed):
            done = True
            raise
        finally:
            while not done:  # the caller stopped early: what is in flight must not meet the next request
                answer, _ = self._receive()
                done = bool(answer.get("done"))

    def _ask(self, head: Mapping[str, Any], payload: bytes = b"") -> tuple[dict[str, Any], bytearray]:
        self._send(head, payload)
        return self._receive()

    def _send(self, head: Mapping[str, Any], payload: bytes = b"") -> None:
        try:
            send_frame(self._sock, head, payload)
        except OSError as error:
            raise self._crashed(error) from None

    def _receive(self) -> tuple[dict[str, Any], bytearray]:
        try:
            head, payload = receive_frame(self._sock)
        except (OSError, EOFError) as error:
            raise self._crashed(error) from None
        if "error" in head:
            raise ReferenceRefused(f"llama.cpp {self.revision}: {head['error']}")
        return head, payload

    def _crashed(self, error: Exception) -> ReferenceCrashed:
        if isinstance(error, TimeoutError):
            self.close()
            return ReferenceCrashed(f"llama.cpp {self.revision} did not answer in time")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        code = self._process.poll()
        how = (
            f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit status {code}"
        )
        tail = ""
        if not self._stderr.closed:
            self._stderr.seek(max(0, self._stderr.seek(0, os.SEEK_END) - 2000))
            tail = self._stderr.read().decode(errors="replace").strip()
        self.close()
        return ReferenceCrashed(f"llama.cpp {self.revision} ended ({how}): {tail or 'it wrote nothing'}")


def _environment(hurried: bool) -> dict[str, str]:
    """Ours, importable from where we are. Threads that wait sleep, as other processes need the CPUs too;
    ``hurried``, for timing, leaves them to wait as llama.cpp's own programs do."""
    path = os.pathsep.join(part for part in sys.path if part)
    given = {name: value for name, value in os.environ.items() if not (hurried and name == "OMP_WAIT_POLICY")}
    return {**({} if hurried else {"OMP_WAIT_POLICY": "passive"}), **given, "PYTHONPATH": path}


def _stop(process: subprocess.Popen[bytes], sock: socket.socket, stderr: Any) -> None:
    sock.close()
    try:
        process.wait(2)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    stderr.close()


def _ids_bytes(ids: Sequence[int]) -> bytes:
    return np.asarray(ids, dtype="<i4").tobytes()


def _ids_from(payload: bytearray) -> list[int]:
    return cast("list[int]", np.frombuffer(payload, dtype="<i4").tolist())
