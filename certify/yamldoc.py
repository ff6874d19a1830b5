"""YAML and JSON documents as plain data with the line of every key and value.

YAML is read with the core schema of YAML 1.2: ``no`` is a string, ``2026-09-30`` and ``12:30:45``
too. Tags, anchors, aliases, merge keys, directives, duplicate keys, keys that are not strings,
several documents, NaN and infinities are refused with their line. Nothing is ever constructed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml import events

from engine import canonical

MAX_BYTES = 1 << 20
MAX_DEPTH = 64
Path = tuple[str | int, ...]

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?[0-9]+")
_RADIX = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_SPECIAL = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


class DocumentError(Exception):
    """The document cannot be read; ``line`` counts from 1, or is None."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


@dataclass
class Document:
    """Plain data, and the line of each key (else value) by its path."""

    value: Any
    lines: dict[Path, int] = field(default_factory=dict)

    def line(self, path: Path) -> int | None:
        """Line of ``path`` or of the nearest enclosing value."""
        for length in range(len(path), -1, -1):
            if path[:length] in self.lines:
                return self.lines[path[:length]]
        return None


def read(data: bytes, *, json: bool) -> Document:
    """Read a document from its bytes; raises DocumentError."""
    if len(data) > MAX_BYTES:
        raise DocumentError(f"larger than {MAX_BYTES} bytes")
    if json:
        return _read_json(data)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise DocumentError(f"invalid UTF-8 at byte {error.start}", line) from None
    try:
        return _Builder(yaml.parse(text, Loader=yaml.SafeLoader)).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = error.problem or error.context or "malformed"
        raise DocumentError(f"not YAML: {problem}", mark.line + 1 if mark else None) from None
    except yaml.YAMLError as error:  # a ReaderError: characters that YAML forbids
        raise DocumentError(f"not YAML: {str(error).splitlines()[0]}") from None


class _Builder:
    """Builds plain data from parser events, which arrive lazily and nest without recursion."""

    def __init__(self, stream: Iterator[events.Event]) -> None:
        self.stream = stream
        self.lines: dict[Path, int] = {}

    def document(self) -> Document:
        self._next()  # stream start
        start = self._next()
        if isinstance(start, events.StreamEndEvent):
            raise DocumentError("the document is empty", 1)
        if start.version or start.tags:
            raise DocumentError("YAML directives are not allowed", 1)
        value = self._value(self._next(), ())
        self._next()  # document end
        after = self._next()
        if not isinstance(after, events.StreamEndEvent):
            raise DocumentError("more than one document", _line(after))
        return Document(value, self.lines)

    def _next(self) -> Any:
        return next(self.stream)

    def _value(self, event: Any, path: Path) -> Any:
        self.lines.setdefault(path, _line(event))
        if isinstance(event, events.AliasEvent) or event.anchor is not None:
            raise DocumentError("anchors and aliases are not allowed", _line(event))
        if event.tag is not None:
            raise DocumentError(f"tags are not allowed: {event.tag}", _line(event))
        if isinstance(event, events.ScalarEvent):
            return _scalar(event)
        if len(path) >= MAX_DEPTH:
            raise DocumentError(f"nested deeper than {MAX_DEPTH} levels", _line(event))
        return self._mapping(path) if isinstance(event, events.MappingStartEvent) else self._sequence(path)

    def _mapping(self, path: Path) -> dict[str, Any]:
        result: dict[str, Any] = {}
        while not isinstance(event := self._next(), events.MappingEndEvent):
            key = self._key(event, path)
            if key in result:
                first = self.lines[(*path, key)]
                raise DocumentError(f"duplicate key '{key}', first on line {first}", _line(event))
            self.lines[(*path, key)] = _line(event)
            result[key] = self._value(self._next(), (*path, key))
        return result

    def _key(self, event: Any, path: Path) -> str:
        if isinstance(event, events.ScalarEvent) and event.value == "<<" and event.style is None:
            raise DocumentError("merge keys are not allowed", _line(event))
        key = self._value(event, (*path, ""))
        self.lines.pop((*path, ""), None)
        if not isinstance(key, str):
            raise DocumentError(f"the key {key!r} is not a string: quote it", _line(event))
        return key

    def _sequence(self, path: Path) -> list[Any]:
        result: list[Any] = []
        while not isinstance(event := self._next(), events.SequenceEndEvent):
            result.append(self._value(event, (*path, len(result))))
        return result


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


def _scalar(event: events.ScalarEvent) -> Any:
    """Resolve a scalar by the core schema; only plain ones can be anything but a string."""
    text = str(event.value)
    if event.style is not None:
        return text
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if _SPECIAL.fullmatch(text):
        raise DocumentError(f"{text} is not a number of JSON", _line(event))
    if not (_INT.fullmatch(text) or _RADIX.fullmatch(text) or _FLOAT.fullmatch(text)):
        return text
    number = _number(text)
    if number is None:
        raise DocumentError(f"{text[:24]} is not below 2^53: quote it if it is a text", _line(event))
    return number


def _number(text: str) -> int | float | None:
    """The number, or None where it is too large."""
    if len(text) > 400:
        return None
    value: int | float
    if _RADIX.fullmatch(text):
        value = int(text[2:], 8 if text[1] == "o" else 16)
    else:
        value = int(text) if _INT.fullmatch(text) else float(text)
    return value if abs(value) < canonical.LIMIT else None


# ---- JSON ------------------------------------------------------------------------------------

_JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},:]|[^\s\[\]{},:"]+')


def _read_json(data: bytes) -> Document:
    try:
        value = canonical.loads(data, max_bytes=MAX_BYTES, max_depth=MAX_DEPTH)
    except canonical.StrictJSONError as error:
        raise DocumentError(f"not strict JSON: {error}") from None
    document = Document(value)
    _locate(data.decode("utf-8"), document.lines)
    return document


def _locate(text: str, lines: dict[Path, int]) -> None:
    """Record the line of every key and value of a text that is valid JSON."""
    path: list[str | int] = []
    closers: list[str] = []
    last, line = 0, 1
    expect_key = False
    for match in _JSON_TOKEN.finditer(text):
        token = match.group()
        line += text.count("\n", last, match.start())
        last = match.start()
        if token in "]}":
            closers.pop()
            path.pop()
            expect_key = False
        elif token == ",":
            expect_key = closers[-1] == "}"
            if not expect_key:
                path[-1] = int(path[-1]) + 1
        elif token == ":":
            continue
        elif expect_key:
            path[-1] = canonical.loads(token.encode())
            lines[tuple(path)] = line
            expect_key = False
        else:
            lines.setdefault(tuple(path), line)
            if token in "[{":
                closers.append("]" if token == "[" else "}")
                path.append(0 if token == "[" else "")
                expect_key = token == "{"
