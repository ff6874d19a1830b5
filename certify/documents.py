"""Judging one JSON document: strict parsing, a real validator, and which of its values it vouches for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jsonschema

from engine.canonical import StrictJSONError, loads

MAX_BYTES = 1 << 20


@dataclass(frozen=True)
class Breach:
    """One rule that an answer breaks: the rule's name, and a sentence for people."""

    rule: str
    detail: str


def parse(text: str) -> tuple[Any, Breach | None]:
    """The document, or why it is none: syntax, duplicate keys, NaN, lone surrogates."""
    try:
        return loads(text.encode(), max_bytes=MAX_BYTES, limit=1 << 64), None
    except (StrictJSONError, UnicodeEncodeError) as error:
        return None, Breach("unparseable", f"{shown(text)}: {error}")


def violation(document: Any, schema: Any) -> Breach | None:
    """The first place where ``document`` breaks ``schema``, formats asserted."""
    validator = jsonschema.Draft202012Validator(schema, format_checker=formats())
    error = jsonschema.exceptions.best_match(validator.iter_errors(document))
    if error is None:
        return None
    place = pointer(error.absolute_path)
    return Breach("schema", f"{place or 'the root'}: {error.message[:160]}")


def formats() -> jsonschema.FormatChecker:
    """The validator's own checker of formats."""
    checker: jsonschema.FormatChecker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    return checker


def shown(text: str) -> str:
    """The end of a text, where a cut shows, on one line."""
    tail = json.dumps(text[-60:], ensure_ascii=False)
    return tail if len(text) <= 60 else f"…{tail}"


# ---- JSON pointers -----------------------------------------------------------------------------


def pointer(path: Sequence[str | int]) -> str:
    """RFC 6901."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def values(document: Any, at: str = "") -> Iterator[tuple[str, Any]]:
    """Every value with its pointer, the root first."""
    yield at, document
    parts: Iterator[tuple[str | int, Any]] = iter(())
    if isinstance(document, Mapping):
        parts = iter(document.items())
    elif isinstance(document, list):
        parts = iter(enumerate(document))
    for name, value in parts:
        yield from values(value, at + pointer([name]))


_SPACE = re.compile(r"[ \t\r\n]*")
_scan = json.JSONDecoder().raw_decode


def places(text: str) -> Iterator[tuple[str, int]]:
    """Every value of a JSON text by its pointer, with the place where it is certain to have ended.

    That is behind its last character; for a number one further, which could have been a digit.
    """
    yield from _places(text, _SPACE.match(text).end(), "")  # type: ignore[union-attr]


def _places(text: str, begin: int, at: str) -> Iterator[tuple[str, int]]:
    value, end = _scan(text, begin)
    yield at, end + (isinstance(value, (int, float)) and not isinstance(value, bool))
    for number, name in enumerate(value if _is_container(value) else ()):
        begin = _after(text, begin)  # behind the bracket, or the comma
        if isinstance(value, Mapping):
            begin = _after(text, _scan(text, begin)[1])  # behind the colon
        yield from _places(text, begin, at + pointer([name if isinstance(value, Mapping) else number]))
        begin = _SPACE.match(text, _scan(text, begin)[1]).end()  # type: ignore[union-attr]


def _after(text: str, place: int) -> int:
    """Behind one mark and the white space around it."""
    mark = _SPACE.match(text, place).end()  # type: ignore[union-attr]
    return _SPACE.match(text, mark + 1).end()  # type: ignore[union-attr]


def _is_container(value: Any) -> bool:
    return isinstance(value, (Mapping, list))


class Written:
    """The values of a document beside ``known``, those of what the model writes when nothing cuts it.

    A greedy model that is cut has written the beginning of that. So every value that is not said to be filled
    must stand there, equal; and nothing inside a container that was filled in is the model's.
    """

    def __init__(self, document: Any, known: Mapping[str, Any]) -> None:
        self.there = dict(values(document))
        self._parent = {place: place.rpartition("/")[0] for place in self.there}
        self._strange = {place for place, value in self.there.items() if not _stands(place, value, known)}

    def breaches(self, filled: Any, *, spare: str | None = None) -> Iterator[Breach]:
        """What is untrue about ``filled``, pointers of what the model is said not to have written.

        The value at ``spare`` is not looked at.
        """
        if not isinstance(filled, list) or not all(isinstance(item, str) for item in filled):
            yield Breach("filled", f"filled is {json.dumps(filled)[:80]}, not a list of JSON pointers")
            return
        named = set(filled)
        for item in filled:
            if item not in self.there:
                yield Breach("filled", f"filled names {item!r}, and the document has no such value")
        if len(named) < len(filled):
            yield Breach("filled", "filled names a value twice")
        ours = self.there.keys() - named - {spare}
        if named.isdisjoint([self._parent[place] for place in ours]) and self._strange.isdisjoint(ours):
            return
        for place, value in self.there.items():
            if place not in ours:
                continue
            shown = f"{place or 'the root'} is {json.dumps(value, ensure_ascii=False)[:60]}"
            if any(parent in named for parent in _parents(place)):
                yield Breach(
                    "filled", f"{shown}, inside a value that was filled in, and filled does not name it"
                )
            elif place in self._strange:
                yield Breach("filled", f"{shown}, which the model did not write, and filled does not say so")


def filled_breaches(filled: Any, document: Any, whole: Any) -> Iterator[Breach]:
    """What is untrue about ``filled``, where the model writes ``whole`` when nothing cuts it."""
    return Written(document, dict(values(whole))).breaches(filled)


def _stands(place: str, value: Any, known: Mapping[str, Any]) -> bool:
    """Whether a value stands among those known: of a container its kind is enough."""
    if _is_container(value) and type(value) is type(known.get(place)):
        return True
    return place in known and _equal(value, known[place])


def _parents(place: str) -> Iterator[str]:
    """The containers around a value, the innermost first."""
    while place:
        place = place.rpartition("/")[0]
        yield place


def _equal(one: Any, other: Any) -> bool:
    """JSON's equality: 1 is 1.0, and True is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return bool(one == other)
