"""The rules that one answer must keep, cut or not. The ``truncation`` check applies them to every answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from certify.documents import Breach, filled_breaches, parse, places, violation
from certify.endpoints import Answer, Turn
from certify.truncation_cases import Case

RULES = {
    "no_answer": "an answer arrives, whole and in time",
    "http_status": "its status is 200",
    "malformed": "it is a chat completion, or a stream of chunks that ends with [DONE]",
    "no_document": "it holds the tool call, or the document",
    "call_count": "it holds one tool call, or none where the document is the content",
    "tool_name": "the call names a tool that may be called",
    "unparseable": "the document is strict JSON",
    "schema": "the document keeps its schema, formats included",
    "leak": "nothing stands beside a tool call",
    "finish": "finish_reason is length if and only if the budget cut it, stop where a stop string did",
    "prefix": "what was delivered before a stop string stands in the document byte for byte",
    "budget": "it says how many tokens it took, and they are no more than its budget",
    "invented": "a document that had not begun is not invented",
    "filled": "truncated, reason and filled name exactly what the model did not write",
    "stream_differs": "streamed and buffered say the same",
    "control": "the budget of the control completes",
}


# More characters a token, over a whole document, than any tokenizer gives.
DENSEST = 16


@dataclass(frozen=True)
class Cut:
    """How an answer was asked for: a budget in tokens, and a stop string with what stands before it."""

    budget: int
    stop: str | None = None
    before: str = ""


@dataclass(frozen=True)
class Whole:
    """What the subject writes where nothing cuts it: the document, its text, and its tokens."""

    turn: Turn
    text: str
    document: Any
    tokens: int


def text_of(case: Case, turn: Turn) -> str | None:
    """The document's text; None where there is none."""
    if case.tools is None:
        return turn.content or None
    return turn.calls[0].arguments if turn.calls else None


def breaches(
    case: Case, cut: Cut, answer: Answer, turn: Turn, whole: Whole | None, *, reports: bool
) -> list[Breach]:
    """Every rule that the answer breaks. ``reports``: the subject must say which values it filled in."""
    if answer.status is None or (answer.fault is not None and answer.status == 200):
        return [Breach("no_answer", str(answer.fault))]
    if answer.status != 200:
        return [Breach("http_status", f"{answer.status}: {turn.fault}")]
    if turn.fault is not None:
        return [Breach("malformed", turn.fault)]
    found = list(_counted(cut, turn))
    if cut.stop is not None and not cut.before:
        return [*found, *_not_begun(case, turn, reports=reports)]
    found += _shape(case, turn)
    text = text_of(case, turn)
    if text is None:
        return [*found, Breach("no_document", f"finish_reason {turn.finish}, content {turn.content[:60]!r}")]
    document, broken = parse(text)
    found += [broken] if broken else list(_content(case, turn, document))
    if turn.completion_tokens == 0:
        found.append(Breach("invented", "a document of 0 tokens"))
    if cut.stop is not None and not text.startswith(cut.before):
        found.append(Breach("prefix", f"{cut.before[-40:]!r} is not kept"))
    found += _finish(case, cut, turn, text, whole)
    if not broken and whole is not None:
        found += _said(case, cut, turn, document, whole, reports=reports)
    return found


def _counted(cut: Cut, turn: Turn) -> Iterator[Breach]:
    tokens = turn.completion_tokens
    if tokens is None:
        yield Breach("budget", "the usage has no completion_tokens")
    elif tokens > cut.budget:
        yield Breach("budget", f"{tokens} tokens of {cut.budget}")


def _not_begun(case: Case, turn: Turn, *, reports: bool) -> Iterator[Breach]:
    """The stop string is the document's first character: nothing of it was delivered."""
    said = ending_of(case, turn) or {}
    told = [said.get(name) for name in ("truncated", "reason", "filled")]
    if reports and told != [True, "stop", []]:
        yield Breach("filled", f"truncated, reason and filled are {told} where nothing was delivered")
    if turn.content or turn.calls:
        yield Breach("invented", f"{turn.content[:40]!r} follows from nothing")
    if turn.finish != "stop":
        yield Breach("finish", f"{turn.finish} after a stop string")


