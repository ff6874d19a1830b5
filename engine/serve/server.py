"""uvicorn with what a loopback server needs on top: limits on connections, signals, a ready line.

The first SIGTERM or SIGINT drains: nothing more is taken, waiting requests get 503, the running
generation may end within ``DRAIN_SECONDS``. A second signal interrupts it and ends the process.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from engine.serve.errors import ApiError
from engine.serve.log import log
from engine.serve.scheduler import Scheduler

HEADER_SECONDS = 30.0
DRAIN_SECONDS = 30.0
FAREWELL_SECONDS = 2.0
MAX_CONNECTIONS = 512
MAX_HEADER_BYTES = 32 * 1024
_HEAD_END = re.compile(rb"\n\r?\n")


class Protocol(H11Protocol):
    """HTTP/1.1 that does not wait for ever for a request, and takes one request at a time."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_request()
        if len(self.connections) > MAX_CONNECTIONS:
            transport.close()

    def data_received(self, data: bytes) -> None:
        if (
            self.conn.their_state is h11.IDLE
            and _head_bytes(self.conn.trailing_data[0] + data) > MAX_HEADER_BYTES
        ):
            # h11 itself minds the limit only while the end of the headers has not arrived.
            self.send_400_response(f"the headers exceed {MAX_HEADER_BYTES} bytes")
            return
        super().data_received(data)
        if self.conn.their_state is h11.IDLE and self.conn.our_state is h11.IDLE:
            self._await_request()
        elif self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if self.conn.their_state in (h11.DONE, h11.MUST_CLOSE) and self.conn.trailing_data[0].strip():
            # A second request behind the first: reading stops, and a client that leaves would not be seen.
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        super().connection_lost(exc)

    def _await_request(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(HEADER_SECONDS, self.transport.close)

    def send_400_response(self, msg: str) -> None:
        """The same shape as every other error."""
        log("refused", status=400, code="invalid_http")
        body = json.dumps(ApiError(400, msg, code="invalid_http").body()).encode("ascii")
        headers = [
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(body))),
            ("Connection", "close"),
        ]
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            for event in (
                h11.Response(status_code=400, headers=headers),
                h11.Data(data=body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


def _head_bytes(received: bytes) -> int:
    """Length of the request line and headers at the start of what was received, as far as they have come."""
    end = _HEAD_END.search(received)
    return len(received) if end is None else end.end()


class Server(uvicorn.Server):
    """Tells when it listens; drains on the first signal, stops on the second."""

    def __init__(self, config: uvicorn.Config, scheduler: Scheduler, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._scheduler = scheduler
        self._on_ready = on_ready
        self.signals: list[int] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Runs between two steps of the event loop's thread: it only sets marks."""
        self.signals.append(sig)
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._scheduler.drain()
        stopper = asyncio.create_task(self._stop_late())
        try:
            await super().shutdown(sockets)
        finally:
            stopper.cancel()
            await asyncio.to_thread(self._scheduler.close)

    async def _stop_late(self) -> None:
        """Interrupt the running generation at the second signal, or when draining takes too long."""
        deadline = self._loop_time() + DRAIN_SECONDS
        while len(self.signals) < 2 and self._loop_time() < deadline:
            await asyncio.sleep(0.05)
        self._scheduler.stop_current()
        await asyncio.sleep(FAREWELL_SECONDS)  # time for clients to read how their answer ended
        self.force_exit = True

    @staticmethod
    def _loop_time() -> float:
        return asyncio.get_running_loop().time()


def bind(host: str, port: int) -> socket.socket:
    """A listening socket on a loopback address; ``localhost`` is 127.0.0.1. Raises OSError."""
    address = {"localhost": "127.0.0.1"}.get(host.lower(), host)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(MAX_CONNECTIONS)
    except BaseException:
        listener.close()
        raise
    return listener


def url(listener: socket.socket) -> str:
    """Where clients find a bound socket."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def configuration(app: Any) -> uvicorn.Config:
    """uvicorn's settings: our protocol, no logs of its own, no lifespan, no proxy headers."""
    return uvicorn.Config(
        app,
        http=Protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
    )


def run(app: Any, listener: socket.socket, scheduler: Scheduler, ready: dict[str, Any]) -> int:
    """Serve until a signal; prints ``ready`` as one JSON line on stderr. Returns that signal's exit code."""
    line = json.dumps(ready)
    server = Server(configuration(app), scheduler, lambda: print(line, file=sys.stderr, flush=True))
    server.run(sockets=[listener])
    return 130 if signal.SIGINT in server.signals else 0
