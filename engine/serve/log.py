"""Lines on stderr, through the console of the command line; prompts and answers are never logged."""

from __future__ import annotations

import contextvars
import logging
import secrets
import time
import traceback
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine.cli.console import CONSOLE
from engine.text import printable


class _ToConsole(logging.Handler):
    """What uvicorn and asyncio have to say, from errors up."""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        trace = "" if error is None else "\n" + "".join(traceback.format_exception(error))
        CONSOLE.error(record.name, record.getMessage() + trace)


def configure() -> None:
    """Send the errors of uvicorn and asyncio to the console."""
    handler = _ToConsole(logging.ERROR)
    for name in ("uvicorn", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(logging.ERROR)


def log(event: str, *, level: str = "info", **values: Any) -> None:
    """One line for one event, with the time (UTC)."""
    values = {"time": _now(), **values}
    words = " ".join(f"{name}={printable(value)}" for name, value in values.items())
    CONSOLE.log(event, f"{event} {words}", level=level, **values)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def log_exception(error: BaseException) -> None:
    """An error that is no request's fault: with its trace."""
    record, time_ = _RECORD.get(), _now()
    request = None if record is None else record.id
    trace = "".join(traceback.format_exception(error))
    CONSOLE.error("internal-error", f"time={time_} request={request}\n{trace}", time=time_, request=request)


@dataclass(slots=True)
class Record:
    """What the line of one request says beside its time; ``status`` is None until headers are sent."""

    id: str = field(default_factory=lambda: f"req-{secrets.token_hex(8)}")
    event: str | None = None
    status: int | None = None
    values: dict[str, Any] = field(default_factory=dict)


_RECORD: contextvars.ContextVar[Record | None] = contextvars.ContextVar("record", default=None)


def note(event: str | None = None, **values: Any) -> None:
    """Add to the line of the request that is being answered; ``event`` replaces what its status implies."""
    record = _RECORD.get()
    if record is not None:
        record.event = event or record.event
        record.values.update(values)


class RequestLog:
    """ASGI wrapper around everything else: a line for each request, and its id in ``X-Request-Id``."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        record, start = Record(), time.monotonic()

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", record.id.encode())]
            await send(message)

        token = _RECORD.set(record)
        try:
            await self.app(scope, receive, noting)
        finally:
            _RECORD.reset(token)
            _log_request(scope, record, round(1000 * (time.monotonic() - start)))


def _log_request(scope: Scope, record: Record, duration_ms: int) -> None:
    """The path as it was sent: still percent-encoded, so that no space can imitate a field."""
    path = printable(scope["raw_path"].decode("latin-1"), 120)
    if (path, record.status) == ("/health", 200):
        return  # whatever watches the server would fill the log
    status = record.status or 0
    event = record.event or ("answered" if status < 400 else "failed" if status == 500 else "refused")
    values = {"id": record.id, "method": printable(scope["method"], 20), "path": path}
    log(event, **values, status=record.status, duration_ms=duration_ms, **record.values)
