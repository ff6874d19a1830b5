"""Looks at the choices of a constrained generation while it runs, and makes records of them.

Beside the document runs a matcher that goes byte by byte and asks at each where an element with finitely
many alternatives begins. At the first token that the model chooses inside one, a best-first search follows
what the constraint allows, in tokens, on forked sequences: nothing of the generation's own is touched.
"""

from __future__ import annotations

import heapq
import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from engine import native
from engine.errors import UsageError
from engine.evidence import MAX_RECORDED, ROUND, Alternative, Choice, Choices, What
from engine.script import Document, Place

if TYPE_CHECKING:
    from engine.constrain.native import Alternatives
    from engine.session import Session

_ELEMENT = re.compile(
    rb'[ \t\n\r]*+(?:,[ \t\n\r]*+)?(?:([}\]])|("(?:[^"\\]|\\.)*+")|(true|false|null)|(-?[0-9][0-9.eE+-]*+))',
    re.DOTALL,
)
_BODY = re.compile(rb'[ \t\n\r,]*+"((?:[^"\\]|\\u[0-9A-Fa-f]{4}|\\[^u])*+)', re.DOTALL)
Key = tuple[str, Any]  # what tells alternatives apart: a kind and a value
End = tuple[Key, int]  # the alternative that was written, and the bytes that it took


def _key(text: str) -> Key:
    """Of a JSON text without its comma."""
    if text in ("}", "]"):
        return "end", None
    if text[0] == '"':
        return "string", json.loads(text)
    if text in ("true", "false", "null"):
        return "literal", text
    return "number", Decimal(text)


class Element:
    """An element with finitely many alternatives, and how far bytes have come in it.

    ``texts`` are the alternatives' own texts by key.
    """

    def __init__(self, found: Alternatives, pointer: str) -> None:
        self.kind: What = found.kind
        self.pointer = pointer
        self.texts: dict[Key, str] = {}
        for text in found.texts:
            bare = text.lstrip(",")
            self.texts.setdefault(_key(bare), bare)

    def value(self, key: Key) -> Any:
        """The alternative's value as JSON has it; None for the end of a container."""
        return None if key[0] == "end" else json.loads(self.texts[key])

    def end(self, data: bytes, final: bool) -> End | None:
        """The alternative that the bytes hold; a number only with what follows it, or where all ends."""
        match = _ELEMENT.match(data)
        if match is None:
            return None
        text = match[match.lastindex or 0].decode()
        if match[4] and match.end() == len(data) and not final:
            return None
        return _key(text), match.end()

    def possible(self, key: Key, data: bytes) -> bool:
        """Whether the bytes may begin this alternative."""
        bare = data.lstrip(b" \t\n\r")
        comma = bare.startswith(b",")
        bare = bare.lstrip(b" \t\n\r,")
        if not bare:
            return not (comma and key[0] == "end")
        if key[0] == "string":
            body = _BODY.match(data)
            return body is not None and str(key[1]).encode().startswith(_decoded(body[1]))
        text = self.texts[key].encode()
        other_spelling = key[0] == "number" and (bare.startswith(text + b".") or b"e" in bare.lower())
        return text.startswith(bare) or other_spelling


class Words(Element):
    """A whole text that is one of a list, each perhaps with a fixed ``suffix`` that is not part of it."""

    def __init__(self, found: Alternatives, suffix: str, kind: What) -> None:
        self.kind = kind
        self.pointer = ""
        names = sorted({text.removesuffix(suffix) for text in found.texts})
        self.texts = {("text", name): name for name in names}
        self._whole = {name.encode(): name for name in names}
        marked = [(name + suffix[:1]).encode() for name in names]
        self._closed = {
            mark: name
            for mark, name in zip(marked, names, strict=True)
            if not any(other != mark and other.startswith(mark) for other in marked)
        }
        self._sizes = sorted({len(mark) for mark in self._closed})

    def value(self, key: Key) -> Any:
        return self.texts[key]

    def end(self, data: bytes, final: bool) -> End | None:
        for size in self._sizes:
            if size <= len(data) and data[:size] in self._closed:
                return ("text", self._closed[data[:size]]), size
        if final and data in self._whole:
            return ("text", self._whole[data]), len(data)
        return None

    def possible(self, key: Key, data: bytes) -> bool:
        return self.texts[key].encode().startswith(data)


