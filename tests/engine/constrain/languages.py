"""The languages of engine/constrain/lang.h by ctypes, over a library that is compiled for the tests.

Needs a C compiler (``$CC``, else ``cc``); the fixture ``languages`` skips without one.
"""

from __future__ import annotations

import ctypes
import os
import random
import subprocess
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
FILES = (
    "pool", "lang", "minimise", "lang_ops", "words", "number", "charset", "unicode", "regex_parse",
    "regex_nfa", "regex", "formats",
)  # fmt: skip
DEAD = 0xFFFFFFFF
INFINITE = 0xFFFFFFFFFFFFFFFF
NO_MAX = 0xFFFFFFFF
EFORMAT, EUNSUPPORTED = 3, 4


def build(folder: Path) -> ctypes.CDLL:
    """Compile the languages alone. Raises ``OSError`` where there is no compiler."""
    target = folder / "languages.so"
    compiler = os.environ.get("CC", "cc").split()
    here = ROOT / "engine" / "constrain"
    includes = [f"-I{here}", f"-I{ROOT / 'engine' / 'src'}"]
    files = [str(here / f"{name}.c") for name in FILES]
    subprocess.run(
        [*compiler, "-std=c11", "-O2", "-shared", "-fPIC", *includes, *files, "-o", str(target)], check=True
    )
    library = ctypes.CDLL(str(target))
    for name in (
        "set_new", "empty", "all", "length", "words_of", "and", "or", "minus", "not", "number_all",
        "number_held", "numbers", "regex", "format",
    ):  # fmt: skip
        getattr(library, f"lang_{name}").restype = ctypes.c_void_p
    for name in ("start", "step", "distance", "edges", "enumerate"):
        getattr(library, f"lang_{name}").restype = ctypes.c_uint32
    library.lang_count.restype = ctypes.c_uint64
    return library


class Pool(ctypes.Structure):
    """struct pool of pool.h."""

    _fields_ = (
        ("blocks", ctypes.c_void_p),
        ("bytes", ctypes.c_uint64),
        ("max_bytes", ctypes.c_uint64),
        ("steps", ctypes.c_uint64),
        ("max_steps", ctypes.c_uint64),
        ("status", ctypes.c_int),
        ("error", ctypes.c_char * 512),
    )


class Edge(ctypes.Structure):
    """struct lang_edge."""

    _fields_ = (("lo", ctypes.c_uint32), ("hi", ctypes.c_uint32), ("to", ctypes.c_uint32))


class Decimal(ctypes.Structure):
    """struct lang_decimal."""

    _fields_ = (
        ("negative", ctypes.c_int),
        ("digits", ctypes.c_void_p),
        ("n_digits", ctypes.c_uint32),
        ("exponent", ctypes.c_int32),
    )


class Range(ctypes.Structure):
    """struct lang_range."""

    _fields_ = (
        ("min", ctypes.POINTER(Decimal)),
        ("max", ctypes.POINTER(Decimal)),
        ("min_exclusive", ctypes.c_int),
        ("max_exclusive", ctypes.c_int),
        ("multiple_of", ctypes.POINTER(Decimal)),
        ("integer", ctypes.c_int),
    )


