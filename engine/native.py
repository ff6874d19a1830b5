"""With ``engine.constrain.native`` the only importer of ``engine._engine``: owning handles over the C core.

Every handle counts its users. ``close()`` forbids new calls at once and releases the C object when
the last running call (and the last handle built on it) has finished, so closing from another thread
is safe. Values that leave this module are Python's or numpy's own, never views of C memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from engine import errors
from engine._engine import ffi, lib
from engine.arguments import integer

ERROR_BYTES = 1024
Floats = npt.NDArray[np.float32]
Words = npt.NDArray[np.uint32]
Span = tuple[int, int]

_EXCEPTIONS: dict[int, type[errors.EngineError]] = {
    lib.ENGINE_EINVAL: errors.UsageError,
    lib.ENGINE_EIO: errors.FileError,
    lib.ENGINE_EFORMAT: errors.FormatError,
    lib.ENGINE_EUNSUPPORTED: errors.UnsupportedError,
    lib.ENGINE_ENOMEM: errors.OutOfMemoryError,
    lib.ENGINE_ECONTEXT: errors.ContextOverflow,
    lib.ENGINE_ENONFINITE: errors.NonFiniteError,
    lib.ENGINE_ECANCELLED: errors.CancelledError,
    lib.ENGINE_ESELFTEST: errors.SelfTestError,
}

ACTIVATIONS = {
    "wide": lib.ENGINE_ACTIVATIONS_WIDE,
    "int8": lib.ENGINE_ACTIVATIONS_INT8,
    "f32": lib.ENGINE_ACTIVATIONS_F32,
}
KV_TYPES = {"f16": lib.ENGINE_KV_F16, "f32": lib.ENGINE_KV_F32, "q8": lib.ENGINE_KV_Q8}
WANTS = {"none": lib.ENGINE_WANT_NONE, "logits": lib.ENGINE_WANT_LOGITS, "hidden": lib.ENGINE_WANT_HIDDEN}
TOKEN_KINDS = {
    lib.ENGINE_TOKEN_NORMAL: "normal",
    lib.ENGINE_TOKEN_UNKNOWN: "unknown",
    lib.ENGINE_TOKEN_CONTROL: "control",
    lib.ENGINE_TOKEN_USER_DEFINED: "user-defined",
    lib.ENGINE_TOKEN_UNUSED: "unused",
    lib.ENGINE_TOKEN_BYTE: "byte",
}
_SCALARS = {
    lib.ENGINE_GGUF_U8: "<u1",
    lib.ENGINE_GGUF_I8: "<i1",
    lib.ENGINE_GGUF_U16: "<u2",
    lib.ENGINE_GGUF_I16: "<i2",
    lib.ENGINE_GGUF_U32: "<u4",
    lib.ENGINE_GGUF_I32: "<i4",
    lib.ENGINE_GGUF_F32: "<f4",
    lib.ENGINE_GGUF_BOOL: "?",
    lib.ENGINE_GGUF_U64: "<u8",
    lib.ENGINE_GGUF_I64: "<i8",
    lib.ENGINE_GGUF_F64: "<f8",
}
_STRING_BATCH = 4096


def raise_status(status: int, text: str) -> NoReturn:
    """Turn a status into its exception; EINVAL keeps ValueError-like meaning as UsageError."""
    kind = _EXCEPTIONS.get(status, errors.EngineError)
    raise kind(text or f"the engine failed with status {status}")


def _call(function: Callable[..., int], *args: Any) -> None:
    """Call a function that returns a status and takes ``err, errlen`` last; raise on failure."""
    err = ffi.new("char[]", ERROR_BYTES)
    status = int(function(*args, err, ERROR_BYTES))
    if status != lib.ENGINE_OK:
        raise_status(status, ffi.string(err).decode("utf-8", "replace"))


def _c_text(pointer: Any) -> str:
    return "" if pointer == ffi.NULL else ffi.string(pointer).decode("utf-8", "replace")


def _name(pointer: Any, length: int) -> str:
    """Bytes of a GGUF as text; bytes that are not UTF-8 survive as surrogates."""
    return bytes(ffi.buffer(pointer, length)).decode("utf-8", "surrogateescape") if length else ""


class _Use:
    """A loan of a handle's pointer. (A generator takes more code, which weights evict every step.)"""

    __slots__ = ("_handle",)

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    def __enter__(self) -> Any:
        self._handle._enter()
        return self._handle._pointer

    def __exit__(self, *_: object) -> None:
        self._handle._leave()


