"""Handles over the C core's constraints; beside ``engine.native`` the only importer of the extension.

Objects own their C memory (freed with the last reference) and keep what they were made from alive.
The calls of a matcher are the inner loop of constrained generation: they allocate nothing in Python.
"""

from __future__ import annotations

import json
import re
import threading
import weakref
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NoReturn

import numpy as np
import numpy.typing as npt

from engine import arguments, errors, native
from engine._engine import ffi, lib

Kind = Literal["json_schema", "json", "regex", "choice", "gbnf", "lark"]
Words = native.Words

KINDS: dict[str, int] = {
    "json_schema": lib.ENGINE_CONSTRAINT_JSON_SCHEMA,
    "json": lib.ENGINE_CONSTRAINT_JSON,
    "regex": lib.ENGINE_CONSTRAINT_REGEX,
    "choice": lib.ENGINE_CONSTRAINT_CHOICE,
    "gbnf": lib.ENGINE_CONSTRAINT_GBNF,
    "lark": lib.ENGINE_CONSTRAINT_LARK,
}
_REFUSED = (lib.ENGINE_EFORMAT, lib.ENGINE_EUNSUPPORTED, lib.ENGINE_EINVAL)
_ERROR_BYTES = native.ERROR_BYTES
_PLACE = re.compile(r'schema: (?:keyword "([^"]*)" )?at "(.*?)": ', re.DOTALL)  # schema.c writes it
_mask = lib.engine_matcher_mask
_commit = lib.engine_matcher_commit


def _refuse(status: int, err: Any) -> NoReturn:
    """Raise what a status and its text mean for a constraint."""
    text = ffi.string(err).decode("utf-8", "replace")
    if status in _REFUSED:
        place = _PLACE.match(text)
        keyword, pointer = place.groups() if place else (None, None)
        raise errors.ConstraintError(text, pointer, keyword)
    native.raise_status(status, text)


@dataclass(frozen=True)
class Options:
    """How a constraint reads its source; the defaults are those for generation.

    ``order``: members of objects in declared order (optional ones may be left out, undeclared ones follow),
    or in any. ``whitespace``: none between JSON tokens, or free. ``formats``: known values of ``format``
    constrain strings; else they are annotations. ``spelling``: JSON strings and integers have one spelling
    (escapes only where needed, no exponent), so that keys and enumerated values are forced runs; or any that
    JSON has. None: plain without white space, any with free white space.
    """

    order: Literal["declared", "any"] = "declared"
    whitespace: Literal["compact", "free"] = "compact"
    formats: bool = True
    spelling: Literal["plain", "any"] | None = None

    @property
    def plain(self) -> bool:
        """Whether strings and integers have one spelling."""
        return self.whitespace == "compact" if self.spelling is None else self.spelling == "plain"

    def __post_init__(self) -> None:
        native.choice({"declared": 0, "any": 1}, self.order, "order")
        native.choice({"compact": 0, "free": 1}, self.whitespace, "whitespace")
        if self.spelling is not None:
            native.choice({"plain": 0, "any": 1}, self.spelling, "spelling")
        if not isinstance(self.formats, bool):
            raise errors.UsageError(f"formats must be true or false, not {arguments.kind(self.formats)}")


@dataclass(frozen=True)
class Note:
    """What a schema says that was taken as an annotation: it constrains nothing."""

    pointer: str
    keyword: str
    note: str


@dataclass(frozen=True)
class Closing:
    """A shortest completion: its bytes, and the JSON pointers of the values that they begin or continue."""

    data: bytes
    filled: tuple[str, ...]


@dataclass(frozen=True)
class Alternatives:
    """The texts that an element may have. "value" and "key": JSON texts, the end of the container ("}",
    "]") among them; behind an element, the others begin with a comma. "text": the whole document."""

    kind: Literal["value", "key", "text"]
    texts: tuple[str, ...]