def _shape(case: Case, turn: Turn) -> Iterator[Breach]:
    if case.tools is None:
        if turn.calls:
            yield Breach("call_count", f"{len(turn.calls)} tool calls where none was offered")
        return
    if len(turn.calls) > 1:
        yield Breach("call_count", f"{len(turn.calls)} tool calls")
    if turn.content.strip():
        yield Breach("leak", f"content {turn.content[:60]!r}")


def _content(case: Case, turn: Turn, document: Any) -> Iterator[Breach]:
    name = turn.calls[0].name if turn.calls else None
    schema = case.schema_of(name)
    if schema is None:
        yield Breach("tool_name", f"{name!r} may not be called")
        return
    wrong = violation(document, schema)
    if wrong is not None:
        yield wrong


def _finish(case: Case, cut: Cut, turn: Turn, text: str, whole: Whole | None) -> Iterator[Breach]:
    """An answer with fewer tokens than the whole one was cut, save where only its end token was."""
    if cut.stop is not None:
        expected = {"stop"}
    elif whole is None:
        expected = {"length", case.finish}
    elif cut.budget >= whole.tokens:
        expected = {case.finish}
    else:
        all_there = text == whole.text and cut.budget >= whole.tokens - 1
        expected = {"length", case.finish} if all_there else {"length"}
    if turn.finish not in expected:
        yield Breach("finish", f"{turn.finish}, not {' or '.join(sorted(expected))}")


def _said(
    case: Case, cut: Cut, turn: Turn, document: Any, whole: Whole, *, reports: bool
) -> Iterator[Breach]:
    """What the answer says about its own ending."""
    extension = ending_of(case, turn)
    if extension is None:
        if reports:
            yield Breach("filled", "the answer does not say whether it was cut")
        return
    was_cut = turn.finish == "length" or cut.stop is not None
    if extension.get("truncated") is not was_cut:
        yield Breach("filled", f"truncated is {extension.get('truncated')}, finish_reason {turn.finish}")
    reason, why = extension.get("reason"), "stop" if cut.stop is not None else "length"
    if reason != (why if was_cut else None):
        yield Breach("filled", f"the reason is {reason!r}, finish_reason {turn.finish}")
    filled = extension.get("filled", [])
    if not was_cut and filled:
        yield Breach("filled", f"filled is {filled!r} although nothing was cut")
    if turn.calls and turn.calls[0].name != whole.turn.calls[0].name and not extension.get("name_filled"):
        yield Breach(
            "filled", f"the model did not choose {turn.calls[0].name!r}, and name_filled is not true"
        )
    yield from filled_breaches(filled, document, whole.document)
    for place, end in places(whole.text) if cut.stop is not None and isinstance(filled, list) else ():
        if place in filled and end <= len(cut.before):
            yield Breach("filled", f"filled names {place!r}, which the model had written to its end")


def ending_of(case: Case, turn: Turn) -> Mapping[str, Any] | None:
    """What the endpoint says of the document's ending: for a call in the choice's ``tool_calls``."""
    if turn.extension is None or case.tools is None:
        return turn.extension
    entries = turn.extension.get("tool_calls")
    mine = entries[0] if isinstance(entries, list) and entries else None
    return mine if isinstance(mine, Mapping) and mine.get("index") == 0 else None


def whole_of(case: Case, answer: Answer, turn: Turn, budget: int) -> tuple[Whole | None, list[Breach]]:
    """The uncut document, where the control is one."""
    found = breaches(case, Cut(budget), answer, turn, None, reports=False)
    text = text_of(case, turn)
    if turn.fault is None and turn.finish != case.finish:
        found.append(Breach("control", f"finish_reason {turn.finish} within {budget} tokens"))
    if turn.completion_tokens and text is not None and len(text) > DENSEST * turn.completion_tokens:
        found.append(Breach("budget", f"{len(text)} characters of {turn.completion_tokens} tokens"))
    if found or text is None:
        return None, found
    return Whole(turn, text, parse(text)[0], turn.completion_tokens or budget), []
