"""Reads a request body: bounded in bytes and time, strictly JSON, an object.

Refused: more than ``MAX_BYTES``, a body that takes longer than ``MAX_SECONDS`` to arrive,
content encodings, other media types, anything that ``engine.canonical`` refuses (bytes that are
not UTF-8, duplicate keys, NaN, lone surrogates, deep nesting), anything but an object.
"""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.types import Message, Receive

from engine import canonical
from engine.serve.errors import ApiError, busy
from engine.text import printable

MAX_BYTES = 8 * 1024 * 1024
MAX_DEPTH = 64
MAX_SECONDS = 30.0
# A refused body is read and dropped up to here, so that the client can still read the answer.
DRAIN_BYTES = 4 * MAX_BYTES
# Of all bodies that are being read or parsed at one time.
BUDGET_BYTES = 256 * 1024 * 1024
CLOSE = {"Connection": "close"}


class Reader:
    """Reads the bodies of one server; what they hold together is bounded by ``BUDGET_BYTES``."""

    def __init__(self) -> None:
        self._held = 0

    async def read_object(self, request: Request) -> dict[str, Any]:
        """The body as a JSON object; raises ``ApiError`` 400, 408, 413, 415 or 503."""
        chunks: list[bytes] = []
        try:
            await self._read(request, chunks)
            _check_media(request)
            return await asyncio.to_thread(parse_object, b"".join(chunks))
        finally:
            self._held -= sum(map(len, chunks))

    async def _read(self, request: Request, chunks: list[bytes]) -> None:
        size = 0
        try:
            async with asyncio.timeout(MAX_SECONDS):
                async for chunk in request.stream():
                    size += len(chunk)
                    if size > DRAIN_BYTES:
                        break
                    if size <= MAX_BYTES:
                        self._keep(chunk, chunks)
        except TimeoutError:
            if size <= MAX_BYTES:
                message = f"the body did not arrive within {MAX_SECONDS:g} s"
                raise ApiError(408, message, code="timeout", headers=CLOSE) from None
        if size > MAX_BYTES:
            raise ApiError(413, f"the body exceeds {MAX_BYTES} bytes", code="body_too_large", headers=CLOSE)

    def _keep(self, chunk: bytes, chunks: list[bytes]) -> None:
        if self._held + len(chunk) > BUDGET_BYTES:
            refusal = busy("too many large request bodies are being read", "too_many_bodies")
            refusal.headers.update(CLOSE)
            raise refusal
        self._held += len(chunk)
        chunks.append(chunk)


def parse_object(raw: bytes) -> dict[str, Any]:
    """Strict JSON; integers of 64 bits are taken (seeds). Raises ``ApiError`` 400 ``invalid_json``."""
    try:
        value = canonical.loads(raw, max_bytes=MAX_BYTES, max_depth=MAX_DEPTH, limit=1 << 64)
    except canonical.StrictJSONError as error:
        message = f"the body is not acceptable JSON: {printable(error)}"
        raise ApiError(400, message, code="invalid_json") from None
    if not isinstance(value, dict):
        raise ApiError(400, "the body is not acceptable: it must be an object", code="invalid_json")
    return value


def _check_media(request: Request) -> None:
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise ApiError(415, "Content-Encoding must be absent or identity", code="unsupported_media_type")
    kind, _, rest = request.headers.get("content-type", "").partition(";")
    charset = rest.strip().lower().replace('"', "")
    if kind.strip().lower() != "application/json" or charset not in ("", "charset=utf-8"):
        raise ApiError(415, "Content-Type must be application/json in UTF-8", code="unsupported_media_type")


async def drain(receive: Receive, limit: int, seconds: float) -> None:
    """Drop what is left of a body, within limits."""
    try:
        async with asyncio.timeout(seconds):
            size = 0
            while size <= limit:
                message: Message = await receive()
                size += len(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body", False):
                    return
    except TimeoutError:
        return
