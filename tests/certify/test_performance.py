"""The check of speed on fakes whose times are made up: no clock decides here."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from certify.checks import performance
from certify.reasons import Reason
from certify.targets import engine_target
from engine.errors import MeasureError
from engine.model import Model, RuntimeConfig
from tests.certify import fakes
from tests.certify.fakes import make_job, run_check

PARAMETERS: dict[str, Any] = {
    "reference": "peer",
    "pairs": 3,
    "prompt_tokens": 64,
    "decode_tokens": 8,
    "depth_tokens": 200,
    "depth_decode_tokens": 4,
    "prompt_ratio_min": {"wide": 1.9, "int8": 1.9},
    "decode_ratio_min": {"wide": 1.9, "int8": 1.9},
    "depth_decode_ratio_min": {"wide": 1.9},
}
STARTS = {"peer": 2.0, "absent": 1.5, "present": 1.8}


@pytest.fixture(autouse=True)
def _no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(command: Sequence[str], env: Mapping[str, str] | None = None) -> float:
        return STARTS[command[-1]]

    monkeypatch.setattr(performance, "process_start", start)
    monkeypatch.setattr(performance, "stolen_s", lambda: 0.0)
    monkeypatch.setattr(performance, "crowded_s", lambda: 0.0)


def test_figures_are_medians_of_pairs_in_tokens_per_second(tmp_path: Path) -> None:
    outcome, context = run_check(tmp_path, "performance", start_ratio_max=1.0, **PARAMETERS)
    assert outcome.outcome == "pass", outcome
    found = outcome.measurements
    assert found["prompt_wide_t1_ratio"] == pytest.approx(2)
    assert found["decode_int8_t2_tokens_per_s"] == pytest.approx(1 / (1e-2 + 1e-6))
    assert found["peer_decode_t1_tokens_per_s"] == pytest.approx(0.5 / (1e-2 + 1e-6))
    assert found["peer_prompt_t1_flash"] == "on"
    assert found["peer_depth_decode_t1_flash"] == "off"  # the better one for the peer
    assert (found["start_absent_ratio"], found["start_present_ratio"]) == (0.75, 0.9)
    assert outcome.thresholds["depth_decode_wide_t2_ratio_min"] == 1.9
    lines = [json.loads(line) for line in (context.folder / "performance.jsonl").read_text().splitlines()]
    assert len(lines) == 3 * 6 + 3
    assert len(outcome.variants) == 10 + 2
    assert context.uses["peer"].cpu_features == ("avx2",)


@pytest.mark.parametrize(
    ("subject", "variant"),
    [
        (fakes.SlowInInt8AtTwoThreads, "decode,threads=2,activations=int8"),
        (fakes.SlowAtDepth, "depth_decode,threads=1,activations=wide"),
        (fakes.FastOnce, "prompt,threads=1,activations=wide"),
    ],
)
def test_one_slow_way_fails_and_is_named(subject: type[fakes.Honest], variant: str, tmp_path: Path) -> None:
    outcome, _ = run_check(tmp_path, "performance", subject, **PARAMETERS)
    assert (outcome.outcome, outcome.reason) == ("fail", Reason.THRESHOLD_MISSED)
    failed = [item.name for item in outcome.variants if item.outcome == "fail"]
    assert variant in failed
    if subject is fakes.SlowInInt8AtTwoThreads:
        assert failed == [variant]


def test_a_peer_that_drifts_is_no_measurement(tmp_path: Path) -> None:
    outcome, _ = run_check(tmp_path, "performance", peer=fakes.PeerDrifts, **PARAMETERS)
    assert (outcome.outcome, outcome.reason) == ("skip", Reason.TOO_NOISY)
    assert outcome.measurements["prompt_wide_t1_ratio"] is None
    assert {item.reason for item in outcome.variants if item.outcome == "skip"} == {Reason.TOO_NOISY}


def test_pairs_in_which_the_peer_was_interrupted_are_replaced_and_counted(tmp_path: Path) -> None:
    outcome, _ = run_check(tmp_path, "performance", peer=fakes.PeerIsInterrupted, **PARAMETERS)
    assert outcome.outcome == "pass", outcome
    assert outcome.measurements["prompt_t1_pairs"] == 3
    assert outcome.measurements["prompt_t1_pairs_drifted"] >= 1  # type: ignore[operator]
    assert outcome.measurements["prompt_wide_t1_ratio"] == pytest.approx(2)


@pytest.mark.parametrize("what", ["stolen", "crowded"])
def test_pairs_that_others_disturbed_do_not_count(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = iter(range(10**6))
    monkeypatch.setattr(performance, f"{what}_s", lambda: next(taken) * 1.0)
    outcome, _ = run_check(tmp_path, "performance", **PARAMETERS)
    assert (outcome.outcome, outcome.reason) == ("skip", Reason.TOO_NOISY)
    assert outcome.measurements[f"decode_t2_pairs_{what}"] == 6
    assert outcome.measurements["decode_t2_pairs"] == 0


def test_slow_is_a_failure_even_where_something_else_was_too_noisy() -> None:
    from certify.types import Variant

    variants = [Variant("a", "fail", Reason.THRESHOLD_MISSED), Variant("b", "skip", Reason.TOO_NOISY)]
    outcome = performance._verdict({"x": 1}, {}, variants)
    assert (outcome.outcome, outcome.reason) == ("fail", Reason.THRESHOLD_MISSED)
    assert "b" in outcome.detail


def test_a_peer_that_is_not_tuned_is_refused(tmp_path: Path) -> None:
    outcome, _ = run_check(tmp_path, "performance", peer_features=["avx2", "avx512_vnni"], **PARAMETERS)
    assert (outcome.outcome, outcome.reason) == ("skip", Reason.PEER_UNSUITABLE)
    assert "lacks avx512_vnni" in outcome.detail


def test_a_late_start_fails(tmp_path: Path) -> None:
    outcome, _ = run_check(tmp_path, "performance", reference="peer", pairs=2, start_ratio_max=0.8)
    assert (outcome.outcome, outcome.reason) == ("fail", Reason.THRESHOLD_MISSED)
    assert [item.name for item in outcome.variants if item.outcome == "fail"] == ["start,sidecar=present"]


@pytest.mark.parametrize(("who", "result"), [("peer", "error"), ("absent", "fail")])
def test_a_start_that_fails_is_no_pass(
    who: str, result: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(command: Sequence[str], env: Mapping[str, str] | None = None) -> float:
        if command[-1] == who:
            raise MeasureError("ended with status 1")
        return 1.0

    monkeypatch.setattr(performance, "process_start", start)
    outcome, _ = run_check(tmp_path, "performance", reference="peer", pairs=2, start_ratio_max=1)
    assert outcome.outcome == result


@pytest.mark.parametrize(
    ("peer", "more", "result", "reason"),
    [
        (fakes.PeerCrashes, {}, "error", Reason.REFERENCE_FAILED),
        (fakes.PeerMissing, {}, "skip", Reason.REFERENCE_MISSING),
        (fakes.PeerWithoutBinding, {"start_ratio_max": 1.2}, "skip", Reason.UNSUPPORTED_VARIANT),
    ],
)
def test_faults_of_the_peer_are_never_a_pass(
    peer: type[fakes.Peer], more: dict[str, Any], result: str, reason: Reason, tmp_path: Path
) -> None:
    outcome, _ = run_check(tmp_path, "performance", peer=peer, **{**PARAMETERS, **more})
    assert (outcome.outcome, outcome.reason) == (result, reason)


def test_work_that_does_not_fit_the_context_is_refused(tmp_path: Path) -> None:
    outcome, _ = run_check(tmp_path, "performance", **{**PARAMETERS, "depth_tokens": 4096})
    assert (outcome.outcome, outcome.reason) == ("skip", Reason.PARAMETERS_UNSUITABLE)


def test_without_a_threshold_nothing_is_shown(tmp_path: Path) -> None:
    outcome, _ = run_check(tmp_path, "performance", reference="peer")
    assert (outcome.outcome, outcome.reason) == ("skip", Reason.NOTHING_COMPARED)


def test_rounds_alternate_who_begins() -> None:
    calls: list[str] = []

    def note(name: str) -> float:
        calls.append(name)
        return 1.0

    for reverse in (False, True):
        performance._round(lambda: note("peer"), {"wide": lambda: note("wide")}, reverse=reverse)
    assert calls == ["peer", "wide", "wide", "peer"]


def test_stolen_time_is_read_from_the_first_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    stat = tmp_path / "stat"
    stat.write_text("cpu  1 2 3 4 5 6 7 250 0 0\ncpu0 0 0 0 0 0 0 0 9 0 0\n")
    monkeypatch.setattr("os.sysconf", lambda name: 100)
    assert performance.stolen_s(stat) == 2.5
    assert performance.stolen_s(tmp_path / "absent") == 0


def test_waiting_for_a_cpu_is_summed_over_threads_and_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    for name, waited in (("self/task/10", 250), ("self/task/11", 500), ("77/task/77", 1000)):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "schedstat").write_text(f"9 {waited}000000 3\n")
    (tmp_path / "self/task/10/children").write_text("77 78 ")
    assert performance.crowded_s(tmp_path) == 1.75
    assert performance.crowded_s(tmp_path / "absent") == 0


def test_our_engine_answers_as_a_subject(tmp_path: Path, tiny_model: Any) -> None:
    job = make_job(tmp_path, "performance")
    path = tiny_model("llama-q8_0")
    artifact = replace(job.artifacts[0], path=str(path))
    target = engine_target(replace(job, artifacts=(artifact,)))
    setting = performance.Setting("int8", "f16", 2, batch=512)
    assert target.seconds(0, 20, setting, together=True) > 0
    assert target.seconds(30, 4, setting, together=False) > 0
    plain = target.start_command(setting, "x", None)
    linked = target.start_command(setting, "x", tmp_path)
    assert plain[plain.index("-m", 3) + 1] == str(path)
    found = Path(linked[linked.index("-m", 3) + 1])
    with Model.open(found, config=RuntimeConfig("int8", "f16", 256)) as model:
        assert model.standing.state == "experimental"
        assert model.standing.reason == "receipt_applies"
    target.close()