class Refused(Exception):
    """A language was refused; ``status`` as engine.h has it."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Languages:
    """A lang_set with a pool of its own."""

    def __init__(self, library: ctypes.CDLL, max_bytes: int = 1 << 29, max_steps: int = 1 << 27) -> None:
        self.library = library
        self.pool = Pool()
        library.pool_init(ctypes.byref(self.pool), ctypes.c_uint64(max_bytes), ctypes.c_uint64(max_steps))
        self.set = ctypes.c_void_p(library.lang_set_new(ctypes.byref(self.pool)))

    def __del__(self) -> None:
        self.library.pool_free(ctypes.byref(self.pool))

    def of(self, pointer: int | None) -> Lang:
        """The language at a pointer that a call returned. Raises ``Refused`` for NULL."""
        if not pointer:
            raise Refused(self.pool.status, self.pool.error.decode())
        return Lang(self, pointer)

    def all(self) -> Lang:
        return self.of(self.library.lang_all(self.set))

    def empty(self) -> Lang:
        return self.of(self.library.lang_empty(self.set))

    def length(self, low: int, high: int = NO_MAX) -> Lang:
        return self.of(self.library.lang_length(self.set, ctypes.c_uint32(low), ctypes.c_uint32(high)))

    def words(self, words: Sequence[str | bytes]) -> Lang:
        data = [word.encode() if isinstance(word, str) else word for word in words]
        texts = (ctypes.c_char_p * len(data))(*data)
        lens = (ctypes.c_uint64 * len(data))(*map(len, data))
        return self.of(self.library.lang_words_of(self.set, texts, lens, ctypes.c_uint64(len(data))))

    def regex(self, pattern: str, *, search: bool = True) -> Lang:
        data = pattern.encode()
        return self.of(self.library.lang_regex(self.set, data, ctypes.c_uint64(len(data)), int(search)))

    def format(self, name: str) -> Lang | None:
        """None: the format is unknown."""
        known = ctypes.c_int()
        data = name.encode()
        at = self.library.lang_format(self.set, data, ctypes.c_uint64(len(data)), ctypes.byref(known))
        return None if not at and not known.value else self.of(at)

    def decimal(self, text: str) -> Decimal:
        out, data = Decimal(), text.encode()
        pool = ctypes.byref(self.pool)
        if not self.library.lang_decimal_parse(pool, data, ctypes.c_uint64(len(data)), ctypes.byref(out)):
            raise Refused(self.pool.status, self.pool.error.decode())
        return out

    def numbers(
        self,
        low: str | None = None,
        high: str | None = None,
        *,
        low_open: bool = False,
        high_open: bool = False,
        multiple: str | None = None,
        integer: int = 0,
    ) -> Lang:
        given = Range(min_exclusive=low_open, max_exclusive=high_open, integer=integer)
        for name, text in (("min", low), ("max", high), ("multiple_of", multiple)):
            if text is not None:
                setattr(given, name, ctypes.pointer(self.decimal(text)))
        return self.of(self.library.lang_numbers(self.set, ctypes.byref(given)))

    def number_all(self) -> Lang:
        return self.of(self.library.lang_number_all(self.set))

    def number_held(self) -> Lang:
        return self.of(self.library.lang_number_held(self.set))


class Lang:
    """One language. Equal languages of one set have equal pointers, and compare equal."""

    def __init__(self, languages: Languages, pointer: int) -> None:
        self.languages = languages
        self.library = languages.library
        self.pointer = ctypes.c_void_p(pointer)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Lang) and self.pointer.value == other.pointer.value

    __hash__ = None  # type: ignore[assignment]

    def _with(self, name: str, other: Lang) -> Lang:
        call = getattr(self.library, f"lang_{name}")
        return self.languages.of(call(self.languages.set, self.pointer, other.pointer))

    def __and__(self, other: Lang) -> Lang:
        return self._with("and", other)

    def __or__(self, other: Lang) -> Lang:
        return self._with("or", other)

    def __sub__(self, other: Lang) -> Lang:
        return self._with("minus", other)

    def __invert__(self) -> Lang:
        return self.languages.of(self.library.lang_not(self.languages.set, self.pointer))

    def __contains__(self, word: str) -> bool:
        data = word.encode()
        return bool(self.library.lang_holds(self.pointer, data, ctypes.c_uint64(len(data))))

    @cached_property
    def start(self) -> int:
        return int(self.library.lang_start(self.pointer))

    def step(self, state: int, code: int) -> int:
        return int(self.library.lang_step(self.pointer, ctypes.c_uint32(state), ctypes.c_uint32(code)))

    def accepts(self, state: int) -> bool:
        return bool(self.library.lang_accepts(self.pointer, ctypes.c_uint32(state)))

    def distance(self, state: int | None = None) -> int:
        at = self.start if state is None else state
        return int(self.library.lang_distance(self.pointer, ctypes.c_uint32(at)))

    def count(self, state: int | None = None) -> int:
        at = self.start if state is None else state
        return int(self.library.lang_count(self.pointer, ctypes.c_uint32(at)))

    def edges(self, state: int) -> list[tuple[int, int, int]]:
        count = self.library.lang_edges(self.pointer, ctypes.c_uint32(state), None, 0)
        out = (Edge * count)()
        self.library.lang_edges(self.pointer, ctypes.c_uint32(state), out, count)
        return [(edge.lo, edge.hi, edge.to) for edge in out]

    def enumerate(self, cap: int) -> list[str]:
        texts, lens = (ctypes.c_void_p * cap)(), (ctypes.c_uint64 * cap)()
        count = self.library.lang_enumerate(self.languages.set, self.pointer, cap, texts, lens)
        return [ctypes.string_at(texts[i] or 0, lens[i]).decode() for i in range(count)]

    def states(self) -> set[int]:
        """All states that can be reached; for languages with few."""
        seen, work = {self.start}, [self.start]
        while work:
            for _, _, to in self.edges(work.pop()):
                if to not in seen:
                    seen.add(to)
                    work.append(to)
        return seen

    def is_minimal(self) -> bool:
        """Whether no two states accept the same strings: classes refined by hand; for small languages."""
        states = sorted(self.states())
        cuts = sorted(
            {0, *(code for state in states for low, high, _ in self.edges(state) for code in (low, high))}
        )
        points = sorted({*cuts, *(code + 1 for code in cuts if code not in (0xD7FF, 0x10FFFF))})
        rows = {state: [self.step(state, code) for code in points] for state in states}
        of = {state: int(self.accepts(state)) for state in states} | {DEAD: -1}
        while True:
            keys = {state: (of[state], *(of[to] for to in rows[state])) for state in states}
            number = {key: i for i, key in enumerate(dict.fromkeys(keys.values()))}
            if len(number) == len(set(of.values())) - 1:
                return len(number) == len(states)
            of = {state: number[keys[state]] for state in states} | {DEAD: -1}

    def sample(self, rng: random.Random, most: int = 50) -> str:
        """A random member; past ``most`` characters it takes the shortest way out."""
        state = self.start
        out: list[str] = []
        while True:
            edges = self.edges(state)
            if self.accepts(state) and (rng.random() < 0.1 or len(out) > most or not edges):
                return "".join(out)
            best = min(edges, key=lambda edge: self.distance(edge[2]))
            low, high, state = best if len(out) > most else rng.choice(edges)
            out.append(chr(rng.choice([low, high, rng.randint(low, high)])))


def json_bytes(text: str) -> int:
    """Bytes of a string's shortest spelling in JSON, without the quotes."""
    return sum(map(_cost, text))


def _cost(character: str) -> int:
    if character in '"\\\b\t\n\f\r':
        return 2
    return 6 if character < " " else len(character.encode())


def mutations(seeds: Iterable[str], rng: random.Random, alphabet: str, each: int) -> Iterable[str]:
    """Strings near the seeds: one or two characters taken out, put in or changed."""
    for seed in seeds:
        for _ in range(each):
            text = list(seed)
            for _ in range(rng.randint(1, 2)):
                at = rng.randint(0, len(text))
                text[at : at + rng.randint(0, 1)] = rng.choice(["", rng.choice(alphabet)])
            yield "".join(text)


def library_fixture(folder: Path) -> Any:
    """The compiled library, or the reason why there is none."""
    try:
        return build(folder)
    except OSError as error:
        return f"no C compiler: {error}"
