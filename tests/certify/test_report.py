"""Reports: verdicts, waivers, exit codes by their precedence, digests, and what never leaks."""

from __future__ import annotations

import copy
import dataclasses
import json
import socket
from datetime import date
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from certify import child, report, schemas
from certify.report import ReportError
from certify.types import Outcome, Variant
from engine import canonical
from tests.certify import records
from tests.certify.records import MISSED, build, waiver, with_waivers

SKIP = Outcome("skip", "reference_missing")
ERROR = Outcome("error", "reference_failed")
FAIL = Outcome("fail", "ids_differ", measurements={"differences": 3})


def model_of(document: dict[str, Any]) -> dict[str, Any]:
    found = document["body"]["models"][0]
    assert isinstance(found, dict)
    return found


def check_of(document: dict[str, Any], check_id: str) -> dict[str, Any]:
    return next(item for item in model_of(document)["checks"] if item["id"] == check_id)


def test_a_run_in_which_everything_passes() -> None:
    document = build()
    body = document["body"]
    assert (model_of(document)["verdict"], body["exit_code"], document["complete"]) == ("certified", 0, True)
    assert body["summary"] == {"pass": 5, "fail": 0, "skip": 0, "error": 0, "waived": 0}
    assert document["body_sha256"] == canonical.digest(body)
    assert check_of(document, "identity")["digest"]["prompt_ids"] == [2, 818, 5]
    assert check_of(document, "fidelity")["measurements"]["parent_kld_mean_nats"] is None
    parameters = check_of(document, "fidelity")["parameters"]
    assert check_of(document, "fidelity")["parameters_sha256"] == canonical.digest(parameters)


