"""Sidecars from reports: by hash, strict, and what the engine's own reader makes of them."""

from __future__ import annotations

import copy
import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from certify import envelope, report, schemas
from certify.envelope import EnvelopeError
from certify.types import Outcome, Variant
from engine import envelope as gate
from engine.envelope import resolve
from engine.errors import RefusedError
from tests.certify import records
from tests.certify.records import MISSED, build, waiver, with_waivers


@dataclass(frozen=True)
class Config:
    activations: str = "wide"
    kv: str = "f16"
    context_tokens: int = 2048


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "whatever-name.gguf"
    path.write_bytes(records.DATA)
    return path


def standing_of(model: Path) -> gate.Standing:
    fd = os.open(model, os.O_RDONLY)
    try:
        contracts = dict(records.ENGINE.contracts)
        return resolve(model, fd, config=Config(), contracts=contracts, architecture="llama")
    except RefusedError as refused:
        return refused.standing
    finally:
        os.close(fd)


@pytest.mark.parametrize(
    ("document", "outcomes", "state"),
    [
        (records.DOCUMENT, {}, "certified"),
        (records.DOCUMENT, {"fidelity": MISSED}, "outside-envelope"),
        (records.DOCUMENT, {"tokenizer": Outcome("skip", "reference_missing")}, "experimental"),
        (with_waivers(waiver()), {"fidelity": MISSED}, "experimental"),
    ],
)
def test_what_was_measured_is_what_the_loader_finds(
    model: Path, document: dict[str, Any], outcomes: dict[str, Outcome], state: str
) -> None:
    written = envelope.write(build(document, outcomes=outcomes), [model])
    assert written[0].sidecar == model.with_name("whatever-name.gguf.envelope.json")
    assert written[0].verdict == state
    standing = standing_of(model)
    assert standing.state == state
    assert standing.sidecar_sha256 == written[0].sha256


def test_the_document_is_the_report_and_no_more(model: Path) -> None:
    found = build(outcomes={"fidelity": MISSED})
    body = envelope.build(found, "m")["body"]
    assert body["report_body_sha256"] == found["body_sha256"]
    assert body["manifest_sha256"] == found["body"]["manifest"]["sha256"]
    assert body["artifacts"] == [{"name": "m.gguf", "sha256": records.SHA, "bytes": len(records.DATA)}]
    assert body["not_measured"] == ["backend=cuda"]
    assert body["scope"] == {
        "backends": ["cpu"],
        "kernel_sets": ["ref"],
        "activations": "wide",
        "kv": "f16",
        "context_tokens_max": 2048,
    }
    assert body["digest"]["sha256"] == records.DIGEST.sha256
    assert body["references"] == [{"name": "llama.cpp", "revision": "b11549"}]
    assert body["checks"][-1]["measurements"] == {"kld_mean_nats": 0.31, "top1_ratio": 0.5}


