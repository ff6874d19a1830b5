"""The child process behind ``llama_cpp.LlamaCpp``: calls llama.cpp's C interface through cffi.

The declarations below are those of llama.cpp's ``llama.h`` at build b11549. A library built from
another header would read garbage, so the default parameters, which are known, are checked field by
field before anything else happens: a mismatch refuses the library by name.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import cffi
import numpy as np
from numpy.typing import NDArray

from certify.references.llama_cpp import receive_frame, send_frame
from certify.references.llama_timing import Timing, TimingError

DECLARATIONS = """
typedef int32_t llama_token, llama_pos, llama_seq_id;
typedef struct llama_model llama_model;
typedef struct llama_context llama_context;
typedef struct llama_vocab llama_vocab;
typedef void *llama_memory_t;
typedef struct {
    int32_t n_tokens;
    llama_token *token; float *embd; llama_pos *pos;
    int32_t *n_seq_id; llama_seq_id **seq_id; int8_t *logits;
} llama_batch;
typedef struct {
    void *devices; const void *tensor_buft_overrides;
    int32_t n_gpu_layers, split_mode, load_mode, lazy_mode, main_gpu;
    const float *tensor_split; void *progress_callback; void *progress_callback_user_data;
    const void *kv_overrides;
    bool vocab_only, check_tensors, use_extra_bufts, no_host, no_alloc, load_mtp;
} llama_model_params;
typedef struct {
    uint32_t n_ctx, n_batch, n_ubatch, n_seq_max, n_rs_seq, n_outputs_max, n_outputs_max_per_seq;
    int32_t n_threads, n_threads_batch;
    int32_t ctx_type, rope_scaling_type, pooling_type, attention_type, flash_attn_type;
    float rope_freq_base, rope_freq_scale, yarn_ext_factor, yarn_attn_factor, yarn_beta_fast, yarn_beta_slow;
    uint32_t yarn_orig_ctx; float defrag_thold;
    void *cb_eval; void *cb_eval_user_data;
    int32_t type_k, type_v;
    size_t moe_cache_size;
    void *abort_callback; void *abort_callback_data;
    bool embeddings, offload_kqv, no_perf, op_offload, swa_full, kv_unified;
    void *samplers; size_t n_samplers; void *ctx_other;
} llama_context_params;
const char *llama_version(void);
const char *llama_print_system_info(void);
void llama_log_set(void (*callback)(int, const char *, void *), void *user_data);
void llama_backend_init(void);
llama_model_params llama_model_default_params(void);
llama_context_params llama_context_default_params(void);
llama_model *llama_model_load_from_file(const char *path, llama_model_params params);
llama_context *llama_init_from_model(llama_model *model, llama_context_params params);
void llama_free(llama_context *ctx);
const llama_vocab *llama_model_get_vocab(const llama_model *model);
int32_t llama_vocab_n_tokens(const llama_vocab *vocab);
bool llama_vocab_is_eog(const llama_vocab *vocab, llama_token token);
int32_t llama_tokenize(const llama_vocab *vocab, const char *text, int32_t text_len, llama_token *tokens,
                       int32_t n_tokens_max, bool add_special, bool parse_special);
int32_t llama_detokenize(const llama_vocab *vocab, const llama_token *tokens, int32_t n_tokens, char *text,
                         int32_t text_len_max, bool remove_special, bool unparse_special);
