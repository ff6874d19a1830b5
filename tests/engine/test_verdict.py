"""Verdict rule v1."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.verdict import OUTCOMES, REFUSING, REQUIRED, VERDICTS, Judged, verdict_v1

PASSING = [Judged(name, "pass") for name in REQUIRED]


def changed(name: str, outcome: str, *, waived: bool = False) -> list[Judged]:
    return [Judged(name, outcome, waived) if item.id == name else item for item in PASSING]


def test_all_five_passing_on_bound_bytes_is_certified() -> None:
    assert verdict_v1(PASSING) == "certified"
    assert verdict_v1([*PASSING, Judged("chat", "skip")]) == "certified"
    assert verdict_v1(PASSING, bound=False) == "experimental"


@pytest.mark.parametrize("name", REQUIRED)
def test_one_required_check_missing_or_not_run_is_experimental(name: str) -> None:
    assert verdict_v1([item for item in PASSING if item.id != name]) == "experimental"
    assert verdict_v1(changed(name, "skip")) == "experimental"
    assert verdict_v1(changed(name, "error")) == "experimental"


@pytest.mark.parametrize("name", REQUIRED)
def test_an_unwaived_failure_refuses_except_of_the_greedy_picks(name: str) -> None:
    expected = "outside-envelope" if name in REFUSING else "experimental"
    assert verdict_v1(changed(name, "fail")) == expected
    assert verdict_v1(changed(name, "fail", waived=True)) == "experimental"
    assert verdict_v1(changed(name, "fail"), bound=False) == "experimental"


def test_a_waived_failure_beside_an_unwaived_one_refuses() -> None:
    checks = [Judged("identity", "fail", True), Judged("fidelity", "fail")]
    assert verdict_v1(checks) == "outside-envelope"


def test_nothing_measured_is_experimental() -> None:
    assert verdict_v1([]) == "experimental"


@pytest.mark.parametrize(
    "checks", [[Judged("load", "PASS")], [Judged("load", "pass"), Judged("load", "pass")], [Judged("x", "")]]
)
def test_unknown_outcomes_and_repeated_checks_have_no_verdict(checks: list[Judged]) -> None:
    with pytest.raises(ValueError, match=r"unknown outcome|occurs twice"):
        verdict_v1(checks)


@given(
    st.lists(
        st.builds(
            Judged, st.sampled_from([*REQUIRED, "chat", "tool"]), st.sampled_from(OUTCOMES), st.booleans()
        ),
        unique_by=lambda item: item.id,
    )
)
def test_the_rule_is_monotone_and_blind_to_order(checks: list[Judged]) -> None:
    verdict = verdict_v1(checks)
    assert verdict in VERDICTS
    assert verdict_v1(list(reversed(checks))) == verdict
    # Certified exactly where the five are there, pass, and none is waived.
    five = {item.id: item for item in checks if item.id in REQUIRED}
    clean = len(five) == 5 and all(item.outcome == "pass" and not item.waived for item in five.values())
    assert (verdict == "certified") == clean
    refusing = any(item.id in REFUSING and item.outcome == "fail" and not item.waived for item in checks)
    assert (verdict == "outside-envelope") == refusing


def test_every_combination_of_two_checks() -> None:
    for first, second in itertools.product(OUTCOMES, OUTCOMES):
        expected = "outside-envelope" if "fail" in (first, second) else "experimental"
        assert verdict_v1([Judged("load", first), Judged("fidelity", second)]) == expected