class Handle:
    """An owned C object. Subclasses set ``_what`` and are made by their ``open`` functions."""

    _what = "object"

    def __init__(self, pointer: Any, free: Callable[[Any], None], parent: Handle | None = None) -> None:
        self._pointer = pointer
        self._free = free
        self._parent = parent
        self._users = 0
        self._closed = False
        self._lock = threading.RLock()

    def use(self) -> _Use:
        """Lend the pointer to a with block; the object outlives it."""
        return _Use(self)

    def _enter(self) -> None:
        with self._lock:
            if self._closed:
                raise errors.UsageError(f"the {self._what} is closed")
            self._users += 1

    def _leave(self) -> None:
        with self._lock:
            self._users -= 1
            last = self._closed and self._users == 0
        if last:
            self._release()

    def _release(self) -> None:
        pointer, self._pointer = self._pointer, None
        self._free(pointer)
        if self._parent is not None:
            self._parent._leave()

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Forbid further calls, and release the object when nothing uses it any more."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            idle = self._users == 0
        if idle:
            self._release()

    def __del__(self) -> None:
        if hasattr(self, "_closed"):
            self.close()


def _own(cls: type[Any], pointer: Any, free: Callable[[Any], None], parent: Handle | None) -> Any:
    """Wrap a fresh pointer; a parent is held until the new object is released."""
    if parent is not None:
        parent._enter()
    return cls(pointer, free, parent)


@dataclass(frozen=True)
class Tensor:
    """One tensor of a GGUF: ``dims[0]`` is the row length; ``offset`` is absolute, in bytes."""

    name: str
    type: str
    type_id: int
    dims: tuple[int, ...]
    offset: int
    bytes: int


class File(Handle):
    """The header of a GGUF, and the bytes behind it."""

    _what = "model file"

    @classmethod
    def open(cls, fd: int, *, mmap: bool = True) -> File:
        """Map (or read) the GGUF behind ``fd``, which stays the caller's."""
        out = ffi.new("engine_file **")
        _call(lib.engine_file_open, out, fd, int(mmap))
        return cls(out[0], lib.engine_file_free)

    @property
    def bytes(self) -> int:
        with self.use() as file:
            return int(lib.engine_file_bytes(file))

    @property
    def version(self) -> int:
        with self.use() as file:
            return int(lib.engine_file_version(file))

    def keys(self) -> list[str]:
        """Names of the metadata entries, in the file's order."""
        with self.use() as file:
            kv, names = ffi.new("engine_kv *"), []
            for index in range(lib.engine_file_kv_count(file)):
                _call(lib.engine_file_kv, file, index, kv)
                names.append(_name(kv.key, kv.key_len))
            return names

    def value(self, index: int) -> Any:
        """The metadata value at ``index``: a bool, int, float, str, or a list of those."""
        with self.use() as file:
            kv = ffi.new("engine_kv *")
            _call(lib.engine_file_kv, file, index, kv)
            if kv.type == lib.ENGINE_GGUF_STRING:
                return _name(kv.data, kv.data_bytes)
            if kv.type == lib.ENGINE_GGUF_ARRAY and kv.elem_type == lib.ENGINE_GGUF_STRING:
                return self._strings(file, index, kv.count)
            values = np.frombuffer(bytes(ffi.buffer(kv.data, kv.data_bytes)), dtype=_SCALARS[kv.elem_type])
            return values.tolist() if kv.type == lib.ENGINE_GGUF_ARRAY else values[0].item()

    @staticmethod
    def _strings(file: Any, index: int, count: int) -> list[str]:
        found: list[str] = []
        pointers, lengths = ffi.new("const char *[]", _STRING_BATCH), ffi.new("uint64_t[]", _STRING_BATCH)
        while len(found) < count:
            n = min(_STRING_BATCH, count - len(found))
            _call(lib.engine_file_kv_strings, file, index, len(found), n, pointers, lengths)
            found.extend(_name(pointers[i], lengths[i]) for i in range(n))
        return found

    def tensors(self) -> list[Tensor]:
        """All tensors, in the file's order."""
        with self.use() as file:
            raw, found = ffi.new("engine_tensor *"), []
            for index in range(lib.engine_file_tensor_count(file)):
                _call(lib.engine_file_tensor, file, index, raw)
                dims = tuple(raw.dims[i] for i in range(raw.n_dims))
                name = _name(raw.name, raw.name_len)
                shown = type_name(raw.type) or f"type {raw.type}"
                found.append(Tensor(name, shown, raw.type, dims, raw.offset, raw.bytes))
            return found

    def tensor_rows(self, name: str, first: int = 0, count: int | None = None) -> Floats:
        """Rows of a tensor, dequantised: float32 [count, dims[0]]. Rows count over dims 1 to 3."""
        with self.use() as file:
            encoded = name.encode("utf-8", "surrogateescape")
            index = lib.engine_file_find_tensor(file, encoded, len(encoded))
            if index < 0:
                raise errors.UsageError(f"the file has no tensor named '{name}'")
            raw = ffi.new("engine_tensor *")
            _call(lib.engine_file_tensor, file, index, raw)
            rows = raw.dims[1] * raw.dims[2] * raw.dims[3]
            if not 0 <= first <= rows:
                raise errors.UsageError(f"row {first} is outside tensor '{name}', which has {rows} rows")
            count = rows - first if count is None else count
            if not 0 <= count <= rows - first:
                raise errors.UsageError(f"{count} rows from {first} on are more than tensor '{name}' has")
            out = np.empty((count, raw.dims[0]), np.float32)
            _call(lib.engine_file_tensor_rows, file, index, first, count, _floats(out))
            return out


