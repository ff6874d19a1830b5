"""Languages of number texts against exact decimal arithmetic."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.constrain import languages as lib

Make = Callable[..., lib.Languages]
NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
PLAIN = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?")
SCIENTIFIC = re.compile(r"-?([1-9](\.0|\.[0-9]{0,15}[1-9])?|0(\.0+)?)[eE][+-]?0*([0-9]{1,3})")

BOUND_TEXTS = [
    "0", "-0", "1", "-1", "5", "10", "99", "100", "255", "-40", "0.5", "-0.5", "0.01", "9.99", "1e-5", "1e16",
    "1.5e3", "123.456", "-2000.25", "9007199254740991", "-9223372036854775808", "18446744073709551615",
    "1e20", "0.30000000000000004",
]  # fmt: skip
MULTIPLE_TEXTS = [
    "1", "2", "3", "7", "10", "100", "0.01", "0.5", "1e-7", "2.5", "0.25", "1.5", "36", "12e2", "0.3", "8",
    "25", "1e3",
]  # fmt: skip
BOUNDS = st.none() | st.sampled_from(BOUND_TEXTS)
MULTIPLES = st.none() | st.sampled_from(MULTIPLE_TEXTS)


def held_with_exponent(
    text: str, multiple: str | None, integer: int, low: str | None, high: str | None
) -> bool:
    """Whether the header of number.c promises to judge this text with an exponent."""
    match = SCIENTIFIC.fullmatch(text)
    if not match or int(match[4]) > 300 or integer == 2:
        return False
    if integer:
        side = high if text[0] != "-" else None if low is None else str(-Decimal(low))
        if side is not None and Decimal(side) < 10**16:
            return False
    factor = Fraction(multiple or 1)
    if integer:
        factor = Fraction(factor.numerator)
    while factor.denominator > 1:
        factor *= 10
    whole = factor.numerator
    while whole % 10 == 0:
        whole //= 10
    return whole <= 16


def texts_near(rng: random.Random, bounds: list[str]) -> str:
    if bounds and rng.random() < 0.6:
        value = Decimal(rng.choice(bounds))
        value = rng.choice(
            [value, value + 1, value - 1, value * 10, value / 10, value + Decimal("0.1"), -value]
        )
        if rng.random() < 0.4 and value.adjusted() > -20:
            mantissa, exponent = f"{value:e}".lower().split("e")
            return f"{mantissa.rstrip('0').rstrip('.') if '.' in mantissa else mantissa}e{exponent}"
        return f"{value:f}" + rng.choice(["", "0"] if "." in f"{value:f}" else ["", ".0"])
    sign = rng.choice(["", "", "-"])
    whole = rng.choice(["0", str(rng.randint(1, 9)), str(rng.randint(10, 9999)), str(rng.randrange(10**15))])
    decimals = rng.choice(["", "", ".0", ".00", f".{rng.randrange(100)}", f".0{rng.randrange(10**16)}"])
    exponent = rng.choice(["", "", "", "e0", "E+00", "e1", "e-2", "e+05", "e300", "e301", "E-299", "e16"])
    return sign + whole + decimals + exponent


@settings(max_examples=250, deadline=None)
@given(BOUNDS, BOUNDS, st.booleans(), st.booleans(), MULTIPLES, st.integers(0, 2), st.integers(0, 1 << 30))
def test_texts_are_judged_by_their_exact_value(
    languages: Make,
    low: str | None,
    high: str | None,
    low_open: bool,
    high_open: bool,
    multiple: str | None,
    integer: int,
    seed: int,
) -> None:
    rng = random.Random(seed)
    lang = languages().numbers(
        low, high, low_open=low_open, high_open=high_open, multiple=multiple, integer=integer
    )
    free = low is None and high is None and multiple is None and not integer
    with localcontext() as context:
        context.prec = 700

        def fits(text: str) -> bool:
            value = Decimal(text)
            return (
                (low is None or value > Decimal(low) or (value == Decimal(low) and not low_open))
                and (high is None or value < Decimal(high) or (value == Decimal(high) and not high_open))
                and (multiple is None or value % Decimal(multiple) == 0)
                and (not integer or value == value.to_integral_value())
                and (integer != 2 or bool(re.fullmatch("-?[0-9]+", text)))
            )

        for _ in range(80):
            text = texts_near(rng, [bound for bound in (low, high) if bound])
            if not NUMBER.fullmatch(text):
                assert text not in lang
                continue
            judged = PLAIN.fullmatch(text) or held_with_exponent(text, multiple, integer, low, high)
            assert (text in lang) == bool(free or (judged and fits(text))), text
        for _ in range(5):
            if lang.start != lib.DEAD:
                text = lang.sample(rng, 12)
                assert NUMBER.fullmatch(text)
                assert free or fits(text), text


@given(st.text(alphabet="-+.eE0159", max_size=8))
def test_all_numbers_are_those_of_the_rfc(languages: Make, text: str) -> None:
    made = languages()
    assert (text in made.number_all()) == bool(NUMBER.fullmatch(text))
    assert (text in made.number_held()) == bool(PLAIN.fullmatch(text))


def test_complements_within_the_texts_that_are_held(languages: Make) -> None:
    made = languages()
    above, below = made.numbers("5"), made.numbers(None, "5", high_open=True)
    held = made.number_held()
    assert (held - above) == (below & held)
    assert (above & below) == made.empty()


def test_automata_are_minimal(languages: Make) -> None:
    made = languages()
    cases: list[dict[str, Any]] = [
        {"integer": 1},
        {"low": "-90", "high": "90"},
        {"multiple": "12e2"},
        {"multiple": "0.25", "high": "7"},
    ]
    for case in cases:
        assert made.numbers(**case).is_minimal()


def test_minus_zero_is_zero(languages: Make) -> None:
    made = languages()
    assert "-0" in made.numbers("0")
    assert "-0.00" in made.numbers("0", "0")
    assert "-0" not in made.numbers("0", low_open=True)
    assert "-0e5" in made.numbers("0")


def test_shortest_texts(languages: Make) -> None:
    made = languages()
    assert made.numbers("1000", integer=1).distance() == 3  # 1e3
    assert made.numbers("1000", "9999", integer=1).distance() == 4
    assert made.numbers("10", "99", integer=2).count() == 90
    assert made.numbers(multiple="7", low="1", integer=2).distance() == 1


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"multiple": "0"}, "greater than 0"),
        ({"multiple": "123456789123"}, "more remainders"),
        ({"multiple": "199999"}, "states"),
        ({"low": "1e99999"}, "4000 places"),
        ({"low": "1e9999999999"}, "exponent is larger"),
        ({"low": "0x1"}, "no number"),
        ({"low": "1e"}, "no number"),
        ({"low": ""}, "no number"),
    ],
)
def test_refusals(languages: Make, given: dict[str, Any], text: str) -> None:
    with pytest.raises(lib.Refused, match=text):
        languages().numbers(**given)
