"""Sends an answer, whole or as server-sent events, and stops the generation when the client leaves.

A stream is ``data: {…}`` events and ends with ``data: [DONE]``. An error after the headers is one
``event: error`` whose data is the error document, and then the end: no ``[DONE]`` follows.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from engine.serve.errors import ApiError, internal
from engine.serve.events import Calls, Evidence, Finished, Started, Text
from engine.serve.log import log_exception, note
from engine.serve.scheduler import Ended, Failed, Job, Scheduler
from engine.serve.shape import Shape

KEEP_ALIVE_SECONDS = 15.0
DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"
_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",
}


class Gone(Exception):
    """The client has left: there is nobody to answer."""


class Answer(Response):
    """Answers one submitted job; the job is cancelled if anything ends this early."""

    def __init__(self, scheduler: Scheduler, job: Job, shape: Shape, *, stream: bool) -> None:
        super().__init__()
        self._scheduler = scheduler
        self._job = job
        self._shape = shape
        self._stream = stream
        self._left = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        watcher = asyncio.create_task(self._watch(receive))
        try:
            response = await self._respond(scope, receive, send)
            if response is not None:
                await response(scope, receive, send)
            usage = self._shape.usage
            note(
                prompt_tokens=usage.prompt,
                completion_tokens=usage.completion,
                stream=self._stream,
            )
        except Gone:
            note("left", stream=self._stream)
        finally:
            watcher.cancel()
            self._scheduler.cancel(self._job)

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._left = True
        self._scheduler.cancel(self._job)
        self._job.events.put_nowait(Ended())

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> Response | None:
        """Wait for the job to start; an error until then has its own status."""
        try:
            event = await self._event()
            if self._stream:
                await self._send_stream(send)
                return None
            while not isinstance(event, Ended):
                self._keep(event)
                event = await self._event()
            return JSONResponse(self._shape.whole())
        except ApiError as error:
            return error_response(error)

    async def _event(self, patience: float | None = None) -> Any:
        """The next event; raises the error of a failed job, ``Gone`` when the client has left."""
        async with asyncio.timeout(patience):
            event = await self._job.events.get()
        if self._left:
            raise Gone
        if isinstance(event, Failed):
            raise as_api_error(event.error)
        return event

    def _keep(self, event: object) -> list[dict[str, Any]]:
        """Give an event its shape: the chunks that a stream sends for it."""
        if isinstance(event, Started):
            return self._shape.opening()
        if isinstance(event, Text):
            return [self._shape.text(event)]
        if isinstance(event, Calls):
            return self._shape.calls(event)
        if isinstance(event, Evidence):
            return [self._shape.evidence(event)]
        if isinstance(event, Finished):
            return [self._shape.finished(event)]
        raise TypeError(f"unexpected event {event!r}")

    async def _send_stream(self, send: Send) -> None:
        headers = [(name.lower().encode(), value.encode()) for name, value in _HEADERS.items()]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        try:
            await self._send_chunks(send, self._shape.opening())
            while not isinstance(event := await self._patient(send), Ended):
                await self._send_chunks(send, self._keep(event))
            await self._send_chunks(send, self._shape.closing())
            last = DONE
        except ApiError as error:
            note("failed", code=error.code)
            last = b"event: error\n" + sse(error.body())
        await send({"type": "http.response.body", "body": last, "more_body": False})

    async def _patient(self, send: Send) -> Any:
        while True:
            try:
                return await self._event(KEEP_ALIVE_SECONDS)
            except TimeoutError:
                await send({"type": "http.response.body", "body": KEEP_ALIVE, "more_body": True})

    async def _send_chunks(self, send: Send, chunks: list[dict[str, Any]]) -> None:
        body = b"".join(sse(chunk) for chunk in chunks)
        if body:
            await send({"type": "http.response.body", "body": body, "more_body": True})


def sse(document: dict[str, Any]) -> bytes:
    """One event. ASCII, so that no client splits a character or a line where it must not."""
    return b"data: " + json.dumps(document, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n\n"


def error_response(error: ApiError) -> JSONResponse:
    """An error as an answer of its own."""
    note(code=error.code)
    return JSONResponse(error.body(), status_code=error.status, headers=error.headers)


def as_api_error(error: Exception) -> ApiError:
    """What a client is told about an exception; what is not meant for it goes to the log."""
    if isinstance(error, ApiError):
        return error
    log_exception(error)
    return internal()