def _floats(array: Floats) -> Any:
    """A ``float *`` to a C-contiguous float32 array, which the caller keeps alive."""
    return ffi.from_buffer("float[]", array, require_writable=True)


def type_name(type_id: int) -> str | None:
    """Name of a ggml type number ("Q4_K"), or None where it is not one that the engine runs."""
    return _c_text(lib.engine_type_name(type_id)) or None


def dequantize(type_id: int, data: bytes, count: int) -> Floats:
    """Decode ``count`` values (a multiple of the block) of a ggml type: float32 [count]."""
    out = np.empty(count, np.float32)
    _call(lib.engine_dequantize, type_id, ffi.from_buffer(data), len(data), count, _floats(out))
    return out


@dataclass(frozen=True)
class VocabInfo:
    """Facts about a vocabulary; ids are None where the model names none.

    With ``add_space_prefix`` a text is tokenised with a space before it, so the bytes of a whole text's
    tokens begin with a space that is not the text's.
    """

    size: int
    bos: int | None
    eos: int | None
    eot: int | None
    unk: int | None
    pad: int | None
    add_bos: bool
    add_eos: bool
    add_space_prefix: bool
    model: str
    pre: str
    unicode: str


class Vocab(Handle):
    """A tokenizer. Immutable, and shared freely between threads."""

    _what = "vocabulary"

    @classmethod
    def open(cls, file: File) -> Vocab:
        """Build the tokenizer of a file; the file may be closed afterwards."""
        out = ffi.new("engine_vocab **")
        with file.use() as pointer:
            _call(lib.engine_vocab_open, out, pointer)
        return cls(out[0], lib.engine_vocab_free)

    @property
    def info(self) -> VocabInfo:
        with self.use() as vocab:
            raw = ffi.new("engine_vocab_info *")
            if lib.engine_vocab_describe(vocab, raw) != lib.ENGINE_OK:
                raise errors.UsageError("the vocabulary cannot be described")
            raw_ids = (raw.bos, raw.eos, raw.eot, raw.unk, raw.pad)
            bos, eos, eot, unk, pad = (None if value < 0 else int(value) for value in raw_ids)
            model, pre, unicode = (_c_text(text) for text in (raw.model, raw.pre, raw.unicode))
            adds = bool(raw.add_bos), bool(raw.add_eos), bool(raw.add_space_prefix)
            return VocabInfo(raw.size, bos, eos, eot, unk, pad, *adds, model, pre, unicode)

    def tokenize(
        self, text: bytes, *, special: bool = False, bos: bool = False, literal: Sequence[Span] = ()
    ) -> list[int]:
        """Token ids of arbitrary bytes.

        ``special``: text of control tokens becomes those tokens, save where it overlaps one of the byte
        spans ``literal`` (ascending, disjoint). ``bos``: add BOS and EOS where the metadata says so.
        """
        flags = (lib.ENGINE_TOKENIZE_SPECIAL if special else 0) | (lib.ENGINE_TOKENIZE_BOS_EOS if bos else 0)
        spans = ffi.new("engine_span[]", [{"begin": begin, "end": end} for begin, end in literal])
        count, capacity = ffi.new("uint64_t *"), len(text) + 16
        err = ffi.new("char[]", ERROR_BYTES)
        given = (text, len(text), flags, spans, len(literal))
        with self.use() as vocab:
            while True:
                out = np.empty(capacity, np.int32)
                target = ffi.from_buffer("int32_t[]", out, require_writable=True)
                status = lib.engine_tokenize(vocab, *given, target, capacity, count, err, ERROR_BYTES)
                if status == lib.ENGINE_OK:
                    return [int(token) for token in out[: count[0]]]
                if status != lib.ENGINE_EINVAL or count[0] <= capacity:
                    raise_status(status, ffi.string(err).decode("utf-8", "replace"))
                capacity = int(count[0])

    def token_bytes(self, token: int, *, special: bool = False) -> bytes:
        """The bytes that a token stands for; control tokens have none unless ``special``."""
        with self.use() as vocab:
            data, length = ffi.new("const char **"), ffi.new("uint64_t *")
            _call(lib.engine_token_bytes, vocab, integer(token, "token id"), int(special), data, length)
            return bytes(ffi.buffer(data[0], length[0])) if length[0] else b""

    def token_text(self, token: int) -> str:
        """The vocabulary's own spelling of a token."""
        with self.use() as vocab:
            data, length = ffi.new("const char **"), ffi.new("uint64_t *")
            _call(lib.engine_token_text, vocab, integer(token, "token id"), data, length)
            return _name(data[0], length[0])

    def token_kind(self, token: int) -> str:
        """ "normal", "control", …; raises UsageError where the id is out of range."""
        with self.use() as vocab:
            kind = TOKEN_KINDS.get(lib.engine_token_kind(vocab, integer(token, "token id")))
        if kind is None:
            raise errors.UsageError(f"token id {token} is outside the vocabulary")
        return kind

    def steering(self) -> list[int]:
        """Ids of control and unknown tokens, of BOS, and of all that end a generation."""
        chosen = {lib.ENGINE_TOKEN_CONTROL, lib.ENGINE_TOKEN_UNKNOWN}
        size, bos = self.info.size, self.info.bos
        with self.use() as vocab:
            return [
                token
                for token in range(size)
                if lib.engine_token_kind(vocab, token) in chosen
                or token == bos
                or lib.engine_token_is_end(vocab, token)
            ]

    def all_token_bytes(self) -> list[bytes]:
        """The bytes of every token in the order of ids; control tokens have none."""
        data, length, found = ffi.new("const char **"), ffi.new("uint64_t *"), []
        err = ffi.new("char[]", ERROR_BYTES)
        with self.use() as vocab:
            for token in range(self.info.size):
                status = lib.engine_token_bytes(vocab, token, 0, data, length, err, ERROR_BYTES)
                if status != lib.ENGINE_OK:
                    raise_status(status, ffi.string(err).decode("utf-8", "replace"))
                found.append(bytes(ffi.buffer(data[0], length[0])) if length[0] else b"")
        return found

    def is_end(self, token: int) -> bool:
        """Whether a token ends a generation (EOS, EOT, …)."""
        with self.use() as vocab:
            return bool(lib.engine_token_is_end(vocab, integer(token, "token id")))


