"""Every check passes an honest subject, and notices a subject that breaks exactly its rule."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from certify import registry
from certify.reasons import Reason
from certify.targets import Artifact
from tests.certify import fakes
from tests.certify.fakes import run_check

PARAMETERS: dict[str, dict[str, Any]] = {
    "load": {},
    "tokenizer": {"corpus": "strings", "references": ["peer"], "min_strings": 5},
    "greedy_reference": {"prompts": "prompts", "reference": "peer", "tokens": 12},
    "identity": {"tokens": 40, "rows": 6},
    "fidelity": {"against": "peer", "positions": 60},
    "performance": {
        "reference": "peer",
        "pairs": 2,
        "prompt_tokens": 16,
        "prompt_ratio_min": {"wide": 1.5},
        "stolen_ratio_max": 1,
        "crowded_ratio_max": 1,
    },
    "truncation": {"schemas": ["weather", "person"]},
    "tool": {"cases": 16},
}


def test_every_check_of_the_harness_is_tested_here() -> None:
    assert set(registry.load()) == set(PARAMETERS)


@pytest.mark.parametrize("check", PARAMETERS)
def test_the_honest_subject_passes(check: str, tmp_path: Path) -> None:
    outcome, context = run_check(tmp_path, check, **PARAMETERS[check])
    assert outcome.outcome == "pass", outcome
    assert outcome.measurements
    for record in context.evidence_records():
        assert record.bytes > 0 or check == "tokenizer"  # nothing differs: nothing to list


BREAKS = [
    ("load", fakes.OtherBytes, Reason.ARTIFACT_DIFFERS),
    ("load", fakes.OtherArchitecture, Reason.ARCHITECTURE_DIFFERS),
    ("load", fakes.Refuses, Reason.REFUSED),
    ("load", fakes.Nan, Reason.NONFINITE),
    ("load", fakes.Constant, Reason.LOGITS_CONSTANT),
    ("load", fakes.SameEverywhere, Reason.LOGITS_CONSTANT),
    ("tokenizer", fakes.OneWrongId, Reason.IDS_DIFFER),
    ("tokenizer", fakes.NeverSpecial, Reason.IDS_DIFFER),
    ("tokenizer", fakes.LosesBytes, Reason.ROUND_TRIP_DIFFERS),
    ("greedy_reference", fakes.BeyondBand, Reason.PICKS_DIFFER),
    ("greedy_reference", fakes.Shorter, Reason.PICKS_DIFFER),
    ("greedy_reference", fakes.MinusInfinityAtTheirPick, Reason.PICKS_DIFFER),
    ("identity", fakes.DiffersAtBatch7, Reason.DIGESTS_DIFFER),
    ("identity", fakes.DiffersAtThreads2, Reason.DIGESTS_DIFFER),
    ("identity", fakes.DiffersAfterSnapshot, Reason.DIGESTS_DIFFER),
    ("identity", fakes.DiffersWhenCut, Reason.DIGESTS_DIFFER),
    ("identity", fakes.DiffersBeside, Reason.DIGESTS_DIFFER),
    ("identity", fakes.Unrepeatable, Reason.DIGESTS_DIFFER),
    ("identity", fakes.Shorter, Reason.DIGESTS_DIFFER),
    ("identity", fakes.Nan, Reason.NONFINITE),
    ("identity", fakes.Constant, Reason.LOGITS_CONSTANT),
    ("identity", fakes.SameEverywhere, Reason.LOGITS_CONSTANT),
    ("fidelity", fakes.Far, Reason.THRESHOLD_MISSED),
    ("fidelity", fakes.OutsideMargin, Reason.THRESHOLD_MISSED),
    ("fidelity", fakes.Nan, Reason.NONFINITE),
    ("fidelity", fakes.Shorter, Reason.ENGINE_FAILED),
    ("fidelity", fakes.Unrepeatable, Reason.ZERO_POINT_FAILED),
    ("performance", fakes.FastOnce, Reason.THRESHOLD_MISSED),
    ("truncation", fakes.ServesBrokenEndings, Reason.ENDING_BROKEN),
    ("truncation", fakes.ServerDies, Reason.CRASHED),
    ("truncation", fakes.ServerNeverStarts, Reason.ENGINE_FAILED),
    ("tool", fakes.ServesBrokenEndings, Reason.ANSWER_WRONG),
    ("tool", fakes.ServerDies, Reason.CRASHED),
]


@pytest.mark.parametrize(("check", "subject", "reason"), BREAKS)
def test_a_subject_that_breaks_the_rule_fails(
    check: str, subject: type[fakes.Honest], reason: Reason, tmp_path: Path
) -> None:
    outcome, _ = run_check(tmp_path, check, subject, **PARAMETERS[check])
    assert (outcome.outcome, outcome.reason) == ("fail", reason), outcome


REFERENCE_FAULTS = [
    (fakes.PeerOfAnotherRevision, "fail", Reason.REFERENCE_REVISION),
    (fakes.PeerMissing, "skip", Reason.REFERENCE_MISSING),
    (fakes.PeerCrashes, "error", Reason.REFERENCE_FAILED),
]


@pytest.mark.parametrize("check", ["tokenizer", "greedy_reference", "fidelity", "performance"])
@pytest.mark.parametrize(("reference", "outcome", "reason"), REFERENCE_FAULTS)
def test_a_fault_of_the_reference_is_never_a_pass(
    check: str, reference: type[fakes.Peer], outcome: str, reason: Reason, tmp_path: Path
) -> None:
    found, context = run_check(tmp_path, check, peer=reference, **PARAMETERS[check])
    assert (found.outcome, found.reason) == (outcome, reason), found
    if reference is fakes.PeerOfAnotherRevision:
        assert context.uses["peer"].revision == "b8"
        assert context.uses["peer"].pinned == "b7"


@pytest.mark.parametrize("reference", [fakes.PeerUnrepeatable, fakes.PeerNan])
def test_a_reference_that_is_not_at_zero_measures_nothing(
    reference: type[fakes.Peer], tmp_path: Path
) -> None:
    outcome, _ = run_check(tmp_path, "fidelity", peer=reference, **PARAMETERS["fidelity"])
    assert (outcome.outcome, outcome.reason) == ("error", Reason.REFERENCE_FAILED)


@pytest.mark.parametrize("reference", [fakes.PeerStopsEarly, fakes.PeerNan])
def test_an_incomplete_greedy_reference_is_an_error(reference: type[fakes.Peer], tmp_path: Path) -> None:
    outcome, _ = run_check(tmp_path, "greedy_reference", peer=reference, **PARAMETERS["greedy_reference"])
    assert (outcome.outcome, outcome.reason) == ("error", Reason.REFERENCE_FAILED)


# ---- tokenizer -----------------------------------------------------------------------------------


def test_tokenizer_lists_the_string_that_differs(tmp_path: Path) -> None:
    outcome, context = run_check(tmp_path, "tokenizer", fakes.OneWrongId, **PARAMETERS["tokenizer"])
    lines = [json.loads(line) for line in (context.folder / "tokenizer.jsonl").read_text().splitlines()]
    assert [(line["text"], line["special"], line["kinds"]) for line in lines] == [
        ("größe", True, ["differs", "round_trip"])
    ]
    assert outcome.measurements["differences"] == 1
    assert {item.name: item.outcome for item in outcome.variants} == {
        "special=off": "pass",
        "special=on": "fail",
    }


def test_disputed_strings_are_capped_and_must_equal_the_primary(tmp_path: Path) -> None:
    parameters = {**PARAMETERS["tokenizer"], "references": ["peer", "dissenter"]}
    outcome, _ = run_check(tmp_path, "tokenizer", max_disputed_ratio=0.1, **parameters)
    assert outcome.outcome == "pass"
    assert outcome.measurements["disputed"] == 2  # in both modes
    assert outcome.measurements["disputed_ratio"] == pytest.approx(1 / 11)
    outcome, _ = run_check(tmp_path, "tokenizer", max_disputed_ratio=0.05, **parameters)
    assert outcome.reason == Reason.DISPUTED_ABOVE_CAP
    outcome, _ = run_check(
        tmp_path, "tokenizer", fakes.FollowsTheSecond, max_disputed_ratio=0.1, **parameters
    )
    assert outcome.reason == Reason.IDS_DIFFER  # what is disputed must equal the primary


def test_bytes_that_the_reference_loses_too_are_counted_not_judged(tmp_path: Path) -> None:
    outcome, _ = run_check(
        tmp_path, "tokenizer", fakes.LosesBytes, fakes.PeerLosesNewlines, **PARAMETERS["tokenizer"]
    )
    assert outcome.outcome == "pass"
    assert outcome.measurements["reference_round_trip_losses"] == 2


def test_a_corpus_that_is_too_small_or_another_is_no_pass(tmp_path: Path) -> None:
    outcome, _ = run_check(tmp_path, "tokenizer", **{**PARAMETERS["tokenizer"], "min_strings": 700})
    assert (outcome.outcome, outcome.reason) == ("skip", Reason.PARAMETERS_UNSUITABLE)
    outcome, _ = run_check(tmp_path, "tokenizer", **{**PARAMETERS["tokenizer"], "corpus": "nowhere"})
    assert (outcome.outcome, outcome.reason) == ("skip", Reason.CORPUS_MISSING)
    job = fakes.make_job(tmp_path, "tokenizer", **PARAMETERS["tokenizer"], live=True, max_disputed_ratio=0.0)
    (tmp_path / "strings").write_text('"changed"\n')
    outcome, _ = run_check(tmp_path, "tokenizer", job=job)
    assert (outcome.outcome, outcome.reason) == ("skip", Reason.CORPUS_MISSING)


# ---- greedy_reference -------------------------------------------------------------------------


def test_near_ties_pass_with_both_gaps_measured_and_are_counted(tmp_path: Path) -> None:
    narrow = {**PARAMETERS["greedy_reference"], "free_running_prompts": 2}
    outcome, _ = run_check(tmp_path, "greedy_reference", fakes.NearTie, tie_band_nats=0.0, **narrow)
    assert outcome.outcome == "fail"  # the same subject, with no band
    outcome, _ = run_check(tmp_path, "greedy_reference", fakes.Honest, tie_band_nats=0.0, **narrow)
    assert outcome.outcome == "pass"
    assert outcome.measurements["equal"] == outcome.measurements["positions"] == 48
    assert outcome.measurements["free_running_identical"] == outcome.measurements["free_running"] == 2


def test_a_tie_needs_both_gaps_within_the_band() -> None:
    from certify.checks.greedy_reference import Pick, kind_of

    assert kind_of(Pick(1, 1, 0.0, 0.0), 0.5) == "equal"
    assert kind_of(Pick(1, 2, 0.1, 0.5), 0.5) == "near_tie"
    assert kind_of(Pick(1, 2, 0.0, 0.0), 0.0) == "near_tie"
    for ours, theirs in ((0.1, 0.51), (0.51, 0.1), (None, 0.1), (0.1, None)):
        assert kind_of(Pick(1, 2, ours, theirs), 0.5) == "real"


def test_a_pick_that_the_reference_disputes_with_itself_is_excused_only_on_request(tmp_path: Path) -> None:
    def run(subject: type[fakes.Honest], peer: type[fakes.Peer], ratio: float) -> Any:
        parameters = {**PARAMETERS["greedy_reference"], "max_disputed_ratio": ratio}
        return run_check(tmp_path, "greedy_reference", subject, peer, **parameters)[0]

    strict = run(fakes.BeyondBand, fakes.PeerWavers, 0)
    assert (strict.outcome, strict.reason) == ("fail", Reason.PICKS_DIFFER)
    assert strict.measurements["floor_divergences"] == 1
    excused = run(fakes.BeyondBand, fakes.PeerWavers, 0.05)
    assert excused.outcome == "pass"
    assert (excused.measurements["disputed"], excused.measurements["divergences"]) == (1, 0)
    capped = run(fakes.BeyondBand, fakes.PeerWavers, 0.01)
    assert (capped.outcome, capped.reason) == ("fail", Reason.DISPUTED_ABOVE_CAP)
    steady = run(fakes.BeyondBand, fakes.Peer, 0.05)
    assert (steady.outcome, steady.reason) == ("fail", Reason.PICKS_DIFFER)
    assert run(fakes.Shorter, fakes.PeerWavers, 0.05).reason == Reason.PICKS_DIFFER


def test_a_prompt_that_does_not_fit_is_no_pass(tmp_path: Path) -> None:
    outcome, _ = run_check(tmp_path, "greedy_reference", **{**PARAMETERS["greedy_reference"], "tokens": 250})
    assert (outcome.outcome, outcome.reason) == ("skip", Reason.PARAMETERS_UNSUITABLE)


# ---- identity --------------------------------------------------------------------------------------


def test_identity_names_the_variant_and_hands_on_a_digest(tmp_path: Path) -> None:
    outcome, _ = run_check(tmp_path, "identity", fakes.DiffersAtBatch7, **PARAMETERS["identity"])
    assert [item.name for item in outcome.variants if item.outcome == "fail"] == ["batch=7"]
    honest, _ = run_check(tmp_path, "identity", **PARAMETERS["identity"])
    assert honest.digest is not None
    assert len(honest.digest.prompt_ids) == 40
    assert honest.digest.positions == (0, 8, 16, 23, 31, 39)
    names = {item.name for item in honest.variants}
    assert {"threads=1", "threads=2", "threads=3", "batch=1", "batch=7", "batch=64", "batch=512"} <= names
    assert {"repeat", "continuation=session", "continuation=snapshot", "continuation=fork"} <= names


def test_identity_covers_every_mode_that_is_asked_for(tmp_path: Path) -> None:
    both = {**PARAMETERS["identity"], "activations": ["wide", "int8"]}
    outcome, _ = run_check(tmp_path, "identity", fakes.DiffersInInt8, **both)
    assert [item.name for item in outcome.variants if item.outcome == "fail"] == [
        "activations=int8,batch=512"
    ]
    outcome, _ = run_check(tmp_path, "identity", fakes.DiffersInInt8, **PARAMETERS["identity"])
    assert outcome.outcome == "pass"


def test_a_backend_that_did_not_run_is_listed_and_no_pass(tmp_path: Path) -> None:
    gpu = {**PARAMETERS["identity"], "backends": ["cpu", "cuda"]}
    outcome, _ = run_check(tmp_path, "identity", **gpu)
    found = {item.name: (item.outcome, item.reason) for item in outcome.variants}
    assert found["backend=cuda"] == ("skip", Reason.NO_DEVICE)
    assert outcome.outcome == "pass"  # for the backend that ran
    assert outcome.measurements["variants_not_run"] == 1
    outcome, _ = run_check(tmp_path, "identity", **{**gpu, "backends": ["cuda"]})
    assert (outcome.outcome, outcome.reason) == ("skip", Reason.NO_DEVICE)


# ---- fidelity --------------------------------------------------------------------------------------


def test_fidelity_states_direction_corpus_floor_and_zero_points(tmp_path: Path) -> None:
    outcome, _ = run_check(tmp_path, "fidelity", **PARAMETERS["fidelity"])
    found = outcome.measurements
    assert found["kld_direction"] == "KLD(peer || ours)"
    assert found["corpus"] == "prose"
    assert found["kld_mean_nats"] == 0
    assert found["zero_point_kld_nats"] == found["reference_zero_point_kld_nats"] == 0
    assert isinstance(found["floor_kld_mean_nats"], float)
    assert found["floor_kld_mean_nats"] > 0
    assert found["top1_ratio"] == found["margin_top1_ratio"] == 1


def test_the_direction_is_that_of_the_formula() -> None:
    import numpy as np

    from certify.checks.fidelity import kld, log_probabilities

    p = log_probabilities(np.log(np.array([0.5, 0.25, 0.25], np.float32)))
    q = log_probabilities(np.log(np.array([0.25, 0.5, 0.25], np.float32)))
    r = log_probabilities(np.log(np.array([0.8, 0.1, 0.1], np.float32)))
    assert kld(p, q) == pytest.approx(0.25 * np.log(2), abs=1e-7)
    assert kld(p, r) == pytest.approx(0.5 * np.log(0.5 / 0.8) + 0.5 * np.log(2.5), abs=1e-7)
    assert kld(r, p) == pytest.approx(0.8 * np.log(1.6) + 0.2 * np.log(0.4), abs=1e-7)
    with pytest.raises(ValueError, match="NaN or an infinity"):
        log_probabilities(np.array([0, np.inf], np.float32))


def test_the_floor_widens_the_bar_only_by_its_factor(tmp_path: Path) -> None:
    outcome, _ = run_check(tmp_path, "fidelity", floor_factor=2, **PARAMETERS["fidelity"])
    floor = outcome.measurements["floor_kld_mean_nats"]
    assert isinstance(floor, float)
    assert outcome.thresholds["kld_mean_nats_max"] == max(0.01, 2 * floor)
    outcome, _ = run_check(tmp_path, "fidelity", fakes.Far, floor_factor=2, **PARAMETERS["fidelity"])
    assert outcome.outcome == "fail"


def test_fidelity_compares_with_a_parent_when_one_is_named(tmp_path: Path) -> None:
    parameters = registry.get("fidelity").with_defaults(
        {**PARAMETERS["fidelity"], "parent_kld_mean_nats_max": 0.01}
    )
    job = fakes.make_job(tmp_path, "fidelity", **parameters)
    outcome, _ = run_check(tmp_path, "fidelity", job=job)
    assert (outcome.outcome, outcome.reason) == ("skip", Reason.ARTIFACT_MISSING)
    job = replace(job, parent=Artifact("parent.gguf", "parent.gguf", "2" * 64, 1))
    outcome, _ = run_check(tmp_path, "fidelity", job=job)
    assert outcome.outcome == "pass"
    assert outcome.measurements["parent_kld_mean_nats"] == 0
    outcome, _ = run_check(
        tmp_path,
        "fidelity",
        fakes.Far,
        job=replace(job, parameters={**parameters, "kld_mean_nats_max": 99, "margin_top1_ratio_min": 0}),
    )
    assert outcome.reason == Reason.THRESHOLD_MISSED
    assert "parent_kld_mean_nats" in outcome.detail


def test_positions_beyond_the_context_are_no_pass(tmp_path: Path) -> None:
    outcome, _ = run_check(tmp_path, "fidelity", against="peer", positions=257)
    assert (outcome.outcome, outcome.reason) == ("skip", Reason.PARAMETERS_UNSUITABLE)
