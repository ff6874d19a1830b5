"""IEEE binary32 arithmetic in numpy, with a fused multiply-add built from binary64.

Additions, products, quotients and roots of float32 arrays are IEEE operations in numpy already.
numpy has no fma: here the product is formed exactly in binary64 (48 bits), the sum is rounded
*to odd* there, and rounding that once more to binary32 is then correct (Boldo and Melquiond,
"Emulation of FMA and correctly rounded sums", 2008).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]


def f32(value: float) -> np.float32:
    """A constant, rounded once."""
    return np.float32(value)


def fma(a: Any, b: Any, c: Any) -> F32:
    """a * b + c in one rounding, elementwise with broadcasting."""
    product = np.asarray(a, np.float64) * np.asarray(b, np.float64)  # exact
    addend = np.asarray(c, np.float64)
    total = product + addend
    # What the rounding of the sum lost (Knuth's TwoSum), exact.
    virtual = total - product
    lost = (product - (total - virtual)) + (addend - virtual)
    bits = np.atleast_1d(total).view(np.int64)
    even = (bits & 1) == 0
    lost = np.broadcast_to(np.atleast_1d(lost), bits.shape)
    # Towards what was lost: one step away from zero if it has the sign of the sum, else back.
    step = np.where((lost > 0) == (np.atleast_1d(total) > 0), 1, -1)
    odd = np.where((lost != 0) & even, bits + step, bits)
    rounded: F32 = odd.view(np.float64).reshape(total.shape).astype(np.float32)
    return rounded


def exp(x: F32) -> F32:
    """exp for x <= 0, as docs/numerics.md defines it; 0 below -87."""
    safe = np.where(x >= f32(-87.0), x, f32(0.0)).astype(np.float32)
    magic = f32(12582912.0)
    z = fma(safe, f32(float.fromhex("0x1.715476p+0")), magic)
    n = z - magic
    r = fma(n, f32(float.fromhex("-0x1.62e4p-1")), safe)
    r = fma(n, f32(float.fromhex("-0x1.7f7d1cp-20")), r)
    p: Any = f32(float.fromhex("0x1.6a2430p-10"))
    for c in ("0x1.1239e4p-7", "0x1.5558f2p-5", "0x1.555492p-3", "0x1.fffffcp-2", "0x1p0", "0x1p0"):
        p = fma(p, r, f32(float.fromhex(c)))
    y = np.ldexp(p, n.astype(np.int32)).astype(np.float32)
    return np.where(x >= f32(-87.0), y, f32(0.0)).astype(np.float32)


def gated(x: F32, z: F32) -> F32:
    """x / (1 + exp(-z)) through exp(-|z|)."""
    e = exp(-np.abs(z))
    return np.where(z < 0, x * e, x).astype(np.float32) / (f32(1.0) + e)


def silu(x: F32) -> F32:
    """x / (1 + exp(-x))."""
    return gated(x, x)


def gelu_tanh(x: F32) -> F32:
    """GELU in its tanh form, as a gate with 2 sqrt(2/pi) (x + 0.044715 x^3)."""
    u = fma(x * x, f32(float.fromhex("0x1.6e4e26p-5")), f32(1.0))
    return gated(x, (x * f32(float.fromhex("0x1.988454p+0"))) * u)


def tree(partials: F32) -> F32:
    """The sum of 16 partials over the last axis by halves: 8, 4, 2, 1."""
    width = 8
    while width:
        partials = partials[..., :width] + partials[..., width : 2 * width]
        width //= 2
    return partials[..., 0]
