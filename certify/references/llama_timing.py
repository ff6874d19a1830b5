"""How long llama.cpp takes, measured inside its own process with the calls that ``llama-bench`` makes.

Works on either binding (cffi over the ``xllamacpp`` wheel, ctypes of ``llama-cpp-python``), given as an
object whose attributes are the functions of ``llama.h``. Standard library only: it also runs in the
Python that holds a user's ``llama-cpp-python``, where this project is not installed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

BATCH, MICRO_BATCH = 2048, 512  # the defaults of llama-bench
FLASH = {"auto": -1, "off": 0, "on": 1}


class TimingError(Exception):
    """llama.cpp refused a call; the text says which."""


class Timing:
    """One loaded model. Contexts, and the state behind a depth, are kept while the size stays the same.

    ``array`` makes a C array of token ids, ``buffer`` one of bytes; ``absent`` says whether a pointer is
    null.
    """

    def __init__(
        self,
        api: Any,
        model: Any,
        *,
        array: Callable[[Sequence[int]], Any],
        buffer: Callable[[int], Any],
        absent: Callable[[Any], bool],
    ) -> None:
        self._api, self._model = api, model
        self._array, self._buffer, self._absent = array, buffer, absent
        self._size = 0
        self._contexts: dict[str, Any] = {}
        self._states: dict[tuple[str, tuple[int, ...]], tuple[Any, int]] = {}

    def seconds(
        self, before: Sequence[int], ids: Sequence[int], *, together: bool, flash: str, threads: int
    ) -> float:
        """Seconds to evaluate ``ids`` behind ``before``: all at once, or one by one; logits of the last."""
        context = self._context(flash, len(before) + len(ids))
        self._restore(context, flash, before, threads)
        step = BATCH if together else 1
        parts = [self._array(ids[i : i + step]) for i in range(0, len(ids), step)]
        sizes = [min(step, len(ids) - i) for i in range(0, len(ids), step)]
        self._api.llama_set_n_threads(context, threads, threads)
        begin = time.perf_counter()
        for part, size in zip(parts, sizes):  # noqa: B905 (older Pythons lack strict)
            self._decode(context, part, size)
            self._api.llama_synchronize(context)
        return time.perf_counter() - begin

    def _decode(self, context: Any, tokens: Any, count: int) -> None:
        status = self._api.llama_decode(context, self._api.llama_batch_get_one(tokens, count))
        if status != 0:
            raise TimingError(f"llama_decode answered {status} for {count} tokens")

    def _context(self, flash: str, positions: int) -> Any:
        size = -(-positions // 256) * 256
        if size != self._size:
            self.close()
            self._size = size
        if flash not in self._contexts:
            params = self._api.llama_context_default_params()
            params.n_ctx, params.n_batch, params.n_ubatch = size, BATCH, MICRO_BATCH
            params.flash_attn_type = FLASH[flash]
            params.swa_full = False  # as llama-bench does: a window's cache is no longer than it must be
            params.no_perf = True
            context = self._api.llama_init_from_model(self._model, params)
            if self._absent(context):
                raise TimingError(f"it cannot make a context of {size} tokens (flash attention {flash})")
            self._contexts[flash] = context
        return self._contexts[flash]

    def _restore(self, context: Any, flash: str, before: Sequence[int], threads: int) -> None:
        """Bring the context to the state behind ``before``; computed once, then kept as bytes."""
        api = self._api
        api.llama_memory_clear(api.llama_get_memory(context), True)
        if not before:
            return
        key = (flash, tuple(before))
        if key in self._states:
            state, size = self._states[key]
            if api.llama_state_seq_set_data(context, state, size, 0) == 0:
                raise TimingError("llama_state_seq_set_data refused its own state")
            return
        api.llama_set_n_threads(context, threads, threads)
        for begin in range(0, len(before), BATCH):
            part = before[begin : begin + BATCH]
            self._decode(context, self._array(part), len(part))
        api.llama_synchronize(context)
        size = int(api.llama_state_seq_get_size(context, 0))
        state = self._buffer(size)
        if api.llama_state_seq_get_data(context, state, size, 0) != size:
            raise TimingError("llama_state_seq_get_data gave another size than it had said")
        self._states[key] = (state, size)

    def close(self) -> None:
        """Free the contexts; the model stays the caller's."""
        for context in self._contexts.values():
            self._api.llama_free(context)
        self._contexts.clear()
        self._states.clear()
