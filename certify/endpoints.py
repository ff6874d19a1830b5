"""A client for OpenAI-compatible endpoints: what arrived, as it arrived.

It judges nothing. An endpoint under test may answer with anything, or not at all: every request has
one deadline, every answer a size limit, and no answer raises.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from engine.canonical import loads

MAX_BYTES = 8 << 20
EVENT_STREAM = "text/event-stream"
MALFORMED = (KeyError, IndexError, TypeError, AttributeError, ValueError)  # of an answer's JSON


@dataclass(frozen=True)
class Answer:
    """One HTTP answer. ``fault`` says why there is none, or none that is whole; ``late``: by the deadline."""

    status: int | None
    content_type: str
    body: bytes
    fault: str | None = None
    late: bool = False


class Endpoint:
    """One server, by the URL below which ``/v1/chat/completions`` lies. A connection a request."""

    def __init__(self, url: str, *, timeout_s: float, model: str | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or parts.hostname is None:
            raise ValueError(f"{url} is no http:// URL")
        self.url = url
        self._host, self._port = parts.hostname, parts.port or 80
        self._path = parts.path.rstrip("/").removesuffix("/v1") + "/v1/chat/completions"
        self._timeout_s, self._model = timeout_s, model

    def listens(self) -> bool:
        """Whether something takes a connection there."""
        try:
            with socket.create_connection((self._host, self._port), timeout=self._timeout_s):
                return True
        except OSError:
            return False

    def chat(self, body: Mapping[str, Any]) -> Answer:
        """POST one chat request. The deadline covers connecting, waiting and reading together."""
        named = {**body, **({"model": self._model} if self._model is not None else {})}
        data = json.dumps(named, ensure_ascii=False).encode()
        deadline = time.monotonic() + self._timeout_s
        connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
        try:
            answer = self._exchange(connection, data, deadline)
        except (OSError, http.client.HTTPException) as error:
            answer = Answer(
                None, "", b"", f"{type(error).__name__}: {error}", isinstance(error, TimeoutError)
            )
        finally:
            connection.close()
        if answer.late or time.monotonic() >= deadline:
            return replace(answer, fault=f"no whole answer within {self._timeout_s:g} s", late=True)
        return answer

    def _exchange(self, connection: http.client.HTTPConnection, data: bytes, deadline: float) -> Answer:
        """One answer. A socket's own timeout begins anew with every byte: at the deadline it is shut down."""
        headers = {"Content-Type": "application/json", "Accept": f"application/json, {EVENT_STREAM}"}
        connection.connect()
        watch = threading.Timer(max(0.0, deadline - time.monotonic()), _shut, (connection.sock,))
        watch.start()
        try:
            connection.request("POST", self._path, data, headers)
            return _read(connection.getresponse())
        finally:
            watch.cancel()
            watch.join()


def _shut(sock: socket.socket) -> None:
    """Whoever reads gets the end of the stream."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def _read(response: http.client.HTTPResponse) -> Answer:
    kind = response.headers.get_content_type()
    body = bytearray()
    while True:
        try:
            part = response.read1(1 << 16)
        except (OSError, http.client.HTTPException) as error:
            fault = f"{type(error).__name__} after {len(body)} bytes"
            return Answer(response.status, kind, bytes(body), fault, isinstance(error, TimeoutError))
        body += part
        if len(body) > MAX_BYTES:
            return Answer(response.status, kind, b"", f"more than {MAX_BYTES} bytes")
        if not part:
            short = "" if not response.length else f"{response.length} bytes are missing"
            return Answer(response.status, kind, bytes(body), short or None)


# ---- Server-sent events ------------------------------------------------------------------------


class EventReader:
    """Reads server-sent events from pieces of any size; the same bytes give the same events."""

    def __init__(self) -> None:
        self._rest = b""
        self._name, self._data = "", list[bytes]()

    def feed(self, piece: bytes) -> Iterator[tuple[str, str]]:
        """``(event, data)`` of every event that ``piece`` completes. Bytes that are no UTF-8 raise."""
        lines = (self._rest + piece).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            line = line.removesuffix(b"\r")
            if not line:
                if self._data:
                    yield self._name, b"\n".join(self._data).decode()
                self._name, self._data = "", []
                continue
            field, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if field == b"data":
                self._data.append(value)
            elif field == b"event":
                self._name = value.decode()

    @property
    def pending(self) -> bool:
        """Whether an event has begun and not ended."""
        return bool(self._rest or self._data)


# ---- What an answer says -----------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """One tool call."""

    name: str | None
    arguments: str | None


@dataclass(frozen=True)
class Turn:
    """One answer in one form, whether it came whole or as a stream. ``fault``: it is malformed.

    ``extension`` is what the endpoint says of its own about the ending (the member ``gaugeblock``).
    """

    finish: str | None = None
    content: str = ""
    calls: tuple[Call, ...] = ()
    completion_tokens: int | None = None
    extension: Mapping[str, Any] | None = None
    fault: str | None = None

    def same(self, other: Turn) -> bool:
        """Whether two answers say the same; a server's own remarks (seed, ids, times) may differ."""
        mine, theirs = (
            (turn.finish, turn.content, tuple((call.name, call.arguments) for call in turn.calls))
            for turn in (self, other)
        )
        return mine == theirs and _endings(self) == _endings(other)


