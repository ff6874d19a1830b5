"""A slow, plain reading of programs of nodes, for small documents: what the machine is compared with.

A program is the JSON object that ``tests/c/machine_driver.c`` reads. Every JSON text over a small
alphabet is written out, and those that the program admits are kept; nothing here shares a thought
with the machine.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any

Program = dict[str, Any]
ORDER_ANY, SPACE_FREE = 1, 2
NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
SIMPLE = {b'\\"': '"', b"\\\\": "\\", b"\\/": "/", b"\\b": "\b", b"\\f": "\f", b"\\n": "\n"}


@dataclass(frozen=True)
class Number:
    """A number as it was written."""

    text: str


# A value: None, bool, Number, str, tuple of values, or Members.
@dataclass(frozen=True)
class Members:
    """An object: its members in the order of the text."""

    pairs: tuple[tuple[str, Any], ...]


def spelled(value: Any) -> Any:
    """A value as a hashable one that is equal where JSON values are."""
    if isinstance(value, Number):
        return ("n", Decimal(value.text))
    if isinstance(value, tuple):
        return ("a", tuple(spelled(v) for v in value))
    if isinstance(value, Members):
        return ("o", frozenset((k, spelled(v)) for k, v in value.pairs))
    return (type(value).__name__, value)


def parse(text: bytes) -> Any:
    """Read a JSON text; ValueError where it is none, or repeats a key."""

    def members(pairs: list[tuple[str, Any]]) -> Members:
        if len({k for k, _ in pairs}) != len(pairs):
            raise ValueError("a key repeats")
        return Members(tuple(pairs))

    def tuples(value: Any) -> Any:
        if isinstance(value, list):
            return tuple(tuples(v) for v in value)
        if isinstance(value, Members):
            return Members(tuple((k, tuples(v)) for k, v in value.pairs))
        if isinstance(value, str):
            value.encode()  # refuses lone surrogates
        return value

    def constant(name: str) -> Any:
        raise ValueError(name)

    return tuples(
        json.loads(
            text.decode(),
            object_pairs_hook=members,
            parse_int=Number,
            parse_float=Number,
            parse_constant=constant,
        )
    )


# ---- What a program admits -------------------------------------------------------------------


def in_lang(lang: Any, word: str) -> bool:
    """Whether a language of the program's notation has the word."""
    if lang is None or lang is True:
        return lang is True
    if isinstance(lang, str):
        return re.fullmatch(lang, word) is not None
    if isinstance(lang, dict):
        return bool(lang.get("min", 0) <= len(word) <= lang.get("max", 1 << 30))
    return word in lang


def assigned(needs: list[int], serves: list[list[int]]) -> bool:
    """Whether each need finds its number of servers, each serving at most one."""
    if not any(needs):
        return True
    if sum(needs) > len(serves):
        return False
    choices = [[*s, -1] for s in serves]
    for choice in itertools.product(*choices):
        if all(choice.count(j) >= need for j, need in enumerate(needs)):
            return True
    return False


