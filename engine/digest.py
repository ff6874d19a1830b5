"""The logits digest ``gblogits/1``: portable evidence of what was computed.

SHA-256 over the ASCII line ``gblogits/1 <numerics> <activations> <kv>\\n``, the number of positions
(u32 LE), the vocabulary (u32 LE), then the logits as f32 LE, rows ascending.
"""

from __future__ import annotations

import hashlib
import struct

import numpy as np

from engine import native
from engine.errors import NonFiniteError, UsageError
from engine.native import Floats

ALGORITHM = "gblogits/1"


class LogitsDigest:
    """The digest of rows that arrive in parts; their number is fixed beforehand."""

    def __init__(self, positions: int, vocab: int, *, activations: str, kv: str) -> None:
        native.choice(native.ACTIVATIONS, activations, "activations")
        native.choice(native.KV_TYPES, kv, "kv")
        self._vocab, self._missing, self._row = vocab, positions, 0
        line = f"{ALGORITHM} {native.build().numerics} {activations} {kv}\n"
        self._hash = hashlib.sha256(line.encode("ascii") + struct.pack("<II", positions, vocab))

    def update(self, rows: Floats) -> None:
        """Add rows, float32 [n, vocab]. Raises NonFiniteError on a NaN or an infinity."""
        if rows.ndim != 2 or rows.shape[1] != self._vocab or rows.dtype != np.float32:
            raise UsageError(f"rows must be float32 [n, {self._vocab}], not {rows.dtype} {list(rows.shape)}")
        if len(rows) > self._missing:
            raise UsageError(f"{len(rows)} rows are more than the {self._missing} that are missing")
        finite = np.isfinite(rows).all(axis=1)
        if not finite.all():
            row = self._row + int(np.argmin(finite))
            raise NonFiniteError(f"row {row} holds a NaN or an infinity: it has no digest")
        self._hash.update(np.ascontiguousarray(rows, "<f4").tobytes())
        self._missing -= len(rows)
        self._row += len(rows)

    def hexdigest(self) -> str:
        """The digest in lower-case hex, once every row is there."""
        if self._missing:
            raise UsageError(f"{self._missing} rows are missing")
        return self._hash.hexdigest()


def logits_digest(rows: Floats, *, activations: str, kv: str) -> str:
    """The ``gblogits/1`` digest of float32 [positions, vocab]."""
    if rows.ndim != 2:
        raise UsageError(f"rows must be float32 [positions, vocab], not {list(rows.shape)}")
    digest = LogitsDigest(rows.shape[0], rows.shape[1], activations=activations, kv=kv)
    digest.update(rows)
    return digest.hexdigest()