int32_t llama_decode(llama_context *ctx, llama_batch batch);
float *llama_get_logits_ith(llama_context *ctx, int32_t i);
llama_memory_t llama_get_memory(const llama_context *ctx);
void llama_memory_clear(llama_memory_t mem, bool data);
bool llama_memory_seq_rm(llama_memory_t mem, llama_seq_id seq, llama_pos p0, llama_pos p1);
void llama_set_n_threads(llama_context *ctx, int32_t n_threads, int32_t n_threads_batch);
void llama_synchronize(llama_context *ctx);
llama_batch llama_batch_get_one(llama_token *tokens, int32_t n_tokens);
size_t llama_state_seq_get_size(llama_context *ctx, llama_seq_id seq);
size_t llama_state_seq_get_data(llama_context *ctx, uint8_t *out, size_t size, llama_seq_id seq);
size_t llama_state_seq_set_data(llama_context *ctx, const uint8_t *src, size_t size, llama_seq_id seq);
"""

CONTEXT_DEFAULTS = {
    "n_ctx": 512, "n_batch": 2048, "n_ubatch": 512, "n_seq_max": 1, "n_rs_seq": 0, "n_outputs_max": 0,
    "n_outputs_max_per_seq": 1, "n_threads": 4, "n_threads_batch": 4, "ctx_type": 0,
    "rope_scaling_type": -1, "pooling_type": -1, "attention_type": -1, "flash_attn_type": -1,
    "rope_freq_base": 0.0, "rope_freq_scale": 0.0, "yarn_ext_factor": -1.0, "yarn_attn_factor": -1.0,
    "yarn_beta_fast": -1.0, "yarn_beta_slow": -1.0, "yarn_orig_ctx": 0, "defrag_thold": -1.0,
    "cb_eval": None, "cb_eval_user_data": None, "type_k": 1, "type_v": 1, "moe_cache_size": 0,
    "abort_callback": None, "abort_callback_data": None, "embeddings": False, "offload_kqv": True,
    "no_perf": True, "op_offload": True, "swa_full": True, "kv_unified": False,
    "samplers": None, "n_samplers": 0, "ctx_other": None,
}  # fmt: skip
MODEL_DEFAULTS = {
    "devices": None, "tensor_buft_overrides": None, "n_gpu_layers": -1, "split_mode": 1, "load_mode": -1,
    "lazy_mode": 1, "main_gpu": 0, "tensor_split": None, "progress_callback": None,
    "progress_callback_user_data": None, "kv_overrides": None, "vocab_only": False, "check_tensors": False,
    "use_extra_bufts": True, "no_host": False, "no_alloc": False, "load_mtp": False,
}  # fmt: skip
KV_TYPES = {"f32": 0, "f16": 1}  # ggml_type
FLASH = {None: -1, False: 0, True: 1}
LOG_WARNING = 3


class Refused(Exception):
    """Sent to the parent as the answer to its request."""


def differing_fields(struct: Any, expected: dict[str, Any], null: Any) -> list[str]:
    """Fields of a default struct that do not hold their known value."""
    wrong = []
    for field, want in expected.items():
        have = getattr(struct, field)
        if (have != null) if want is None else (have != want):
            wrong.append(f"{field}={have!r} instead of {want!r}")
    return wrong


def load_library(path: str) -> tuple[Any, Any]:
    """``(ffi, lib)``, untyped: their attributes exist only at run time."""
    ffi = cffi.FFI()
    ffi.cdef(DECLARATIONS)
    return ffi, ffi.dlopen(path)


class Worker:
    """llama.cpp with one model; contexts are kept as long as the options stay the same."""

    def __init__(self, library: str, model: str, threads: int) -> None:
        self.ffi, self.lib = load_library(library)
        self.log: deque[str] = deque(maxlen=12)
        self._callback = self.ffi.callback("void(int, const char *, void *)", self._remember)
        self.lib.llama_log_set(self._callback, self.ffi.NULL)
        self._refuse_other_layout()
        self.lib.llama_backend_init()
        self.path, self.threads = model, threads
        self.model = self._load(vocab_only=True)
        self.has_weights = False
        self.vocab = self.lib.llama_model_get_vocab(self.model)
        self.n_vocab = int(self.lib.llama_vocab_n_tokens(self.vocab))
        self.context: Any = None
        self.context_key: tuple[Any, ...] = ()
        self.cached: list[int] = []
        self.timing: Timing | None = None

    def _remember(self, level: int, text: Any, _user: Any) -> None:
        if level >= LOG_WARNING:
            self.log.append(self.ffi.string(text).decode(errors="replace").strip())

    def _refuse_other_layout(self) -> None:
        null = self.ffi.NULL
        wrong = differing_fields(self.lib.llama_context_default_params(), CONTEXT_DEFAULTS, null)
        wrong += differing_fields(self.lib.llama_model_default_params(), MODEL_DEFAULTS, null)
        if wrong:
            raise Refused(
                "the library's parameter structs are not those of llama.cpp b11549 "
                f"({'; '.join(wrong[:4])}): install the pinned xllamacpp"
            )

    def _load(self, *, vocab_only: bool) -> Any:
        params = self.lib.llama_model_default_params()
        params.vocab_only = vocab_only
        params.n_gpu_layers = 0
        model = self.lib.llama_model_load_from_file(os.fsencode(self.path), params)
        if model == self.ffi.NULL:
            raise Refused(f"it cannot load {os.path.basename(self.path)}: {' '.join(self.log)}")  # noqa: PTH119
        return model

    def describe(self) -> dict[str, Any]:
        info = self.ffi.string(self.lib.llama_print_system_info()).decode(errors="replace")
        features = [name.lower() for name in re.findall(r"(\w+) = 1\b", info)]
        version = self.ffi.string(self.lib.llama_version()).decode(errors="replace")
        return {"vocab": self.n_vocab, "cpu_features": sorted(set(features)), "version": version}

    def tokenize(self, text: bytes, special: bool) -> NDArray[np.int32]:
        capacity = len(text) + 16
        out = self.ffi.new("llama_token[]", capacity)
        n = self.lib.llama_tokenize(self.vocab, text, len(text), out, capacity, False, special)
        if n < 0:
            capacity = -n
            out = self.ffi.new("llama_token[]", capacity)
            n = self.lib.llama_tokenize(self.vocab, text, len(text), out, capacity, False, special)
        if n < 0:
            raise Refused(f"llama_tokenize answered {n} for {len(text)} bytes")
        return np.frombuffer(self.ffi.buffer(out, n * 4), dtype="<i4").copy() if n else np.zeros(0, "<i4")

    def detokenize(self, ids: NDArray[np.int32], special: bool) -> bytes:
        self._check_ids(ids)
        tokens = self.ffi.cast("llama_token *", self.ffi.from_buffer(ids))
        capacity = 32 * len(ids) + 64
        for _ in range(2):
            out = self.ffi.new("char[]", capacity)
            n = self.lib.llama_detokenize(self.vocab, tokens, len(ids), out, capacity, False, special)
            if n >= 0:
                return bytes(self.ffi.buffer(out, n))
            capacity = -n
        raise Refused(f"llama_detokenize answered {n}")

    def is_end(self, token: int) -> bool:
        self._check_ids(np.asarray([token]))
        return bool(self.lib.llama_vocab_is_eog(self.vocab, token))

    def rows(
        self, ids: NDArray[np.int32], positions: list[int], options: dict[str, Any]
    ) -> Iterator[tuple[list[int], bytes]]:
        """Yield (positions, float32 rows) batch by batch; evaluates up to the last position wanted."""
        self._check_ids(ids)
        if not positions:
            raise Refused("no position was asked for")
        if positions[0] < 0 or positions[-1] >= len(ids):
            raise Refused(f"positions {positions[0]} … {positions[-1]} are not all in the prompt")
        wanted = set(positions)
        start = self._prepare(ids, options, len(ids), first_wanted=positions[0])
        batch = options["batch"]
        for begin in range(start, positions[-1] + 1, batch):
            end = min(begin + batch, positions[-1] + 1)
            asked = [p for p in range(begin, end) if p in wanted]
            self._decode(ids[begin:end], begin, asked)
            if asked:
                yield asked, b"".join(self._row(p - begin) for p in asked)

    def greedy(
        self, ids: NDArray[np.int32], n: int, stop: bool, options: dict[str, Any]
    ) -> Iterator[tuple[int, bytes]]:
        """Yield (pick, the float32 row that it came from)."""
        row = b""
        for _, block in self.rows(ids, [len(ids) - 1], options | {"room": n}):
            row = block
        for at in range(len(ids), len(ids) + n):
            pick = int(np.frombuffer(row, dtype="<f4").argmax())
            yield pick, row
            if at == len(ids) + n - 1 or (stop and self.is_end(pick)):
                return
            self._decode(np.asarray([pick], dtype="<i4"), at, [at])
            row = self._row(0)

    def seconds(self, ids: NDArray[np.int32], before: int, options: dict[str, Any]) -> float:
        """Seconds to evaluate what stands behind the first ``before`` ids."""
        self._check_ids(ids)
        if self.timing is None:
            self._load_weights()
            self.timing = Timing(
                self.lib,
                self.model,
                array=lambda part: self.ffi.new("llama_token[]", part),
                buffer=lambda size: self.ffi.new("uint8_t[]", size),
                absent=lambda pointer: pointer == self.ffi.NULL,
            )
        known, rest = ids[:before].tolist(), ids[before:].tolist()
        how = {name: options[name] for name in ("together", "flash", "threads")}
        return self.timing.seconds(known, rest, **how)

    def _load_weights(self) -> None:
        if not self.has_weights:
            self.model = self._load(vocab_only=False)  # the vocabulary of the first handle stays valid
            self.has_weights = True

    def _prepare(self, ids: NDArray[np.int32], options: dict[str, Any], n: int, *, first_wanted: int) -> int:
        """A context that holds ``n`` positions; returns the first position still to evaluate."""
        batch = options["batch"]
        if batch < 1:
            raise Refused(f"a batch of {batch} tokens cannot be evaluated")
        needed = -(-(n + options.get("room", 0)) // 256) * 256
        key = (options["flash_attention"], batch, options["kv"])
        if self.context is None or self.context_key[:3] != key or self.context_key[3] < needed:
            self._new_context(key, needed)
        memory = self.lib.llama_get_memory(self.context)
        keep = 0
        if not options["cold"]:
            while keep < min(len(self.cached), first_wanted) and self.cached[keep] == ids[keep]:
                keep += 1
            if not self.lib.llama_memory_seq_rm(memory, 0, keep, -1):
                keep = 0
        if keep == 0:
            self.lib.llama_memory_clear(memory, True)
        self.cached = self.cached[:keep]
        return keep

    def _new_context(self, key: tuple[Any, ...], needed: int) -> None:
        self._load_weights()
        if self.context is not None:
            self.lib.llama_free(self.context)
            self.context = None
        params = self.lib.llama_context_default_params()
        flash, batch, kv = key
        params.n_ctx, params.n_batch, params.n_ubatch = needed, batch, batch
        params.n_outputs_max_per_seq = 0
        params.n_threads = params.n_threads_batch = self.threads
        params.flash_attn_type = FLASH[flash]
        params.type_k = params.type_v = KV_TYPES[kv]
        context = self.lib.llama_init_from_model(self.model, params)
        if context == self.ffi.NULL:
            raise Refused(f"it cannot make a context of {needed} tokens: {' '.join(self.log)}")
        self.context, self.context_key, self.cached = context, (*key, needed), []

    def _decode(self, ids: NDArray[np.int32], begin: int, asked: list[int]) -> None:
        n = len(ids)
        tokens = self.ffi.new("llama_token[]", ids.tolist())
        positions = self.ffi.new("llama_pos[]", list(range(begin, begin + n)))
        counts = self.ffi.new("int32_t[]", [1] * n)
        zero = self.ffi.new("llama_seq_id[]", [0])
        sequences = self.ffi.new("llama_seq_id *[]", [zero] * n)
        outputs = self.ffi.new("int8_t[]", [1 if begin + i in set(asked) else 0 for i in range(n)])
        batch = self.ffi.new(
            "llama_batch *", [n, tokens, self.ffi.NULL, positions, counts, sequences, outputs]
        )
        status = self.lib.llama_decode(self.context, batch[0])
        if status != 0:
            self.cached = []
            raise Refused(f"llama_decode answered {status} at position {begin}: {' '.join(self.log)}")
        self.cached = self.cached[:begin] + ids.tolist()

    def _row(self, index: int) -> bytes:
        row = self.lib.llama_get_logits_ith(self.context, index)
        if row == self.ffi.NULL:
            raise Refused(f"llama_get_logits_ith({index}) gave nothing")
        return bytes(self.ffi.buffer(row, self.n_vocab * 4))

    def _check_ids(self, ids: NDArray[Any]) -> None:
        if len(ids) and (int(ids.min()) < 0 or int(ids.max()) >= self.n_vocab):
            raise Refused(f"a token id is outside 0 … {self.n_vocab - 1}")
        if not len(ids):
            raise Refused("the prompt is empty")


def answer(worker: Worker, sock: socket.socket, head: dict[str, Any], payload: bytearray) -> None:
    """Carry out one request and send what it yields."""
    op = head["op"]
    with_ids = ("detokenize", "rows", "greedy", "seconds")
    ids = np.frombuffer(payload, dtype="<i4").copy() if op in with_ids else None
    if op == "tokenize":
        send_frame(sock, {}, worker.tokenize(bytes(payload), head["special"]).tobytes())
    elif op == "detokenize":
        text = worker.detokenize(ids, head["special"]) if ids is not None and len(ids) else b""
        send_frame(sock, {}, text)
    elif op == "is_end":
        send_frame(sock, {"value": worker.is_end(head["token"])})
    elif op == "seconds" and ids is not None:
        send_frame(sock, {"seconds": worker.seconds(ids, head["before"], head)})
    elif op == "rows" and ids is not None:
        for positions, block in worker.rows(ids, head["positions"], head):
            send_frame(sock, {"positions": positions}, block)
        send_frame(sock, {"done": True})
    elif op == "greedy" and ids is not None:
        for pick, row in worker.greedy(ids, head["n"], head["stop"], head):
            send_frame(sock, {"pick": pick}, row if head["logits"] else b"")
        send_frame(sock, {"done": True})
    else:
        raise Refused(f"unknown request {op!r}")


def serve(sock: socket.socket) -> None:
    """Answer requests until the parent closes its end."""
    worker: Worker | None = None
    refuse: Callable[[str], None] = lambda text: send_frame(sock, {"error": text})  # noqa: E731
    while True:
        try:
            head, payload = receive_frame(sock)
        except EOFError:
            return
        try:
            if head["op"] == "open":
                worker = Worker(head["library"], head["model"], head["threads"])
                send_frame(sock, worker.describe())
            elif worker is None:
                refuse("no model is open")
            else:
                answer(worker, sock, head, payload)
        except (Refused, TimingError) as error:
            refuse(str(error))
        except OSError as error:
            refuse(f"cannot load the library: {error}")


def main() -> None:
    """``python -m certify.references.llama_cpp_worker FD``."""
    sock = socket.socket(fileno=int(sys.argv[1]))
    try:
        serve(sock)
    except (BrokenPipeError, ConnectionResetError):
        pass
    finally:
        sys.stderr.flush()
        os._exit(0)  # llama.cpp's static destructors are not worth waiting for


if __name__ == "__main__":
    main()
