"""The elementary functions of docs/numerics.md §2 in binary64, with fma from exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction

ROUND = float.fromhex("0x1.8p52")


def fma(a: float, b: float, c: float) -> float:
    """a * b + c in one rounding (a Fraction becomes the nearest float; a zero loses its sign)."""
    return float(Fraction(a) * Fraction(b) + Fraction(c))


def _horner(coefficients: list[float], x: float) -> float:
    p = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        p = fma(p, x, c)
    return p


def _quotient(sign: int, n: int) -> float:
    return float(Fraction(sign, math.factorial(n)))


_EXP = [_quotient(1, k) for k in range(14)]
_LOG = [float(Fraction(2, 2 * k + 1)) for k in range(11)]
_SIN = [_quotient((-1) ** k, 2 * k + 1) for k in range(9)]
_COS = [_quotient((-1) ** k, 2 * k) for k in range(9)]


def _hex(text: str) -> float:
    return float.fromhex(text)


def exp(x: float) -> float:
    """exp(x) for |x| <= 700."""
    n = fma(x, _hex("0x1.71547652b82fep+0"), ROUND) - ROUND
    r = fma(n, _hex("-0x1.62e42fefa39efp-1"), x)
    r = fma(n, _hex("-0x1.abc9e3b39803fp-56"), r)
    return math.ldexp(_horner(_EXP, r), int(n))


def log(x: float) -> float:
    """log(x) for a normal x > 0."""
    m, e = math.frexp(x)
    m, e = m * 2, e - 1
    if m > _hex("0x1.6a09e667f3bcdp+0"):
        m, e = m / 2, e + 1
    f = (m - 1) / (m + 1)
    p = f * _horner(_LOG, f * f)
    p = fma(e, _hex("0x1.abc9e3b39803fp-56"), p)
    return fma(e, _hex("0x1.62e42fefa39efp-1"), p)


def power(base: float, y: float) -> float:
    """base ** y."""
    return exp(y * log(base))


def sincos(x: float) -> tuple[float, float]:
    """(sine, cosine) of x, |x| <= 2**30."""
    n = fma(x, _hex("0x1.45f306dc9c883p-1"), ROUND) - ROUND
    r = fma(n, _hex("-0x1.921fb54442d18p+0"), x)
    r = fma(n, _hex("-0x1.1a62633145c07p-54"), r)
    r = fma(n, _hex("0x1.f1976b7ed8fbcp-110"), r)
    t = r * r
    s, c = r * _horner(_SIN, t), _horner(_COS, t)
    return [(s, c), (c, -s), (-s, -c), (-c, s)][int(n) % 4]
