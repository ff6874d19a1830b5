"""The digest gblogits/1 is what contracts.md says, byte for byte."""

from __future__ import annotations

import hashlib
import struct

import numpy as np
import pytest

from engine import native
from engine.digest import LogitsDigest, logits_digest
from engine.errors import NonFiniteError, UsageError

ROWS = np.array([[1.5, -0.0, 3.25], [4.0, 5.0, -6e-40]], np.float32)


def by_hand(rows: np.ndarray, line: bytes) -> str:
    packed = b"".join(struct.pack("<f", value) for value in rows.ravel())
    return hashlib.sha256(line + struct.pack("<II", *rows.shape) + packed).hexdigest()


def test_the_preimage_is_the_documented_one() -> None:
    assert native.build().numerics == "gb1"
    assert logits_digest(ROWS, activations="wide", kv="f16") == by_hand(ROWS, b"gblogits/1 gb1 wide f16\n")
    assert logits_digest(ROWS, activations="int8", kv="q8") == by_hand(ROWS, b"gblogits/1 gb1 int8 q8\n")


def test_parts_and_layout_do_not_matter() -> None:
    digest = LogitsDigest(2, 3, activations="f32", kv="f32")
    digest.update(ROWS[:1])
    digest.update(np.asfortranarray(ROWS)[1:])
    assert digest.hexdigest() == logits_digest(ROWS, activations="f32", kv="f32")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_has_no_digest(bad: float) -> None:
    rows = ROWS.copy()
    rows[1, 2] = bad
    with pytest.raises(NonFiniteError, match="row 1"):
        logits_digest(rows, activations="wide", kv="f16")


def test_misuse_is_refused() -> None:
    digest = LogitsDigest(2, 3, activations="wide", kv="f16")
    digest.update(ROWS[:1])
    with pytest.raises(UsageError, match="1 rows are missing"):
        digest.hexdigest()
    with pytest.raises(UsageError, match="more than the 1"):
        digest.update(ROWS)
    for rows in (ROWS[:, :2], ROWS.astype(np.float64), ROWS[0]):
        with pytest.raises(UsageError):
            digest.update(rows)
    with pytest.raises(UsageError, match="activations"):
        logits_digest(ROWS, activations="f16", kv="f16")
    with pytest.raises(UsageError):
        logits_digest(ROWS[0], activations="wide", kv="f16")