def test_an_independent_validator_accepts_it() -> None:
    schema = json.loads(schemas.text("report"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(json.loads(report.to_bytes(build())))


@pytest.mark.parametrize(
    ("outcomes", "more", "code", "verdict"),
    [
        ({}, {}, 0, "certified"),
        ({"fidelity": MISSED}, {}, 1, "outside-envelope"),
        ({"greedy_reference": Outcome("fail", "picks_differ")}, {}, 1, "experimental"),
        ({"tokenizer": SKIP}, {}, 3, "experimental"),
        ({"tokenizer": SKIP}, {"allow_incomplete": True}, 0, "experimental"),
        ({"tokenizer": ERROR}, {}, 4, "experimental"),
        ({"tokenizer": ERROR}, {"allow_incomplete": True}, 4, "experimental"),
        # Precedence: 4 before 1 before 3.
        ({"tokenizer": ERROR, "fidelity": MISSED, "identity": SKIP}, {}, 4, "outside-envelope"),
        ({"tokenizer": SKIP, "fidelity": MISSED}, {}, 1, "outside-envelope"),
        ({"tokenizer": SKIP, "fidelity": MISSED}, {"allow_incomplete": True}, 1, "outside-envelope"),
    ],
)
def test_exit_codes_and_verdicts(
    outcomes: dict[str, Outcome], more: dict[str, Any], code: int, verdict: str
) -> None:
    document = build(outcomes=outcomes, **more)
    assert (document["body"]["exit_code"], model_of(document)["verdict"]) == (code, verdict)
    assert report.parse(report.to_bytes(document)) == document


@given(st.lists(st.sampled_from(["pass", "fail", "skip", "error"]), min_size=5, max_size=5), st.booleans())
def test_precedence_over_all_combinations(names: list[str], allow: bool) -> None:
    made = {"pass": Outcome("pass"), "fail": FAIL, "skip": SKIP, "error": ERROR}
    outcomes = {check: made[name] for check, name in zip(records.REQUIRED, names, strict=True)}
    code = build(outcomes=outcomes, allow_incomplete=allow)["body"]["exit_code"]
    expected = 4 if "error" in names else 1 if "fail" in names else 3 if "skip" in names and not allow else 0
    assert code == expected


# ---- Bound bytes and pinned references -----------------------------------------------------------


def test_other_bytes_are_never_certified_and_fail_the_run() -> None:
    document = build(actual_sha256="0" * 64)
    assert (model_of(document)["verdict"], document["body"]["exit_code"]) == ("experimental", 1)


def test_bytes_that_were_not_hashed_are_not_certified() -> None:
    assert model_of(build(actual_sha256=None))["verdict"] == "experimental"


def test_a_failure_on_other_bytes_says_nothing_about_the_pinned_ones() -> None:
    assert model_of(build(outcomes={"fidelity": MISSED}, actual_sha256="0" * 64))["verdict"] == "experimental"


@pytest.mark.parametrize(("revision", "code"), [("b11549", 0), ("b10000", 1), (None, 1)])
def test_another_revision_than_the_pinned_one_fails_the_run(revision: str | None, code: int) -> None:
    reference = dataclasses.replace(records.REFERENCE, revision=revision)
    assert build(references=(reference,))["body"]["exit_code"] == code
    free = dataclasses.replace(reference, pinned=None)
    assert build(references=(free,))["body"]["exit_code"] == 0


# ---- Waivers -------------------------------------------------------------------------------------


def states(document: dict[str, Any]) -> list[str]:
    return [item["state"] for item in model_of(document)["waivers"]]


def test_a_waiver_of_the_check_covers_its_failure_and_caps_the_verdict() -> None:
    document = build(with_waivers(waiver()), outcomes={"fidelity": MISSED})
    assert states(document) == ["applied"]
    assert document["body"]["exit_code"] == 0
    assert document["body"]["summary"]["waived"] == 1
    assert document["body"]["summary"]["fail"] == 0
    assert model_of(document)["verdict"] == "experimental"
    assert check_of(document, "fidelity")["waiver"]["owner"] == "someone"


def test_a_waiver_of_the_measurement_covers_that_one_only() -> None:
    kld = waiver(measurement="kld_mean_nats")
    assert build(with_waivers(kld), outcomes={"fidelity": MISSED})["body"]["exit_code"] == 0
    both = dataclasses.replace(MISSED, thresholds={"kld_mean_nats_max": 0.01, "top1_ratio_min": 0.9})
    document = build(with_waivers(kld), outcomes={"fidelity": both})
    assert (states(document), document["body"]["exit_code"]) == (["insufficient"], 1)
    assert model_of(document)["verdict"] == "outside-envelope"
    document = build(with_waivers(kld, waiver(measurement="top1_ratio")), outcomes={"fidelity": both})
    assert (states(document), document["body"]["exit_code"]) == (["applied", "applied"], 0)


def test_a_waiver_of_a_measurement_does_not_cover_a_crash_or_a_failed_variant() -> None:
    kld = waiver(measurement="kld_mean_nats")
    crash = Outcome("fail", "crashed")
    document = build(with_waivers(kld), outcomes={"fidelity": crash})
    assert (states(document), document["body"]["exit_code"]) == (["not_needed"], 1)
    variant = dataclasses.replace(MISSED, variants=(Variant("parent", "fail", "threshold_missed"),))
    document = build(with_waivers(kld), outcomes={"fidelity": variant})
    assert (states(document), document["body"]["exit_code"]) == (["insufficient"], 1)


def test_a_waiver_that_is_not_needed_fails_the_run() -> None:
    document = build(with_waivers(waiver()))
    assert (states(document), document["body"]["exit_code"]) == (["not_needed"], 1)
    assert check_of(document, "fidelity")["waiver"] is None


@pytest.mark.parametrize(("day", "code"), [("2026-11-30", 0), ("2026-11-29", 1)])
def test_a_waiver_lasts_through_its_day_and_expired_fails_the_run(day: str, code: int) -> None:
    document = build(with_waivers(waiver(until=day)), outcomes={"fidelity": MISSED})
    assert document["body"]["exit_code"] == code
    assert states(document) == (["expired"] if code else ["applied"])
    assert model_of(document)["verdict"] == ("outside-envelope" if code else "experimental")


def test_an_expired_waiver_fails_the_run_even_where_the_check_passes() -> None:
    assert build(with_waivers(waiver(until="2026-01-01")))["body"]["exit_code"] == 1


@pytest.mark.parametrize(("outcome", "code"), [(SKIP, 3), (ERROR, 4)])
def test_a_waiver_never_excuses_what_did_not_run(outcome: Outcome, code: int) -> None:
    document = build(with_waivers(waiver()), outcomes={"fidelity": outcome})
    assert (states(document), document["body"]["exit_code"]) == (["not_reached"], code)


def test_a_measurement_that_is_not_a_number_cannot_meet_a_threshold() -> None:
    assert report.violated(
        {"a": 1, "b": 5, "c": None}, {"a_max": 1, "b_max": 4.5, "b_min": 6, "c_max": 1}
    ) == ("b",)
    assert report.violated({"a": float("nan")}, {"a_max": 1}) == ("a",)


# ---- Digest --------------------------------------------------------------------------------------


def test_clocks_machine_and_resumption_do_not_reach_the_digest() -> None:
    first = build()
    other = dataclasses.replace(
        records.RUN,
        id="run-2",
        started="2027-01-01T00:00:00Z",
        finished="2027-01-01T01:00:00Z",
        resumed=True,
        host=report.Host("darwin", "arm64", None, 8),
        kernel_set="neon",
        python="3.13.0",
    )
    assert build(run=other)["body_sha256"] == first["body_sha256"]
    assert build(outcomes={"load": Outcome("pass", detail="took 3 s")})["body_sha256"] == first["body_sha256"]
    assert build(outcomes={"fidelity": MISSED})["body_sha256"] != first["body_sha256"]


def test_the_order_in_which_checks_finished_does_not_matter() -> None:
    found = records.load()
    models = records.results(found, records.OUTCOMES)
    turned = [dataclasses.replace(model, checks=model.checks[::-1]) for model in models]
    arguments: Any = {
        "engine": records.ENGINE,
        "references": (records.REFERENCE,),
        "run": records.RUN,
        "today": records.TODAY,
    }
    assert report.build(found, turned, **arguments) == report.build(found, models, **arguments)


# ---- What the builder refuses: a harness that leaves something out ---------------------------------


@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        (Outcome("skip"), "a skip with the reason None"),
        (Outcome("pass", "timeout"), "a pass with the reason 'timeout'"),
        (Outcome("fail", "it_was_tuesday"), "unknown reason 'it_was_tuesday'"),
        (
            Outcome("pass", variants=(Variant("a", "fail", "digests_differ"),)),
            "passes although a variant did not",
        ),
        (Outcome("pass", variants=(Variant("a", "skip"),)), "a skip with the reason None"),
        (Outcome("pass", measurements={"a": float("nan")}), "number nan"),
    ],
)
def test_outcomes_that_make_no_sense(outcome: Outcome, text: str) -> None:
    with pytest.raises((ReportError, canonical.StrictJSONError)) as caught:
        build(outcomes={"load": outcome})
    assert text in str(caught.value)