def test_an_independent_validator_accepts_it() -> None:
    schema = json.loads(schemas.text("envelope"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(
        json.loads(report.to_bytes(envelope.build(build(), "m")))
    )


def test_kernels_and_backends_count_only_where_they_ran() -> None:
    variants = (
        Variant("kernels=avx2", "pass"),
        Variant("kernels=neon", "skip", "unsupported_variant"),
        Variant("backend=cuda", "pass"),
        Variant("backend=metal", "skip", "no_device"),
    )
    body = envelope.build(build(outcomes={"identity": Outcome("pass", variants=variants)}), "m")["body"]
    assert body["scope"]["kernel_sets"] == ["avx2", "ref"]
    assert body["scope"]["backends"] == ["cpu", "cuda"]
    assert body["not_measured"] == ["backend=metal", "kernels=neon"]


def test_a_file_with_another_hash_gets_nothing_whatever_its_name(model: Path) -> None:
    other = model.with_name("m.gguf")
    other.write_bytes(records.DATA[::-1])
    with pytest.raises(EnvelopeError, match="is not in the report: it was not measured"):
        envelope.write(build(), [model, other])
    assert sorted(path.name for path in model.parent.iterdir()) == ["m.gguf", "whatever-name.gguf"]


@pytest.mark.parametrize("actual", [None, "0" * 64])
def test_bytes_that_were_not_measured_have_no_envelope(actual: str | None) -> None:
    with pytest.raises(EnvelopeError, match="nothing was measured on the pinned bytes"):
        envelope.build(build(actual_sha256=actual), "m")


def test_a_run_in_which_nothing_ran_has_no_envelope() -> None:
    skipped = {name: Outcome("skip", "not_selected") for name in records.REQUIRED}
    with pytest.raises(EnvelopeError, match="no check ran"):
        envelope.build(build(outcomes=skipped), "m")


def test_another_reference_than_the_pinned_one_says_nothing_about_the_model() -> None:
    unpinned = Outcome("fail", "reference_revision_differs")
    with pytest.raises(EnvelopeError, match="fidelity met another reference"):
        envelope.build(build(outcomes={"fidelity": unpinned}), "m")


def test_an_incomplete_report_and_an_unknown_model_have_no_envelope() -> None:
    with pytest.raises(EnvelopeError, match="not complete"):
        envelope.build(build() | {"complete": False}, "m")
    with pytest.raises(EnvelopeError, match="no model 'n'"):
        envelope.build(build(), "n")


def test_an_existing_sidecar_is_replaced_only_by_force_and_then_named(model: Path) -> None:
    first = envelope.write(build(), [model])[0]
    with pytest.raises(EnvelopeError, match="--force"):
        envelope.write(build(), [model])
    envelope.write(build(outcomes={"fidelity": MISSED}), [model], force=True)
    assert json.loads(first.sidecar.read_bytes())["supersedes"] == first.sha256


def test_a_certified_receipt_does_not_give_way_to_a_lesser_one_in_silence(model: Path) -> None:
    skipped = {"fidelity": Outcome("skip", "not_selected")}
    assert envelope.write(build(), [model])[0].warning is None
    warning = envelope.write(build(outcomes=skipped), [model], force=True)[0].warning
    assert warning is not None
    assert "the receipt that was replaced said certified, this one says experimental" in warning
    assert envelope.write(build(outcomes=skipped), [model], force=True)[0].warning is None
    assert envelope.write(build(), [model], force=True)[0].warning is None
    envelope.sidecar_of(model).write_text("{}")
    assert envelope.write(build(outcomes=skipped), [model], force=True)[0].warning is None


def test_out_collects_sidecars_and_two_for_one_name_are_refused(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    written = envelope.write(build(), [model], out=out)
    assert written[0].sidecar == out / "whatever-name.gguf.envelope.json"
    assert hashlib.sha256(written[0].sidecar.read_bytes()).hexdigest() == written[0].sha256
    twin = tmp_path / "sub" / model.name
    twin.parent.mkdir()
    twin.write_bytes(records.DATA)
    with pytest.raises(EnvelopeError, match="written twice"):
        envelope.write(build(), [model, twin], out=tmp_path / "more")


def test_the_same_bytes_in_two_configurations_need_a_choice(model: Path) -> None:
    document = copy.deepcopy(records.DOCUMENT)
    document["models"].append({**copy.deepcopy(document["models"][0]), "id": "m-q8"})
    document["models"][1]["config"] = {"kv": "q8"}
    found = build(document)
    with pytest.raises(EnvelopeError, match=r"as m, m-q8: add --model ID"):
        envelope.write(found, [model])
    assert envelope.write(found, [model], model_id="m-q8")[0].model_id == "m-q8"
    assert standing_of(model).reason == gate.GateReason.KV


def test_files_that_cannot_be_hashed_are_named(tmp_path: Path) -> None:
    with pytest.raises(EnvelopeError, match="No such file"):
        envelope.write(build(), [tmp_path / "none.gguf"])
    with pytest.raises(EnvelopeError, match="cannot be read"):
        envelope.write(build(), [tmp_path])
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(EnvelopeError, match="cannot be read"):
        envelope.write(build(), [tmp_path / "pipe"])