@dataclass(frozen=True)
class ModelInfo:
    """Shape of a model. ``window`` is 0 where attention is not sliding; sizes in bytes or elements."""

    architecture: str
    vocab: int
    width: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    context_train: int
    window: int
    tied_output: bool
    weights_bytes: int


class Weights(Handle):
    """A model's bound weights; holds its file."""

    _what = "model"

    @classmethod
    def load(cls, file: File) -> Weights:
        """Check every tensor against the metadata and bind them."""
        out = ffi.new("engine_model **")
        with file.use() as pointer:
            _call(lib.engine_model_load, out, pointer)
            weights: Weights = _own(cls, out[0], lib.engine_model_free, file)
            return weights

    @property
    def info(self) -> ModelInfo:
        with self.use() as model:
            raw = ffi.new("engine_model_info *")
            if lib.engine_model_describe(model, raw) != lib.ENGINE_OK:
                raise errors.UsageError("the model cannot be described")
            numbers = (raw.vocab, raw.width, raw.layers, raw.heads, raw.kv_heads, raw.head_dim, raw.ffn)
            rest = (raw.context_train, raw.window, bool(raw.tied_output), int(raw.weights_bytes))
            return ModelInfo(_c_text(raw.architecture), *numbers, *rest)


@dataclass(frozen=True)
class ContextOptions:
    """See engine_context_options: counts of positions, sequences, threads and rows."""

    activations: str
    kv: str
    context_tokens: int
    sequences: int
    threads: int
    batch: int
    repack: bool = True