def _decoded(body: bytes) -> bytes:
    """The beginning of a JSON string's body, decoded; half a character or a lone surrogate is left out."""
    text = json.loads(b'"' + body.decode(errors="ignore").encode() + b'"', strict=False)
    return str(text).encode(errors="ignore")


@dataclass
class _Found:
    """What a search resolved: mass by alternative."""

    masses: dict[Key, list[float]] = field(default_factory=dict)
    unresolved: float = 0.0
    evaluations: int = 0


@dataclass(order=True)
class _Prefix:
    """Tokens that lead into the element, not to its end; ordered by mass, heaviest first."""

    rank: float
    order: int
    path: tuple[int, ...] = field(compare=False)
    data: bytes = field(compare=False)


class _Search:
    """One best-first search. ``data`` are the element's bytes that stand already."""

    def __init__(self, place: Place, element: Element, data: bytes) -> None:
        self.found = _Found()
        self._place = place
        self._element = element
        self._data = data
        self._heap: list[_Prefix] = []
        self._stuck: list[float] = []
        self._order = 0

    def run(self, session: Session, seq: int, row: native.Floats, choices: Choices) -> _Found:
        """Follow prefixes, ``ROUND`` at a time, until nothing worth it or no evaluation is left."""
        room = session.context_tokens - session.length(seq)
        self._spread(_Prefix(-1.0, 0, (), self._data), row, room)
        while self._heap and self.found.evaluations < choices.evaluations:
            if self._unresolved() <= choices.tolerance * self._resolved():
                break
            count = min(ROUND, choices.evaluations - self.found.evaluations, len(self._heap))
            prefixes = [heapq.heappop(self._heap) for _ in range(count)]
            self.found.evaluations += count
            rows = _evaluate(session, seq, [prefix.path for prefix in prefixes])
            for prefix, logits in zip(prefixes, rows, strict=True):
                self._spread(prefix, logits, room)
        self.found.unresolved = self._unresolved()
        return self.found

    def _unresolved(self) -> float:
        return math.fsum([*self._stuck, *(-prefix.rank for prefix in self._heap)])

    def _resolved(self) -> float:
        return math.fsum(mass for masses in self.found.masses.values() for mass in masses)

    def _spread(self, prefix: _Prefix, row: native.Floats, room: int) -> None:
        """Share a prefix's mass out among the tokens that may follow it."""
        place, values = self._place, native.log_softmax(row)
        mask = place.document.beyond(place.kit, prefix.data[len(self._data) :])
        bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
        for token in np.flatnonzero(bits).tolist():
            mass = -prefix.rank * math.exp(float(values[token]))
            last = place.document.last(place.kit, token)
            data = prefix.data if last else prefix.data + place.kit.vocab.token_bytes(token)
            end = self._element.end(data, last)
            if end is not None:
                self.found.masses.setdefault(end[0], []).append(mass)
            elif len(prefix.path) >= room:
                self._stuck.append(mass)
            else:
                self._order += 1
                heapq.heappush(self._heap, _Prefix(-mass, self._order, (*prefix.path, token), data))


def spare_sequences(session: Session, seq: int) -> list[int]:
    """Sequences that hold nothing, at most one for each prefix of a round."""
    ids = range(session.options.sequences)
    spare = [other for other in ids if other != seq and session.length(other) == 0]
    if not spare:
        raise UsageError(
            "evidence of choice needs an empty sequence beside the one that generates: session(sequences=2)"
        )
    return spare[-ROUND:]


def _evaluate(session: Session, seq: int, paths: list[tuple[int, ...]]) -> list[native.Floats]:
    """The logits behind each path of tokens that may follow a sequence: float32 [vocab] each."""
    spare = spare_sequences(session, seq)
    rows: list[native.Floats] = []
    first = session.length(seq)
    for at in range(0, len(paths), len(spare)):
        some = paths[at : at + len(spare)]
        used = spare[: len(some)]
        try:
            entries: list[native.Entry] = []
            for other, path in zip(used, some, strict=True):
                session.fork(seq, other)
                wants = ["none"] * (len(path) - 1) + ["logits"]
                entries += [
                    native.Entry(token, first + index, other, want)
                    for index, (token, want) in enumerate(zip(path, wants, strict=True))
                ]
            rows += list(session.step(entries))
        finally:
            for other in used:
                session.truncate(0, other)
    return rows