def _endings(turn: Turn) -> list[Any]:
    return [(turn.extension or {}).get(name) for name in ("truncated", "reason", "filled", "tool_calls")]


def whole(answer: Answer) -> Turn:
    """The turn of a buffered answer."""
    try:
        document = loads(answer.body, max_bytes=MAX_BYTES)
        choice = document["choices"][0]
        message = choice["message"]
        calls = tuple(_call(item) for item in message.get("tool_calls") or ())
        extension = _extension(choice) or _extension(document)
        content = _text(message.get("content"), "content")
        tokens = (document.get("usage") or {}).get("completion_tokens")
        return Turn(_finish(choice), content, calls, _count(tokens), extension)
    except MALFORMED as error:
        return Turn(fault=f"no chat completion: {type(error).__name__}: {str(error)[:120]}")


def streamed(answer: Answer, cuts: Sequence[int] = ()) -> Turn:
    """The turn of a stream, read in pieces that end at ``cuts``."""
    if answer.content_type != EVENT_STREAM:
        return Turn(fault=f"the content type is {answer.content_type or 'not given'}, not {EVENT_STREAM}")
    joined, reader = _Joined(), EventReader()
    edges = [0, *sorted(cuts), len(answer.body)]
    try:
        for begin, end in itertools.pairwise(edges):
            for name, data in reader.feed(answer.body[begin:end]):
                joined.add(name, data)
    except MALFORMED as error:
        return Turn(fault=f"no stream of chunks: {type(error).__name__}: {str(error)[:120]}")
    return joined.turn(complete=not reader.pending)


class _Joined:
    """Chunks put together."""

    def __init__(self) -> None:
        self._content: list[str] = []
        self._calls: dict[int, dict[str, Any]] = {}
        self._finish: str | None = None
        self._tokens: int | None = None
        self._extension: Mapping[str, Any] | None = None
        self._done = False
        self._fault: str | None = None

    def add(self, name: str, data: str) -> None:
        if self._done:
            raise ValueError("an event after [DONE]")
        if data == "[DONE]":
            self._done = True
            return
        if name == "error":
            raise ValueError(f"an error event: {data[:80]}")
        chunk = loads(data.encode(), max_bytes=MAX_BYTES)
        if "error" in chunk:
            raise ValueError(f"an error: {data[:80]}")
        tokens = _count((chunk.get("usage") or {}).get("completion_tokens"))
        self._tokens = self._tokens if tokens is None else tokens
        for choice in chunk["choices"]:
            self._choice(choice, _extension(choice) or _extension(chunk))

    def _choice(self, choice: Mapping[str, Any], extension: Mapping[str, Any] | None) -> None:
        delta = choice.get("delta") or {}
        if self._finish is not None and (delta.get("content") or delta.get("tool_calls")):
            raise ValueError("text after finish_reason")
        self._content.append(_text(delta.get("content"), "delta.content"))
        for item in delta.get("tool_calls") or ():
            call = self._calls.setdefault(item["index"], {"name": None, "arguments": ""})
            function = item.get("function") or {}
            if function.get("name") is not None:
                call["name"] = (call["name"] or "") + function["name"]
            call["arguments"] += _text(function.get("arguments"), "arguments")
        self._finish = _finish(choice) or self._finish
        self._extension = extension or self._extension

    def turn(self, *, complete: bool) -> Turn:
        fault = None
        if not self._done or not complete:
            fault = "the stream has no [DONE]" if not self._done else "the stream ends inside an event"
        if sorted(self._calls) != list(range(len(self._calls))):
            fault = fault or f"the calls have the indices {sorted(self._calls)}"
        calls = tuple(Call(item["name"], item["arguments"]) for _, item in sorted(self._calls.items()))
        content = "".join(self._content)
        return Turn(self._finish, content, calls, self._tokens, self._extension, fault)


def _call(item: Mapping[str, Any]) -> Call:
    function = item["function"]
    return Call(function.get("name"), function.get("arguments"))


def _extension(holder: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The member ``gaugeblock`` where it speaks of an ending."""
    value = holder.get("gaugeblock")
    return value if isinstance(value, dict) and "truncated" in value else None


def _finish(choice: Mapping[str, Any]) -> str | None:
    value = choice.get("finish_reason")
    if value is not None and not isinstance(value, str):
        raise TypeError("finish_reason is no string")
    return value


def _text(value: Any, name: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise TypeError(f"{name} is no string")
    return value


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def ask(endpoint: Endpoint, body: Mapping[str, Any], *, stream: bool) -> tuple[Answer, Turn]:
    """One request, buffered or streamed, and what it says. Without status 200 the turn is empty."""
    if stream:
        body = {**body, "stream": True, "stream_options": {"include_usage": True}}
    answer = endpoint.chat(body)
    if answer.fault is not None or answer.status != 200:
        return answer, Turn(fault=answer.fault or error_text(answer))
    return answer, streamed(answer) if stream else whole(answer)


def error_text(answer: Answer) -> str:
    """The message of an error answer."""
    with contextlib.suppress(*MALFORMED):
        error = loads(answer.body, max_bytes=MAX_BYTES)["error"]
        return str(error["message"] if isinstance(error, dict) else error)[:200]
    return answer.body[:80].decode(errors="replace")