def test_a_declared_check_without_a_result_is_refused() -> None:
    found = records.load()
    models = records.results(found, records.OUTCOMES)
    short = [dataclasses.replace(model, checks=model.checks[:-1]) for model in models]
    arguments: Any = {"engine": records.ENGINE, "references": (), "run": records.RUN, "today": records.TODAY}
    with pytest.raises(ReportError, match="declared are"):
        report.build(found, short, **arguments)
    with pytest.raises(ReportError, match="not those of the manifest"):
        report.build(found, [], **arguments)


# ---- Privacy -------------------------------------------------------------------------------------


def test_no_absolute_path_and_no_host_name_reaches_a_report() -> None:
    detail = (
        f"{socket.gethostname()}: /home/someone/models/m.gguf: see https://example.org/a/b and /tmp/x/y.log"
    )
    document = build(outcomes={"load": Outcome("pass", detail=detail)})
    text = report.to_bytes(document).decode()
    assert "/home/" not in text
    assert "/tmp/" not in text
    assert socket.gethostname() not in text or len(socket.gethostname()) <= 3
    assert "…/m.gguf" in text
    assert "https://example.org/a/b" in text


# ---- Reading and writing ---------------------------------------------------------------------------


def test_a_report_survives_the_disk_and_is_not_overwritten_unasked(tmp_path: Path) -> None:
    path = tmp_path / "out" / "report.json"
    document = build()
    report.write(document, path)
    assert report.read(path) == document
    with pytest.raises(ReportError, match="--force"):
        report.write(document, path)
    report.write(build(outcomes={"fidelity": MISSED}), path, force=True)
    assert report.read(path)["body"]["exit_code"] == 1
    assert [item.name for item in path.parent.iterdir()] == ["report.json"]


def test_a_key_too_many_is_not_written_and_is_read() -> None:
    document = build()
    document["body"]["novel"] = 1
    document["body_sha256"] = canonical.digest(document["body"])
    with pytest.raises(ReportError, match="novel"):
        report.write(document, Path("/nonexistent/report.json"))
    assert report.parse(report.to_bytes(document)) == document


def _exit(document: dict[str, Any]) -> None:
    document["body"]["exit_code"] = 3


def _verdict(document: dict[str, Any]) -> None:
    document["body"]["models"][0]["verdict"] = "experimental"


