"""Calibration against values worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from engine.errors import UsageError
from engine.evidence import Alternative, Choice, calibration


def record(correct: str, **probs: float | None) -> dict[str, Any]:
    return {
        "alternatives": [{"text": text, "prob": prob} for text, prob in probs.items()],
        "correct": correct,
    }


def test_by_hand() -> None:
    found = calibration(
        [
            record("a", a=0.75, b=0.25),  # bin 7, hit: 0.0625 + 0.0625
            record("b", a=0.75, b=0.25),  # bin 7, miss: 0.5625 + 0.5625
            record("a", a=1.0),  # bin 9, hit: 0
            record("z", a=0.5, b=0.25, c=0.25),  # bin 5, miss, truth absent: 0.25 + 0.0625 + 0.0625 + 1
        ]
    )
    # bin 7: accuracy 0.5, confidence 0.75; bin 9: 1 and 1; bin 5: 0 and 0.5
    assert found.ece == pytest.approx(2 / 4 * 0.25 + 1 / 4 * 0 + 1 / 4 * 0.5, abs=1e-15)
    assert found.brier == pytest.approx((0.125 + 1.125 + 0 + 1.375) / 4, abs=1e-15)
    assert (found.rows, found.skipped) == (4, 0)


def test_the_edges_of_bins() -> None:
    """0.5 opens a bin of its own; 1 belongs to the last bin together with 0.95."""
    found = calibration([record("a", a=0.5), record("a", a=0.4375)])
    assert found.ece == pytest.approx(0.5 * 0.5 + 0.5 * 0.5625, abs=1e-15)
    found = calibration([record("b", a=1.0), record("a", a=0.9375)])
    assert found.ece == pytest.approx(abs(0.5 - (1 + 0.9375) / 2), abs=1e-15)


def test_records_without_probabilities_are_skipped() -> None:
    found = calibration([record("a", a=None), record("a", a=1.0)])
    assert (found.ece, found.brier, found.rows, found.skipped) == (0, 0, 1, 1)


def test_a_record_of_the_engine_is_one() -> None:
    alternatives = (Alternative("x", '"x"', 0.75, -1.0), Alternative(None, "null", 0.25, -2.0))
    made = Choice("value", "/a", 3, alternatives, 2, '"x"', 0.5, 0.0, 1).document()
    assert calibration([made | {"correct": "null"}]).brier == 2 * 0.5625
    assert "tool_call" not in made
    assert Choice("name", "", 3, alternatives, 2, None, 0.5, 0.0, 1, 0).document()["tool_call"] == 0


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        ({"alternatives": [], "correct": 1}, "record 0: correct"),
        ({"correct": "a"}, "record 0: alternatives"),
        ({"alternatives": [{"prob": 1}], "correct": "a"}, "text of its own"),
        (record("a", a=1.5), "prob of 'a'"),
        (record("a", a=float("nan")), "prob of 'a'"),
        (record("a", a=True), "prob of 'a'"),
        (record("a", a=None), "no record has probabilities"),
    ],
)
def test_refusals(bad: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        calibration([bad])