@dataclass(frozen=True)
class Entry:
    """One position to evaluate: a token, or an embedding [width] as if looked up.

    ``pos`` must be the sequence's length, counting earlier entries of the same step. ``want`` is
    "none", "logits" or "hidden".
    """

    token: int = 0
    pos: int = 0
    seq: int = 0
    want: str = "none"
    embedding: Floats | None = None


class Context(Handle):
    """Sequences of evaluated positions; for one caller at a time, except ``cancel``."""

    _what = "session"

    @classmethod
    def new(cls, weights: Weights, options: ContextOptions) -> Context:
        """Make a context; ``weights`` live at least as long."""
        raw = ffi.new("engine_context_options *")
        raw.activations = choice(ACTIVATIONS, options.activations, "activations")
        raw.kv = choice(KV_TYPES, options.kv, "kv")
        for name in ("context_tokens", "sequences", "threads", "batch"):
            setattr(raw, name, integer(getattr(options, name), name))
        raw.no_repack = not options.repack
        out = ffi.new("engine_context **")
        with weights.use() as pointer:
            _call(lib.engine_context_new, out, pointer, raw)
            context: Context = _own(cls, out[0], lib.engine_context_free, weights)
            return context

    @property
    def kv_bytes(self) -> int:
        """Bytes of the KV pages in use now."""
        with self.use() as context:
            return int(lib.engine_context_kv_bytes(context))

    def step(self, entries: Sequence[Entry], row: int, rows: int) -> Floats:
        """Evaluate entries of which ``rows`` want ``row`` floats each: float32 [rows, row]."""
        raw = ffi.new("engine_entry[]", max(1, len(entries)))
        alive: list[Any] = []
        for target, entry in zip(raw, entries, strict=False):
            target.seq, target.pos = integer(entry.seq, "sequence"), integer(entry.pos, "position")
            target.token = integer(entry.token, "token id")
            target.want = choice(WANTS, entry.want, "want")
            if entry.embedding is not None:
                alive.append(ffi.from_buffer("float[]", np.ascontiguousarray(entry.embedding, np.float32)))
                target.embedding = alive[-1]
        return self._step(raw, len(entries), row, rows)

    def step_tokens(self, tokens: Sequence[int], seq: int, first: int, want: str, row: int) -> Floats:
        """Evaluate tokens of one sequence from position ``first`` on; want is "none", "last" or "all"."""
        raw = ffi.new("engine_entry[]", max(1, len(tokens)))
        seq = integer(seq, "sequence")
        for index, token in enumerate(tokens):
            raw[index].seq, raw[index].pos, raw[index].token = seq, first + index, integer(token, "token id")
            raw[index].want = lib.ENGINE_WANT_LOGITS if want == "all" else lib.ENGINE_WANT_NONE
        if want == "last" and len(tokens):
            raw[len(tokens) - 1].want = lib.ENGINE_WANT_LOGITS
        return self._step(raw, len(tokens), row, {"none": 0, "last": 1, "all": len(tokens)}[want])

    def _step(self, raw: Any, count: int, row: int, rows: int) -> Floats:
        out = np.empty((rows, row), np.float32)
        with self.use() as context:
            _call(lib.engine_step, context, raw, count, _floats(out) if rows else ffi.NULL, out.size)
        return out

    def cancel(self, on: bool) -> None:
        """From any thread: make a running or later step stop at its next layer."""
        with self.use() as context:
            lib.engine_context_cancel(context, int(on))

    def length(self, seq: int) -> int:
        """Positions that a sequence holds."""
        with self.use() as context:
            length = int(lib.engine_sequence_length(context, integer(seq, "sequence")))
        if length < 0:
            raise errors.UsageError(f"sequence {seq} is out of range")
        return length

    def truncate(self, seq: int, length: int) -> None:
        """Forget the positions from ``length`` on."""
        with self.use() as context:
            _call(lib.engine_sequence_truncate, context, integer(seq, "sequence"), integer(length, "length"))

    def fork(self, src: int, dst: int) -> None:
        """Make ``dst`` a copy of ``src``."""
        with self.use() as context:
            _call(lib.engine_sequence_fork, context, integer(src, "sequence"), integer(dst, "sequence"))

    def snapshot(self, seq: int) -> bytes:
        """A sequence's state as bytes."""
        with self.use() as context:
            self.length(seq)
            size = int(lib.engine_sequence_snapshot_bytes(context, seq))
            state = ffi.new("char[]", max(1, size))
            _call(lib.engine_sequence_snapshot, context, seq, state, size)
            return bytes(ffi.buffer(state, size))

    def restore(self, seq: int, state: bytes) -> None:
        """Put a sequence into a state that ``snapshot`` gave for this model and these options."""
        with self.use() as context:
            data = ffi.from_buffer(state)
            _call(lib.engine_sequence_restore, context, integer(seq, "sequence"), data, len(state))