class Constraint:
    """A compiled language of documents. Immutable, and shared freely between threads."""

    def __init__(self, kind: Kind, source: bytes, options: Options = Options()) -> None:
        native.choice(KINDS, kind, "kind")
        raw = ffi.new("engine_constraint_options *")
        raw.order_any = options.order == "any"
        raw.space_free = options.whitespace == "free"
        raw.formats_assert = options.formats
        raw.plain = options.plain
        out, err = ffi.new("engine_constraint **"), ffi.new("char[]", _ERROR_BYTES)
        status = lib.engine_constraint_compile(out, KINDS[kind], source, len(source), raw, err, _ERROR_BYTES)
        if status != lib.ENGINE_OK:
            _refuse(status, err)
        self.kind: Kind = kind
        self._pointer = ffi.gc(out[0], lib.engine_constraint_free)

    @property
    def notes(self) -> tuple[Note, ...]:
        """What was taken as an annotation."""
        text = ffi.string(lib.engine_constraint_notes(self._pointer))
        return tuple(Note(**note) for note in json.loads(text))

    @property
    def size_bytes(self) -> int:
        """Memory that it holds."""
        return int(lib.engine_constraint_bytes(self._pointer))


class Tokens:
    """A vocabulary prepared for masks. Immutable, and shared freely between threads."""

    _known: ClassVar[weakref.WeakKeyDictionary[native.Vocab, Tokens]] = weakref.WeakKeyDictionary()
    _lock = threading.Lock()

    def __init__(self, data: bytes, offsets: npt.NDArray[np.uint64], ends: Sequence[int]) -> None:
        self.size = len(offsets) - 1
        self.words = (self.size + 31) // 32
        out, err = ffi.new("engine_tokens **"), ffi.new("char[]", _ERROR_BYTES)
        raw_offsets = ffi.from_buffer("uint64_t[]", offsets)
        raw_ends = ffi.new("int32_t[]", list(ends))
        status = lib.engine_tokens_new(
            out, ffi.from_buffer(data), raw_offsets, self.size, raw_ends, len(ends), err, _ERROR_BYTES
        )
        if status != lib.ENGINE_OK:
            _refuse(status, err)
        self._pointer = ffi.gc(out[0], lib.engine_tokens_free)

    @classmethod
    def from_bytes(cls, tokens: Sequence[bytes], ends: Collection[int]) -> Tokens:
        """Tokens by their bytes; ``ends`` are the ids that end a generation, whatever their bytes."""
        offsets = np.zeros(len(tokens) + 1, np.uint64)
        np.cumsum([len(token) for token in tokens], out=offsets[1:])
        return cls(b"".join(tokens), offsets, sorted(ends))

    @classmethod
    def of(cls, vocab: native.Vocab) -> Tokens:
        """The tokens of a vocabulary; made once for each."""
        with cls._lock:
            found = cls._known.get(vocab)
            if found is None:
                ids = range(vocab.info.size)
                ends = [token for token in ids if vocab.is_end(token)]
                found = cls._known[vocab] = cls.from_bytes(vocab.all_token_bytes(), ends)
            return found