class Reader:
    """Judges values by a program."""

    def __init__(self, program: Program, flags: int) -> None:
        self.nodes = program["nodes"]
        self.root = program["root"]
        self.flags = flags
        # Letters that no language names are in strings only where some language has any strings.
        self.free_strings = '"string": {' in json.dumps(self.nodes) or any(
            word in json.dumps(self.nodes) for word in (": true", "[[true", "[true")
        )
        self.letters = {
            c
            for word in re.findall(r'"([^"]*)"', json.dumps(self.strings(), ensure_ascii=False))
            for c in word
        }

    def strings(self) -> list[Any]:
        """Everything in the program that tells of strings and keys."""
        objects = [o for node in self.nodes for o in node.get("objects", [])]
        return [n.get("string") for n in self.nodes] + [[o.get("keys"), o.get("rest")] for o in objects]

    def admits(self, text: bytes) -> bool:
        """Whether the text is a document of the program (spelling of white space aside)."""
        try:
            value = parse(text)
        except (ValueError, UnicodeDecodeError):
            return False
        return self.node(self.root, value)

    def node(self, number: int, value: Any) -> bool:
        """Whether a node has the value."""
        node = self.nodes[number]
        if value is None or isinstance(value, bool):
            return {None: "n", True: "t", False: "f"}[value] in node.get("literals", "")
        if isinstance(value, Number):
            return in_lang(node.get("number"), value.text)
        if isinstance(value, str):
            return in_lang(node.get("string"), value)
        if isinstance(value, Members):
            return any(self.object(o, value) for o in node.get("objects", []))
        return any(self.array(a, value) for a in node.get("arrays", []))

    @cache  # noqa: B019  # readers are few and short-lived
    def any_node(self, text: bytes) -> bool:
        """Whether some node has the value."""
        try:
            value = parse(text)
        except (ValueError, UnicodeDecodeError):
            return False
        return any(self.node(n, value) for n in range(len(self.nodes)))

    @cache  # noqa: B019
    def any_key(self, key: str) -> bool:
        """Whether some object may have the key."""
        objects = [o for node in self.nodes for o in node.get("objects", [])]
        declared = any(k[0] == key for o in objects for k in o.get("keys", []))
        return declared or any(in_lang(r[0], key) for o in objects for r in o.get("rest", []))

    def array(self, array: dict[str, Any], value: tuple[Any, ...]) -> bool:
        """Whether an alternative for arrays has the value."""
        prefix = array.get("prefix", [])
        if not array.get("min", 0) <= len(value) <= array.get("max", 1 << 30):
            return False
        if array.get("unique") and len({spelled(v) for v in value}) != len(value):
            return False
        if not all(self.node(n, v) for n, v in zip(prefix, value, strict=False)):
            return False
        later = value[len(prefix) :]
        if not all(self.node(array.get("items", 0), v) for v in later):
            return False
        contains = array.get("contains", [])
        if contains and contains[0][3] is not None:
            n = sum(self.node(contains[0][0], v) for v in later)
            return bool(contains[0][2] <= n <= contains[0][3])
        serves = [[j for j, c in enumerate(contains) if self.node(c[0], v)] for v in later]
        return assigned([c[2] for c in contains], [s for s in serves if s])

    def object(self, spec: dict[str, Any], value: Members) -> bool:
        """Whether an alternative for objects has the value."""
        keys = spec.get("keys", [])
        declared = {k[0]: i for i, k in enumerate(keys)}
        order = [declared.get(k, len(keys)) for k, _ in value.pairs]
        if not self.flags & ORDER_ANY and order != sorted(order):
            return False
        if not spec.get("min", 0) <= len(value.pairs) <= spec.get("max", 1 << 30):
            return False
        present = {k for k, _ in value.pairs}
        if any(k[2] and k[0] not in present for k in keys):
            return False
        if any(keys[a][0] in present and keys[b][0] not in present for a, b in spec.get("implies", [])):
            return False
        serves = []
        for key, member in value.pairs:
            if key in declared:
                if not self.node(keys[declared[key]][1], member):
                    return False
                continue
            if not any(in_lang(r[0], key) and self.node(r[1], member) for r in spec.get("rest", [])):
                return False
            some = spec.get("some", [])
            serves.append([j for j, s in enumerate(some) if in_lang(s[0], key) and self.node(s[1], member)])
        return assigned([s[2] for s in spec.get("some", [])], [s for s in serves if s])


# ---- All JSON texts over an alphabet -----------------------------------------------------------