def check_embedding(values: Floats, width: int) -> None:
    """Raise UsageError for what is no array of ``width`` real numbers."""
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "fiu":
        raise errors.UsageError(f"an embedding must be a float32 array, not {type(values).__name__}")
    if values.shape != (width,):
        raise errors.UsageError(f"an embedding must have the shape [{width}], not {list(values.shape)}")


def choice(table: dict[str, int], value: str, what: str) -> int:
    """The C constant of an option's name. Raises UsageError for an unknown one."""
    if not isinstance(value, str) or value not in table:
        raise errors.UsageError(f"{what} must be one of {', '.join(table)}, not '{value}'")
    return table[value]


@dataclass(frozen=True)
class SamplerOptions:
    """See engine_sampler_options; the defaults are greedy."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repeat_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    seed: int = 0


def sample(
    logits: Floats,
    options: SamplerOptions,
    history: Sequence[int],
    draw: int,
    mask: Words | None = None,
) -> int:
    """Choose a token from raw logits [vocab]; ``draw`` is its number within the generation.

    ``mask``: choose among the tokens whose bit is set, uint32 [(vocab + 31) // 32].
    """
    raw = ffi.new("engine_sampler_options *", vars(options))
    past, token = ffi.new("int32_t[]", list(history)), ffi.new("int32_t *")
    values = np.ascontiguousarray(logits, np.float32)
    pointer = ffi.from_buffer("float[]", values)
    words = ffi.NULL if mask is None else ffi.from_buffer("uint32_t[]", np.ascontiguousarray(mask, np.uint32))
    bits = (words, 0 if mask is None else len(mask))
    _call(lib.engine_sample_masked, pointer, values.size, *bits, raw, past, len(history), draw, token)
    return int(token[0])


def log_softmax(logits: Floats) -> Floats:
    """Natural log-probabilities: float32 [vocab]."""
    values = np.ascontiguousarray(logits, np.float32)
    out = np.empty_like(values)
    _call(lib.engine_log_softmax, ffi.from_buffer("float[]", values), values.size, _floats(out))
    return out


def top(values: Floats, count: int) -> list[int]:
    """Ids of the ``count`` largest values, descending; ties by ascending id."""
    data = np.ascontiguousarray(values, np.float32)
    count = min(count, data.size)
    ids = ffi.new("int32_t[]", max(1, count))
    _call(lib.engine_top, ffi.from_buffer("float[]", data), data.size, count, ids)
    return [int(ids[i]) for i in range(count)]


def selftest() -> None:
    """Run the known-answer test of the arithmetic; raises SelfTestError."""
    _call(lib.engine_selftest)


@dataclass(frozen=True)
class Build:
    """What this library is: version, contract revisions, compiler, flags, kernels in use."""

    version: str
    numerics: str
    tokenizer: str
    compiler: str
    flags: str
    kernel_set: str


def build() -> Build:
    """Describe the loaded library."""
    return Build(
        _c_text(lib.engine_version()),
        _c_text(lib.engine_numerics()),
        _c_text(lib.engine_tokenizer_revision()),
        _c_text(lib.engine_compiler()),
        _c_text(lib.engine_build_flags()),
        _c_text(lib.engine_kernel_set()),
    )


def measure_read(size: int, threads: int, repetitions: int) -> float:
    """Bytes per second that a plain loop reads from memory; ``size`` is a multiple of 4096."""
    out = ffi.new("double *")
    _call(
        lib.engine_measure_read, size, integer(threads, "threads"), integer(repetitions, "repetitions"), out
    )
    return float(out[0])


def measure_dot(threads: int, repetitions: int) -> tuple[float, str]:
    """int8 products per second in registers, and the instruction that makes them."""
    out, name = ffi.new("double *"), ffi.new("const char **")
    _call(lib.engine_measure_dot, integer(threads, "threads"), integer(repetitions, "repetitions"), out, name)
    return float(out[0]), _c_text(name[0])


def library_path() -> str:
    """Path of the extension module's file, for hashing."""
    from engine import _engine

    return str(_engine.__file__)
