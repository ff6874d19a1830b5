"""A server of the OpenAI API without a model, which ends every document legally, or breaks one rule.

The honest one "writes" a fixed document for a schema in tokens of four characters. Where a budget or a
stop string cuts it, the members that it had not finished are filled in, and it says which those are.
Each fault is a method that changes an honest answer; the name of the method is the name of the server.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from certify.documents import places
from certify.documents import values as pointers

ROOT = Path(__file__).parents[2]
TOKEN = 4
PATTERNS = {
    "^[0-9]{5}$": ("90210", "00000"),
    "^[A-Z]{3}-[0-9]{4}$": ("ABC-1234", "AAA-0000"),
    "^[a-z]{2}-[0-9]{2}$": ("qu-12", "aa-00"),
}
FORMATS = {
    "date": ("1990-05-17", "0001-01-01"),
    "uuid": ("123e4567-e89b-12d3-a456-426614174000", "00000000-0000-0000-0000-000000000000"),
    "ipv4": ("192.168.17.1", "0.0.0.0"),
}


def example(schema: Mapping[str, Any], which: int, root: Mapping[str, Any] | None = None) -> Any:
    """A document of the schema: number 0 as a model writes it, number 1 as a closer fills it in."""
    root = schema if root is None else root
    if "$ref" in schema:
        return example(root["$defs"][schema["$ref"].rpartition("/")[2]], which, root)
    if "anyOf" in schema:
        return example(schema["anyOf"][0], which, root)
    if "enum" in schema:
        return schema["enum"][-1 if which == 0 else 0]
    kind = schema["type"]
    if kind == "object":
        return {name: example(item, which, root) for name, item in schema["properties"].items()}
    if kind == "array":
        return [example(schema["items"], which, root)] * schema.get("minItems", 0)
    if kind == "string":
        if "format" in schema or "pattern" in schema:
            return {**FORMATS, **PATTERNS}[schema.get("format") or schema["pattern"]][which]
        short, long = schema.get("minLength", 0), schema.get("maxLength", 9)
        return ("größe\n☂🙂xyz"[: min(long, 9)]) if which == 0 else " " * short
    if kind == "null":
        return None
    return which == 0 if kind == "boolean" else schema["maximum" if which == 0 else "minimum"]


@dataclass
class Reply:
    """An answer before it takes its form. ``calls`` are (name, arguments)."""

    status: int = 200
    content: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    finish: str = "stop"
    tokens: int | None = 0
    ending: dict[str, Any] | None = None
    cut: bool = False
    written: str = ""  # what the model wrote of the document
    document: Any = None
    raw: bytes | None = None  # instead of all else
    length: int | None = None  # a Content-Length that lies


class Honest:
    """Breaks no rule."""

    def reply(self, body: Mapping[str, Any]) -> Reply:
        form = (body.get("response_format") or {}).get("json_schema")
        name, schema = None, None
        if form is not None:
            schema = form["schema"]
        elif body.get("tools"):
            name, schema = self._tool(body)
        if schema is None:
            return self._prose(body)
        reply = self._document(schema, int(body["max_tokens"]), (body.get("stop") or [None])[0])
        if not reply.cut:
            reply.finish = "stop" if name is None else "tool_calls"
        text = self.dumps(reply.document) if reply.document is not None else ""
        if name is None:
            reply.content = text
        else:
            reply.calls = [(name, text)]
            call = {"index": 0, **(reply.ending or {}), "name_filled": False}
            reply.ending = {**(reply.ending or {}), "filled": [], "tool_calls": [call]}
        self.spoil(reply, body)
        return reply

    def spoil(self, reply: Reply, body: Mapping[str, Any]) -> None:
        """Where a fault is planted."""

    @staticmethod
    def dumps(document: Any) -> str:
        return json.dumps(document, ensure_ascii=False, separators=(",", ":"))

    def _tool(self, body: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
        tools = {item["function"]["name"]: item["function"]["parameters"] for item in body["tools"]}
        choice = body["tool_choice"]
        name = next(iter(tools)) if choice == "required" else choice["function"]["name"]
        return name, tools[name]

    def _prose(self, body: Mapping[str, Any]) -> Reply:
        words = [f"word{i} " for i in range(min(6, body["max_tokens"]))]
        finish = "stop" if len(words) < body["max_tokens"] else "length"
        return Reply(content="".join(words), finish=finish, tokens=len(words))

    def _document(self, schema: Mapping[str, Any], budget: int, stop: str | None) -> Reply:
        full, filler = example(schema, 0), example(schema, 1)
        text = self.dumps(full)
        tokens = -(-len(text) // TOKEN) + 1  # with the end
        end = min(len(text), budget * TOKEN)
        reply = Reply(tokens=min(budget, tokens), cut=budget < tokens, finish="length")
        why = "length"
        if stop is not None and stop in text[:end]:
            end, why, reply.cut, reply.finish = text.index(stop), "stop", True, "stop"
        reply.written, reply.document = text[:end], full
        filled: list[str] = []
        if reply.cut:
            reply.document, filled = self._filled(full, filler, end)
        reason = why if reply.cut else None
        reply.ending = {"truncated": reply.cut, "reason": reason, "filled": filled}
        return reply

    def _filled(self, full: Any, filler: Any, end: int) -> tuple[Any, list[str]]:
        """What stands whole in the first ``end`` characters, the member that was begun, and filler."""
        if end == 0:
            return None, []
        pairs = list(full.items()) if isinstance(full, dict) else list(enumerate(full))
        spare = dict(filler.items()) if isinstance(filler, dict) else dict(enumerate(filler))
        values, filled, at = [], [], 1
        for name, value in pairs:
            begin = at + (len(self.dumps(name)) + 1 if isinstance(full, dict) else 0)
            at = begin + len(self.dumps(value)) + 1
            if end < at - 1 or (end == at - 1 and not isinstance(value, (dict, list, str))):
                if end > begin:
                    filled += self._unfinished(full, f"/{name}", end)
                else:
                    filled += [f"/{name}{at}" for at, _ in pointers(spare[name])]
            values.append((name, value if end > begin else spare[name]))
        return (dict(values) if isinstance(full, dict) else [value for _, value in values]), filled

    def _unfinished(self, full: Any, place: str, end: int) -> list[str]:
        """What of a member that was begun had not ended."""
        found = dict(pointers(full))
        mine = [(at, last) for at, last in places(self.dumps(full)) if f"{at}/".startswith(f"{place}/")]
        return [
            at for at, last in mine if last > end and not (isinstance(found[at], (dict, list)) and found[at])
        ]


# ---- One fault each --------------------------------------------------------------------------------


def _set_text(reply: Reply, text: str) -> None:
    if reply.calls:
        reply.calls = [(reply.calls[0][0], text)]
    else:
        reply.content = text


def endings(reply: Reply) -> list[dict[str, Any]]:
    """What is said of the choice's ending, and of each call's."""
    return [] if reply.ending is None else [reply.ending, *reply.ending.get("tool_calls", ())]


class Unparseable(Honest):
    """The document stays as it was cut."""

    def spoil(self, reply: Reply, body: Mapping[str, Any]) -> None:
        if reply.cut:
            _set_text(reply, reply.written)


class NoCall(Honest):
    def spoil(self, reply: Reply, body: Mapping[str, Any]) -> None:
        if reply.cut:
            reply.calls, reply.content = [], ""


class Leak(Honest):
    """The call is there, and its protocol stands beside it."""

    def spoil(self, reply: Reply, body: Mapping[str, Any]) -> None:
        if reply.cut and reply.calls:
            reply.content = "<tool_call>" + reply.written


class WrongFinish(Honest):
    """A cut looks like an ending."""

    def spoil(self, reply: Reply, body: Mapping[str, Any]) -> None:
        if reply.finish == "length":
            reply.finish = "tool_calls" if reply.calls else "stop"


class ControlTruncated(Honest):
    """Nothing ever completes."""

    def spoil(self, reply: Reply, body: Mapping[str, Any]) -> None:
        reply.finish = "length"


class InventsBeforeBegin(Honest):
    """A document that had not begun is made up."""

    def spoil(self, reply: Reply, body: Mapping[str, Any]) -> None:
        if not reply.written and not reply.calls:
            reply.content = self.dumps(example(body["response_format"]["json_schema"]["schema"], 1))


class InventsOfNoTokens(Honest):
    def spoil(self, reply: Reply, body: Mapping[str, Any]) -> None:
        if body["max_tokens"] == 1:
            reply.tokens = 0


class WrongTool(Honest):
    def spoil(self, reply: Reply, body: Mapping[str, Any]) -> None:
        if reply.cut and reply.calls:
            reply.calls = [("other", reply.calls[0][1])]


class TwoCalls(Honest):
    def spoil(self, reply: Reply, body: Mapping[str, Any]) -> None:
        if reply.cut:
            reply.calls *= 2


class BreaksSchema(Honest):
    """What is filled in does not conform."""

    def spoil(self, reply: Reply, body: Mapping[str, Any]) -> None:
        if reply.cut and isinstance(reply.document, dict):
            _set_text(reply, self.dumps({**reply.document, "more": 1}))


class BreaksFormat(Honest):
    """A date that is none, where the schema asserts a format."""

    def spoil(self, reply: Reply, body: Mapping[str, Any]) -> None:
        if reply.cut and reply.document is not None:
            _set_text(reply, self.dumps(reply.document).replace("0001-01-01", "0001-02-30"))


class RepeatsKeys(Honest):
    def spoil(self, reply: Reply, body: Mapping[str, Any]) -> None:
        if reply.cut and isinstance(reply.document, dict):
            text = self.dumps(reply.document)
            _set_text(reply, "{" + text[1:-1] + "," + text[1:])


class Status500(Honest):
    def spoil(self, reply: Reply, body: Mapping[str, Any]) -> None:
        if body["max_tokens"] == 3:
            reply.status = 500


class StreamDiffers(Honest):
    """Cut streams say something else than cut answers, legally."""

    def spoil(self, reply: Reply, body: Mapping[str, Any]) -> None:
        if reply.cut and body.get("stream") and isinstance(reply.document, dict):
            _set_text(reply, self.dumps(reply.document).replace('"celsius"', '"fahrenheit"'))


class OneBudgetStreamed(Honest):
    """One budget of one case, in one mode."""

    def spoil(self, reply: Reply, body: Mapping[str, Any]) -> None:
        if body["max_tokens"] == 7 and body.get("stream") and reply.calls:
            _set_text(reply, reply.written)


class Hangs(Honest):
    def spoil(self, reply: Reply, body: Mapping[str, Any]) -> None:
        if body["max_tokens"] <= 8:
            time.sleep(0.6)


class IgnoresBudget(Honest):
    """Every answer is whole, whatever was asked for."""

    def _document(self, schema: Mapping[str, Any], budget: int, stop: str | None) -> Reply:
        return super()._document(schema, 1 << 12, stop)


class ClaimsOneToken(IgnoresBudget):
    """And it says that this took one token."""

    def spoil(self, reply: Reply, body: Mapping[str, Any]) -> None:
        reply.tokens = 1


class CountsNothing(Honest):
    def spoil(self, reply: Reply, body: Mapping[str, Any]) -> None:
        reply.tokens = None


class EndsEarly(Honest):
    """What the budget cuts is whole all the same, and the tokens are those of the budget."""

    def spoil(self, reply: Reply, body: Mapping[str, Any]) -> None:
        if reply.cut and reply.calls and body["max_tokens"] > 1:
            _set_text(reply, self.dumps(example(body["tools"][0]["function"]["parameters"], 0)))
            reply.finish = "tool_calls"


class WrongReason(Honest):
    def spoil(self, reply: Reply, body: Mapping[str, Any]) -> None:
        for ending in endings(reply):
            ending["reason"] = "deadline" if reply.cut else None


class DisownsItsText(Honest):
    """Where a stop string cuts, values that it had written are said to be filled in."""

    def spoil(self, reply: Reply, body: Mapping[str, Any]) -> None:
        if body.get("stop") and reply.document is not None and reply.ending is not None:
            inner = [at for at, _ in pointers(reply.document) if at]
            reply.ending["filled"] = inner


class HidesNothing(Honest):
    """Where nothing was delivered, it does not say that it was cut."""

    def spoil(self, reply: Reply, body: Mapping[str, Any]) -> None:
        if reply.cut and reply.document is None and reply.ending is not None:
            reply.ending["truncated"] = False


class NoFinish(Honest):
    def spoil(self, reply: Reply, body: Mapping[str, Any]) -> None:
        reply.finish = ""


class CutIsACall(Honest):
    """A call that was cut ends as one that was not."""

    def spoil(self, reply: Reply, body: Mapping[str, Any]) -> None:
        if reply.cut and reply.calls:
            reply.finish = "tool_calls"


class SaysNoWord(Honest):
    """Streams of text are empty."""

    def _prose(self, body: Mapping[str, Any]) -> Reply:
        return Reply(finish="stop", tokens=1)


class HangsUp(Honest):
    """It takes requests and closes the connection."""


class Endless(Honest):
    """A stream without a length that does not end."""


class TricklesHeaders(Honest):
    """Its headers arrive for ever, each byte in time."""


class Trickles(Honest):
    """Bytes arrive for ever, each in time."""


class Short(Honest):
    """Fewer bytes than were announced."""

    def spoil(self, reply: Reply, body: Mapping[str, Any]) -> None:
        reply.length = 1 << 20 if body["max_tokens"] == 2 else None


class NotJSON(Honest):
    def spoil(self, reply: Reply, body: Mapping[str, Any]) -> None:
        reply.raw = b"<html>fine</html>" if body["max_tokens"] == 2 else None


class NoDone(Honest):
    """Streams end without [DONE]."""


class LosesPrefix(Honest):
    """After a stop string the document begins anew."""

    def spoil(self, reply: Reply, body: Mapping[str, Any]) -> None:
        if body.get("stop") and reply.written and not reply.calls:
            schema = body["response_format"]["json_schema"]["schema"]
            _set_text(reply, " " + self.dumps(example(schema, 1)))


class SaysNothing(Honest):
    """Cut answers do not say what was filled in."""

    def spoil(self, reply: Reply, body: Mapping[str, Any]) -> None:
        if reply.cut:
            reply.ending = None


class HidesFilled(Honest):
    def spoil(self, reply: Reply, body: Mapping[str, Any]) -> None:
        for ending in endings(reply):
            ending["filled"] = []


class NamesGhosts(Honest):
    def spoil(self, reply: Reply, body: Mapping[str, Any]) -> None:
        for ending in endings(reply):
            if reply.cut:
                ending["filled"] = [*ending["filled"], "/ghost"]


class FillsTheWhole(Honest):
    """An answer that nothing cut is said to be filled in."""

    def spoil(self, reply: Reply, body: Mapping[str, Any]) -> None:
        for ending in endings(reply):
            if not reply.cut:
                ending["filled"] = [""]


class ClaimsTooMuch(Honest):
    """The whole document is said to be filled in, its values are not."""

    def spoil(self, reply: Reply, body: Mapping[str, Any]) -> None:
        for ending in endings(reply):
            if reply.cut:
                ending["filled"] = [""]


class PicksATool(Honest):
    """Where it is cut it calls another tool that may be called, and does not say that it chose."""

    def spoil(self, reply: Reply, body: Mapping[str, Any]) -> None:
        tools = body.get("tools") or []
        if reply.cut and len(tools) > 1 and body["tool_choice"] == "required":
            function = tools[1]["function"]
            document = example(function["parameters"], 1)
            reply.calls = [(function["name"], self.dumps(document))]
            endings(reply)[1]["filled"] = [at for at, _ in pointers(document)]


class DeniesTheCut(Honest):
    def spoil(self, reply: Reply, body: Mapping[str, Any]) -> None:
        for ending in endings(reply):
            ending["truncated"] = False


class Silent(Honest):
    """Honest, as other servers are: it says nothing of its own about endings."""

    def spoil(self, reply: Reply, body: Mapping[str, Any]) -> None:
        reply.ending = None


class Dies(Honest):
    """The process ends in the middle of an answer."""

    def spoil(self, reply: Reply, body: Mapping[str, Any]) -> None:
        if body["max_tokens"] == 2:
            os._exit(7)


# ---- HTTP ------------------------------------------------------------------------------------------


def whole(reply: Reply) -> dict[str, Any]:
    """A chat completion."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.content or None}
    if reply.calls:
        message["tool_calls"] = [
            {"id": f"call_{i}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for i, (name, arguments) in enumerate(reply.calls)
        ]
    choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": reply.finish or None}
    if reply.ending is not None:
        choice["gaugeblock"] = reply.ending
    return {"object": "chat.completion", "choices": [choice], "usage": {"completion_tokens": reply.tokens}}


def chunks(reply: Reply) -> Iterator[dict[str, Any]]:
    """The same as a stream, in pieces of three characters."""

    def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": 0, "delta": delta, "finish_reason": finish}
        if finish is not None and reply.ending is not None:
            choice["gaugeblock"] = reply.ending
        return {"object": "chat.completion.chunk", "choices": [choice]}

    yield chunk({"role": "assistant", "content": None})
    for i in range(0, len(reply.content), 3):
        yield chunk({"content": reply.content[i : i + 3]})
    for number, (name, arguments) in enumerate(reply.calls):
        call = {"index": number, "id": f"call_{number}", "type": "function"}
        yield chunk({"tool_calls": [{**call, "function": {"name": name, "arguments": ""}}]})
        for i in range(0, len(arguments), 3):
            piece = {"arguments": arguments[i : i + 3]}
            yield chunk({"tool_calls": [{"index": number, "function": piece}]})
    yield chunk({}, reply.finish or None)
    yield {"choices": [], "usage": {"completion_tokens": reply.tokens}}


class Handler(BaseHTTPRequestHandler):
    """POST only; ``server.model`` answers."""

    model: Honest

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        reply = self.model.reply(body)
        stream = bool(body.get("stream")) and reply.status == 200
        data = reply.raw
        if data is None and stream:
            lines = [f"data: {json.dumps(item, ensure_ascii=False)}\n\n" for item in chunks(reply)]
            end = "" if isinstance(self.model, NoDone) else "data: [DONE]\n\n"
            data = "".join([*lines, end]).encode()
        elif data is None:
            error = {"error": {"message": "broken", "code": "internal_error"}}
            data = json.dumps(whole(reply) if reply.status == 200 else error).encode()
        if isinstance(self.model, HangsUp):
            self.close_connection = True
            return
        if isinstance(self.model, TricklesHeaders):
            self._trickle(b"HTTP/1.1 200 OK\r\nX-Long: " + 2000 * b"a")
        self.send_response(reply.status)
        self.send_header("Content-Type", "text/event-stream" if stream else "application/json")
        if not isinstance(self.model, Endless):
            self.send_header("Content-Length", str(reply.length or len(data)))
        self.end_headers()
        self._send(data)

    def _send(self, data: bytes) -> None:
        try:
            if isinstance(self.model, (Trickles, Endless)):
                self._trickle(data)
            self.wfile.write(data)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _trickle(self, data: bytes) -> None:
        for i in range(len(data)):
            self.wfile.write(data[i : i + 1])
            self.wfile.flush()
            time.sleep(0.05)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


@contextmanager
def running(model: type[Honest]) -> Iterator[str]:
    """The URL of such a server in a thread of this process."""
    handler = type("Planted", (Handler,), {"model": model()})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def command(model: str) -> list[str]:
    """Such a server as a process."""
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); from tests.certify.fake_endpoint import main; main()"
    )
    return [sys.executable, "-c", code, model]


def main() -> None:
    """``… MODEL``: print the URL, serve until terminated."""
    with running(globals()[sys.argv[1]]) as url:
        print("a line that is no JSON", file=sys.stderr)
        print(json.dumps({"event": "ready", "url": url}), file=sys.stderr, flush=True)
        threading.Event().wait()