class Texts:
    """Every JSON text of a length over an alphabet of bytes whose keys and values some part of the
    program admits (others are left out as soon as they show, or there would be too many)."""

    def __init__(self, alphabet: bytes, space: bool, reader: Reader) -> None:
        self.reader = reader
        self.alphabet = set(alphabet)
        self.blank = [bytes([b]) for b in b"\t\n\r " if b in self.alphabet] if space else []
        self.units = list(self._units())

    def has(self, text: bytes) -> bool:
        """Whether the alphabet spells the text."""
        return set(text) <= self.alphabet

    def _units(self) -> Iterator[bytes]:
        for code in self.alphabet:
            known = self.reader.free_strings or chr(code) in self.reader.letters
            if 0x20 <= code < 0x80 and code not in b'"\\' and known:
                yield bytes([code])
        high = [b for b in self.alphabet if b >= 0x80]
        for n in (2, 3, 4):
            for units in itertools.product(high, repeat=n):
                try:
                    if len(bytes(units).decode()) == 1:
                        yield bytes(units)
                except UnicodeDecodeError:
                    continue
        yield from (s for s in (*SIMPLE, b"\\r", b"\\t") if self.has(s))
        if not self.has(b"\\u"):
            return
        digits = [bytes([b]) for b in b"0123456789abcdefABCDEF" if b in self.alphabet]
        fours = [b"\\u" + b"".join(d) for d in itertools.product(digits, repeat=4)]
        for four in fours:
            code = int(four[2:], 16)
            if not 0xD800 <= code <= 0xDFFF:
                yield four
            elif code < 0xDC00:
                yield from (four + low for low in fours if 0xDC00 <= int(low[2:], 16) <= 0xDFFF)

    @cache  # noqa: B019  # readers are few and short-lived
    def bodies(self, n: int) -> list[bytes]:
        """String bodies of n bytes; of letters none beyond 8, which no program here asks for."""
        if n > 8 and (n > 12 or not self.has(b"\\")):
            return []
        if n == 0:
            return [b""]
        return [u + rest for u in self.units if len(u) <= n for rest in self.bodies(n - len(u))]

    @cache  # noqa: B019
    def keys(self, n: int) -> list[bytes]:
        """Bodies of n bytes of keys that some object may have."""
        return [body for body in self.bodies(n) if self.reader.any_key(json.loads(b'"' + body + b'"'))]

    @cache  # noqa: B019
    def spaces(self, n: int) -> list[bytes]:
        """White space of n bytes."""
        return [b"".join(s) for s in itertools.product(self.blank, repeat=n)]

    @cache  # noqa: B019
    def scalars(self, n: int) -> list[bytes]:
        """Scalars of n bytes."""
        out = [w for w in (b"true", b"false", b"null") if len(w) == n and self.has(w)]
        if n >= 2 and self.has(b'"'):
            out += [b'"' + body + b'"' for body in self.bodies(n - 2)]
        letters = [chr(b) for b in b"0123456789.eE+-" if b in self.alphabet]
        for number in itertools.product(letters, repeat=n) if n <= 6 else ():  # the programs' are short
            if NUMBER.fullmatch("".join(number)):
                out.append("".join(number).encode())
        return out

    @cache  # noqa: B019
    def spaced(self, n: int) -> list[bytes]:
        """Values of n bytes with white space around them."""
        out = []
        for before in range(n if self.blank else 1):
            for after in range(n - before if self.blank else 1):
                for value in self.values(n - before - after):
                    out += [a + value + b for a in self.spaces(before) for b in self.spaces(after)]
        return out

    @cache  # noqa: B019
    def members(self, n: int) -> list[bytes]:
        """Members of n bytes, white space around included."""
        out = []
        for k in range(2, n - 1):
            for before, after in self._around(k):
                if k - before - after < 2:
                    continue
                values = self.spaced(n - k - 1)
                if not values:
                    continue
                keys = [
                    a + b'"' + body + b'"' + b + b":"
                    for body in self.keys(k - before - after - 2)
                    for a in self.spaces(before)
                    for b in self.spaces(after)
                ]
                out += [key + value for key in keys for value in values]
        return out

    def _around(self, k: int) -> list[tuple[int, int]]:
        if not self.blank:
            return [(0, 0)]
        return [(a, b) for a in range(k) for b in range(k - a)]

    @cache  # noqa: B019
    def lists(self, n: int, member: bool) -> list[bytes]:
        """One or more items or members with commas, n bytes."""
        one = self.members if member else self.spaced
        out = list(one(n))
        for k in range(1, n - 1):
            rest = self.lists(n - k - 1, member)
            out += [first + b"," + more for first in one(k) for more in rest]
        return out

    @cache  # noqa: B019
    def values(self, n: int) -> list[bytes]:
        """Values of n bytes."""
        out = list(self.scalars(n)) if n > 0 else []
        for pair, member in ((b"[]", False), (b"{}", True)):
            if n < 2 or not self.has(pair) or (member and not self.has(b":")):
                continue
            inner = self.spaces(n - 2) + (self.lists(n - 2, member) if n > 2 else [])
            out += [pair[:1] + text + pair[1:] for text in inner]
        return [text for text in out if self.reader.any_node(text)]

    def documents(self, longest: int) -> Iterator[bytes]:
        """All documents of at most so many bytes."""
        for n in range(1, longest + 1):
            yield from self.spaced(n)
