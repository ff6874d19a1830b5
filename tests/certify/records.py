"""Manifests, results and reports for tests: valid ones, to be changed in one place each."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from datetime import date
from typing import Any

import yaml

from certify import manifest, report
from certify.manifest import Manifest
from certify.report import ArtifactResult, EngineRecord, Host, ModelResult, ReferenceRecord, RunRecord
from certify.types import CheckResult, Digest, Evidence, Outcome, Variant

DATA = b"weights of a model"
SHA = hashlib.sha256(DATA).hexdigest()
TODAY = date(2026, 11, 30)
OBJECT = {"type": "object", "additionalProperties": False}
PARAMETERS: dict[str, Mapping[str, Any]] = {
    "load": {**OBJECT, "properties": {}},
    "tokenizer": {
        **OBJECT,
        "properties": {
            "corpus": {"type": "string"},
            "references": {"type": "array"},
            "max_disputed_ratio": {"type": "number"},
        },
    },
    "greedy_reference": {**OBJECT, "properties": {"tokens": {"type": "integer"}}},
    "identity": {**OBJECT, "properties": {"threads": {"type": "array", "items": {"type": "integer"}}}},
    "fidelity": {
        **OBJECT,
        "properties": {"positions": {"type": "integer"}, "kld_mean_nats_max": {"type": "number"}},
    },
}
REQUIRED = tuple(PARAMETERS)
DOCUMENT: dict[str, Any] = {
    "schema": "gaugeblock.manifest/1",
    "name": "test",
    "references": {"llama.cpp": {"provider": "xllamacpp", "revision": "b11549"}},
    "corpora": {"prose": {"file": "prose.txt", "sha256": "9" * 64}},
    "models": [
        {
            "id": "m",
            "architecture": "llama",
            "license": "Apache-2.0",
            "artifacts": [
                {"name": "m.gguf", "sha256": SHA, "bytes": len(DATA), "sources": [{"path": "m.gguf"}]}
            ],
            "config": {"activations": "wide", "kv": "f16", "context_tokens": 2048},
            "checks": {
                "load": {},
                "tokenizer": {"corpus": "core-1"},
                "greedy_reference": {"tokens": 64},
                "identity": {"threads": [1, 2]},
                "fidelity": {"positions": 400, "kld_mean_nats_max": 0.01},
            },
        }
    ],
}
ENGINE = EngineRecord(
    version="0.1.0",
    commit="c" * 40,
    dirty=False,
    library_sha256="d" * 64,
    compiler="gcc 12.2.0",
    flags="-O3 -ffile-prefix-map=/home/someone/src=.",
    contracts={"numerics": "gb1", "tokenizer": "t1", "template": "j1"},
)
REFERENCE = ReferenceRecord("llama.cpp", "xllamacpp", "2026.10.11549", "b11549", "b11549", ("avx2",))
RUN = RunRecord(
    id="run-1",
    started="2026-11-30T12:00:00Z",
    finished="2026-11-30T12:05:00Z",
    resumed=False,
    host=Host("linux", "x86_64", "A CPU", 2),
    kernel_set="ref",
    harness_version="0.1.0",
    python="3.11.7",
)
DIGEST = Digest((2, 818, 5), (0, 1, 2), 512, "e" * 64)
OUTCOMES: dict[str, Outcome] = {
    "load": Outcome("pass"),
    "tokenizer": Outcome("pass", measurements={"strings": 1214, "differences": 0, "disputed_ratio": 0.01}),
    "greedy_reference": Outcome("pass", measurements={"positions": 1024, "near_ties": 3}),
    "identity": Outcome(
        "pass",
        variants=(Variant("threads=1", "pass"), Variant("backend=cuda", "skip", "no_device")),
        digest=DIGEST,
    ),
    "fidelity": Outcome(
        "pass",
        measurements={"kld_mean_nats": 0.0044, "top1_ratio": 0.948, "parent_kld_mean_nats": None},
        thresholds={"kld_mean_nats_max": 0.01},
        evidence=(Evidence("fidelity.jsonl", "f" * 64, 1234),),
    ),
}
MISSED = Outcome(
    "fail",
    "threshold_missed",
    "mean KLD 0.31 nats",
    measurements={"kld_mean_nats": 0.31, "top1_ratio": 0.5},
    thresholds={"kld_mean_nats_max": 0.01},
)


def load(document: Mapping[str, Any] = DOCUMENT) -> Manifest:
    """The manifest of a document."""
    return manifest.parse(yaml.safe_dump(dict(document), sort_keys=False).encode(), parameters=PARAMETERS)


def results(found: Manifest, outcomes: Mapping[str, Outcome]) -> list[ModelResult]:
    """Results of every declared check of every model."""
    models = []
    for entry in found.models:
        checks = tuple(
            CheckResult(item.id, 1, f"{item.id} MUST hold.", outcomes[item.id], item.parameters, 1.25)
            for item in entry.checks
        )
        artifacts = tuple(
            ArtifactResult(item.name, item.sha256, item.sha256, item.bytes) for item in entry.artifacts
        )
        models.append(ModelResult(entry, artifacts, checks))
    return models


def build(
    document: Mapping[str, Any] = DOCUMENT,
    *,
    outcomes: Mapping[str, Outcome] = {},
    references: tuple[ReferenceRecord, ...] = (REFERENCE,),
    run: RunRecord = RUN,
    actual_sha256: str | None = SHA,
    today: date = TODAY,
    allow_incomplete: bool = False,
) -> dict[str, Any]:
    """The report of a run in which every check has its usual outcome but those of ``outcomes``."""
    found = load(document)
    models = [
        dataclasses.replace(
            model,
            artifacts=tuple(
                dataclasses.replace(item, actual_sha256=actual_sha256) for item in model.artifacts
            ),
        )
        for model in results(found, {**OUTCOMES, **outcomes})
    ]
    return report.build(
        found,
        models,
        engine=ENGINE,
        references=references,
        run=run,
        today=today,
        allow_incomplete=allow_incomplete,
    )


def with_waivers(*waivers: Mapping[str, Any]) -> dict[str, Any]:
    """The document with waivers on its model."""
    model = {**DOCUMENT["models"][0], "waivers": [dict(waiver) for waiver in waivers]}
    return {**DOCUMENT, "models": [model]}


def waiver(**more: Any) -> dict[str, Any]:
    """A waiver of fidelity that is valid for long."""
    return {"check": "fidelity", "reason": "known", "owner": "someone", "until": "2027-03-31"} | more