class Witness:
    """Follows one generation: ``look`` before a token is chosen, ``follow`` after one was taken.

    ``done`` are the records of the elements that have ended.
    """

    def __init__(
        self, session: Session, seq: int, choices: Choices, place: Callable[[], Place | None]
    ) -> None:
        spare_sequences(session, seq)
        self.done: list[Choice] = []
        self._session = session
        self._seq = seq
        self._choices = choices
        self._where = place
        self._place: Place | None = None
        self._element: Element | None = None
        self._record: Choice | None = None
        self._at = 0  # bytes of the document in front of the element, or read in search of one

    def look(self, row: native.Floats, index: int) -> None:
        """Make a record where the token that is about to be chosen decides between alternatives.

        ``row`` are its logits, ``index`` its number among those generated.
        """
        self.follow()
        place, element = self._place, self._element
        if place is None or element is None or self._record is not None:
            return
        data = self._data()
        left = [key for key in element.texts if element.possible(key, data)]
        if len(left) > 1:
            search = _Search(place, element, data)
            found = search.run(self._session, self._seq, row, self._choices)
            self._record = _record(element, left, found, index, place.call)

    def follow(self, *, stopped: bool = False) -> None:
        """Go through what was read since. ``stopped``: the model ended the document."""
        place = self._where()
        known = self._place
        if known is not None:
            left = place is None or place.document is not known.document
            self._through(final=stopped or left)
            if left:
                self.cut()
        if place is not None and (known is None or place.document is not known.document):
            self._place, self._at = place, 0
            self._matcher = place.document.origin.fork()
            self._through(final=stopped)

    def cut(self) -> None:
        """The document ends here: an element that is not written to its end has no choice."""
        if self._record is not None:
            self.done.append(self._record)
        self._record = self._element = self._place = None

    def take(self) -> tuple[Choice, ...]:
        """Take the records that are done."""
        done, self.done = tuple(self.done), []
        return done

    def _data(self) -> bytes:
        return b"" if self._place is None else bytes(self._place.document.read[self._at :])

    def _through(self, *, final: bool) -> None:
        while self._find() is not None:
            element = self._element
            data = self._data()
            end = None if element is None else element.end(data, final)
            if element is None or end is None:
                return
            if self._record is not None:
                self.done.append(replace(self._record, chosen=element.texts.get(end[0])))
            self._record = self._element = None
            self._matcher.commit_bytes(data[: end[1]])
            self._at += end[1]

    def _find(self) -> Element | None:
        """Read on, byte by byte, to where an element begins."""
        if self._place is None or self._element is not None:
            return self._element
        read = self._place.document.read
        while (found := self._matcher.alternatives()) is None:
            if self._at >= len(read):
                return None
            self._matcher.commit_bytes(bytes(read[self._at : self._at + 1]))
            self._at += 1
        self._element = self._begun(self._place.document, found)
        return self._element

    def _begun(self, document: Document, found: Alternatives) -> Element:
        if found.kind == "text":
            return Words(found, document.suffix, "name" if document.name else "text")
        return Element(found, self._pointer(found))

    def _pointer(self, found: Alternatives) -> str:
        """Of the value, or of the object whose key it is."""
        first = next((text for text in found.texts if text not in ("}", "]")), None)
        if found.kind == "key" or first is None:
            return self._matcher.pointer()
        probe = self._matcher.fork()
        probe.commit_bytes(first.encode()[: 2 if first.startswith(",") else 1])
        return probe.pointer()


def _record(element: Element, left: list[Key], found: _Found, index: int, call: int | None) -> Choice:
    """The record of a search, its alternatives best first, equal ones by text."""
    masses = {key: math.fsum(parts) for key, parts in found.masses.items()}
    coverage = math.fsum(mass for parts in found.masses.values() for mass in parts)
    rows = sorted(
        ((masses.get(key, 0.0), element.texts[key], key) for key in left), key=lambda row: (-row[0], row[1])
    )
    alternatives = tuple(
        Alternative(
            element.value(key),
            text,
            mass / coverage if coverage > 0 else None,
            math.log(mass) if mass > 0 else None,
        )
        for mass, text, key in rows[:MAX_RECORDED]
    )
    return Choice(
        element.kind,
        element.pointer,
        index,
        alternatives,
        len(rows),
        None,
        coverage,
        found.unresolved,
        found.evaluations,
        call,
    )