class Matcher:
    """A position in one document. Belongs to one thread at a time."""

    __slots__ = (
        "_array", "_constraint", "_err", "_mask_pointer", "_pointer", "_tokens", "_words",
    )  # fmt: skip

    def __init__(self, constraint: Constraint, tokens: Tokens | None) -> None:
        self._constraint, self._tokens = constraint, tokens
        out, self._err = ffi.new("engine_matcher **"), ffi.new("char[]", _ERROR_BYTES)
        raw_tokens = ffi.NULL if tokens is None else tokens._pointer
        status = lib.engine_matcher_new(out, constraint._pointer, raw_tokens, self._err, _ERROR_BYTES)
        if status != lib.ENGINE_OK:
            _refuse(status, self._err)
        self._own(out[0])

    def _own(self, pointer: Any) -> None:
        self._pointer = ffi.gc(pointer, lib.engine_matcher_free)
        self._words = 0 if self._tokens is None else self._tokens.words
        self._array: Words = np.zeros(self._words, np.uint32)
        self._mask_pointer = ffi.from_buffer("uint32_t[]", self._array, require_writable=True)

    @property
    def kind(self) -> Kind:
        """What the constraint was compiled from."""
        return self._constraint.kind

    def reset(self) -> None:
        """Go back to the start of a document."""
        lib.engine_matcher_reset(self._pointer)

    def fork(self) -> Matcher:
        """An independent matcher at the same position."""
        made = Matcher.__new__(Matcher)
        made._constraint, made._tokens = self._constraint, self._tokens
        out, made._err = ffi.new("engine_matcher **"), ffi.new("char[]", _ERROR_BYTES)
        status = lib.engine_matcher_fork(out, self._pointer, made._err, _ERROR_BYTES)
        if status != lib.ENGINE_OK:
            _refuse(status, made._err)
        made._own(out[0])
        return made

    def mask(self) -> Words:
        """Bit ``i % 32`` of word ``i // 32`` for each token that may come next: uint32 [(n + 31) // 32].

        The next call reuses the array.
        """
        status = _mask(self._pointer, self._mask_pointer, self._words, self._err, _ERROR_BYTES)
        if status:
            _refuse(status, self._err)
        return self._array

    def commit(self, token: int) -> bool:
        """Advance by a token. False: it is not allowed, and nothing changed."""
        status = _commit(self._pointer, token, self._err, _ERROR_BYTES)
        if status == 0:
            return True
        if status == lib.ENGINE_EINVAL and self._tokens is not None and 0 <= token < self._tokens.size:
            return False
        _refuse(status, self._err)

    def commit_bytes(self, data: bytes) -> None:
        """Advance by bytes. Raises ConstraintError with the offset of the first that is not allowed."""
        status = lib.engine_matcher_commit_bytes(self._pointer, data, len(data), self._err, _ERROR_BYTES)
        if status != lib.ENGINE_OK:
            _refuse(status, self._err)

    @property
    def accepting(self) -> bool:
        """Whether the document may end here."""
        return bool(lib.engine_matcher_accepting(self._pointer))

    @property
    def begun(self) -> bool:
        """Whether a byte other than white space has been read."""
        return bool(lib.engine_matcher_begun(self._pointer))

    def forced(self) -> bytes:
        """The bytes that follow whatever the model wants: there is no other way on."""
        out, found = bytearray(4096), ffi.new("uint64_t *")
        raw = ffi.from_buffer("char[]", out, require_writable=True)
        status = lib.engine_matcher_forced(self._pointer, raw, len(out), found, self._err, _ERROR_BYTES)
        if status != lib.ENGINE_OK:
            _refuse(status, self._err)
        return bytes(out[: found[0]])

    def close(self) -> Closing:
        """A shortest completion, the least in byte order among those. The matcher does not move."""
        sizes = [32768, 32768]
        length, filled_length = ffi.new("uint64_t *"), ffi.new("uint64_t *")
        while True:
            out, filled = (bytearray(size) for size in sizes)
            buffers = [ffi.from_buffer("char[]", buffer, require_writable=True) for buffer in (out, filled)]
            status = lib.engine_matcher_close(
                self._pointer, buffers[0], sizes[0], length, buffers[1], sizes[1], filled_length,
                self._err, _ERROR_BYTES,
            )  # fmt: skip
            wanted = [int(length[0]), int(filled_length[0])]
            if status == lib.ENGINE_OK:
                return Closing(bytes(out[: wanted[0]]), tuple(json.loads(bytes(filled[: wanted[1]]))))
            if status != lib.ENGINE_EINVAL or (wanted[0] <= sizes[0] and wanted[1] <= sizes[1]):
                _refuse(status, self._err)
            sizes = [max(pair) for pair in zip(sizes, wanted, strict=True)]

    def pointer(self) -> str:
        """JSON pointer of the value being read, or of the innermost container between values."""
        size, found = 4096, ffi.new("uint64_t *")
        while True:
            out = ffi.new("char[]", size)
            status = lib.engine_matcher_pointer(self._pointer, out, size, found, self._err, _ERROR_BYTES)
            if status == lib.ENGINE_OK:
                return bytes(ffi.buffer(out, found[0])).decode()
            if status != lib.ENGINE_EINVAL or found[0] < size:
                _refuse(status, self._err)
            size = int(found[0]) + 1

    def alternatives(self) -> Alternatives | None:
        """What the element that begins here may be; None: none begins, or there are more than 1024."""
        size, found = 4096, ffi.new("uint64_t *")
        while True:
            out = bytearray(size)
            raw = ffi.from_buffer("char[]", out, require_writable=True)
            status = lib.engine_matcher_alternatives(self._pointer, raw, size, found, self._err, _ERROR_BYTES)
            if status == lib.ENGINE_OK:
                break
            if status != lib.ENGINE_EINVAL or found[0] <= size:
                _refuse(status, self._err)
            size = int(found[0])
        made = json.loads(bytes(out[: found[0]]))
        texts = tuple(dict.fromkeys(made["texts"]))
        return Alternatives(made["kind"], texts) if texts else None
