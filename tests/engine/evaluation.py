"""The C core through cffi, without ``engine``'s Python classes: what the oracle tests drive."""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from engine._engine import ffi, lib

Rows = npt.NDArray[np.float32]
ACTIVATIONS = {"wide": 0, "int8": 1, "f32": 2}
KV = {"f16": 0, "f32": 1, "q8": 2}
ERR = 512


class CoreError(Exception):
    """A status other than ENGINE_OK: ``status`` and the core's sentence."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"status {status}: {text}")
        self.status = status


def call(function: Any, *arguments: Any) -> None:
    """Call a function of the core that ends in ``err, errlen``; raises CoreError."""
    err = ffi.new("char[]", ERR)
    status = function(*arguments, err, ERR)
    if status != lib.ENGINE_OK:
        raise CoreError(status, ffi.string(err).decode("utf-8", "replace"))


@dataclass(frozen=True)
class Core:
    """A loaded model. Contexts are made and freed per evaluation."""

    handle: Any
    vocab: int

    def logits(
        self,
        ids: Sequence[int],
        *,
        activations: str = "wide",
        kv: str = "f16",
        threads: int = 1,
        batch: int = 512,
        steps: Sequence[int] = (),
        beside: Sequence[int] = (),
    ) -> Rows:
        """Logits [n, vocab] of all positions of one sequence, fed in steps of the given sizes.

        ``beside`` is another sequence, one position of which stands before each of ours.
        """
        modes = ACTIVATIONS[activations], KV[kv]
        room = max(len(ids), len(beside), 1)
        options = ffi.new("engine_context_options *", [*modes, room, 2 if beside else 1, threads, batch])
        out = ffi.new("engine_context **")
        call(lib.engine_context_new, out, self.handle, options)
        rows = np.empty((len(ids), self.vocab), np.float32)
        try:
            start = 0
            for size in steps or (len(ids),):
                entries = _entries(ids, beside, start, size)
                part = rows[start : start + size]
                target = ffi.cast("float *", part.ctypes.data)
                call(lib.engine_step, out[0], entries, len(entries), target, part.size)
                start += size
        finally:
            lib.engine_context_free(out[0])
        assert start == len(ids)
        return rows


def _entries(ids: Sequence[int], beside: Sequence[int], start: int, size: int) -> Any:
    """Entries of positions start to start + size of sequence 0, those of sequence 1 between them."""
    want, null = lib.ENGINE_WANT_LOGITS, ffi.NULL
    rows: list[tuple[Any, ...]] = []
    for i in range(start, start + size):
        if i < len(beside):
            rows.append((1, i, beside[i], lib.ENGINE_WANT_NONE, null))
        rows.append((0, i, ids[i], want, null))
    return ffi.new("engine_entry[]", rows)


@contextmanager
def opened(path: Path) -> Iterator[Core]:
    """The model at ``path``, freed on leaving."""
    file, model = ffi.new("engine_file **"), ffi.new("engine_model **")
    fd = os.open(path, os.O_RDONLY)
    try:
        call(lib.engine_file_open, file, fd, 1)
    finally:
        os.close(fd)
    try:
        call(lib.engine_model_load, model, file[0])
        try:
            info = ffi.new("engine_model_info *")
            lib.engine_model_describe(model[0], info)
            yield Core(model[0], info.vocab)
        finally:
            lib.engine_model_free(model[0])
    finally:
        lib.engine_file_free(file[0])


def digest(rows: Rows, activations: str, kv: str) -> str:
    """``gblogits/1`` of logits [n, vocab], as contracts.md defines it."""
    head = f"gblogits/1 {ffi.string(lib.engine_numerics()).decode()} {activations} {kv}\n".encode()
    return hashlib.sha256(head + struct.pack("<II", *rows.shape) + rows.astype("<f4").tobytes()).hexdigest()