def _summary(document: dict[str, Any]) -> None:
    document["body"]["summary"]["pass"] = 6


def _outcome(document: dict[str, Any]) -> None:
    document["body"]["models"][0]["checks"][0]["outcome"] = "fine"


def _twice(document: dict[str, Any]) -> None:
    checks = document["body"]["models"][0]["checks"]
    checks.append(checks[0])


def _schema(document: dict[str, Any]) -> None:
    document["schema"] = "gaugeblock.report/2"


def _missing(document: dict[str, Any]) -> None:
    del document["body"]["engine"]["contracts"]["numerics"]


def _past(document: dict[str, Any]) -> None:
    check_of(document, "fidelity").update(
        measurements={"kld_mean_nats": 5.0}, thresholds={"kld_mean_nats_max": 0.01}
    )


def _unmeasured(document: dict[str, Any]) -> None:
    check_of(document, "fidelity").update(measurements={}, thresholds={"kld_mean_nats_max": 0.01})


def _variant(document: dict[str, Any]) -> None:
    failed = {"name": "threads=2", "outcome": "fail", "reason": "digests_differ"}
    check_of(document, "identity")["variants"] = [failed]


def _parameters(document: dict[str, Any]) -> None:
    check_of(document, "load")["parameters"] = {"positions": 1}


def _needless(document: dict[str, Any]) -> None:
    check_of(document, "fidelity")["waiver"] = {
        "measurement": None, "reason": "r", "owner": "o", "issue": None, "until": "2030-01-01",
    }  # fmt: skip
    _verdict(document)


def _same_model(document: dict[str, Any]) -> None:
    document["body"]["models"] *= 2


def _critical(document: dict[str, Any]) -> None:
    document["critical"] = ["summary", "novel"]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (_exit, "exit_code states 3"),
        (_past, "m/fidelity: states a pass, its figures do not meet kld_mean_nats_max"),
        (_unmeasured, "do not meet kld_mean_nats_max"),
        (_variant, "although a variant did not"),
        (_parameters, "parameters_sha256"),
        (_needless, "a pass is said to be waived"),
        (_same_model, "a model occurs twice"),
        (_critical, "critical names 'novel'"),
        (_verdict, "states experimental, its checks yield certified"),
        (_summary, "summary"),
        (_outcome, "'fine' is not one of"),
        (_twice, "occurs twice"),
        (_schema, "gaugeblock.report/1"),
        (_missing, "numerics"),
    ],
)
def test_a_report_that_contradicts_itself_is_refused(change: Any, text: str) -> None:
    document = copy.deepcopy(build())
    change(document)
    document["body_sha256"] = canonical.digest(document["body"])
    with pytest.raises(ReportError) as caught:
        report.parse(report.to_bytes(document))
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("edit", "text"),
    [
        ({"until": "2026-11-29"}, "its waiver had expired on 2026-11-29"),
        ({"owner": "nobody"}, "not among the model's"),
    ],
)
def test_a_waiver_that_the_run_cannot_have_applied_is_refused(edit: dict[str, str], text: str) -> None:
    document = build(with_waivers(waiver()), outcomes={"fidelity": MISSED})
    assert report.parse(report.to_bytes(document)) == document
    check_of(document, "fidelity")["waiver"].update(edit)
    document["body_sha256"] = canonical.digest(document["body"])
    with pytest.raises(ReportError, match=text):
        report.parse(report.to_bytes(document))


def test_a_pass_beside_a_figure_past_its_threshold_is_no_result() -> None:
    wrong = dataclasses.replace(MISSED, outcome="pass", reason=None)
    with pytest.raises(ReportError, match="kld_mean_nats_max is not met"):
        build(outcomes={"fidelity": wrong})
    assert "do not meet kld_mean_nats_max" in str(child.outcome_fault(wrong))


def test_a_body_that_was_edited_is_refused() -> None:
    data = report.to_bytes(build()).replace(b"0.0044", b"0.0001")
    with pytest.raises(ReportError, match="body_sha256 states"):
        report.parse(data)
    with pytest.raises(ReportError, match="strict JSON"):
        report.parse(b'{"a":1,"a":1}')


def test_a_report_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="cannot be read"):
        report.read(tmp_path / "none.json")


def test_today_is_the_day_of_the_start_not_of_the_clock() -> None:
    document = with_waivers(waiver(until="2020-01-01"))
    assert states(build(document, outcomes={"fidelity": MISSED}, today=date(2019, 12, 31))) == ["applied"]
