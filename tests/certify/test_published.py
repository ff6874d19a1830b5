"""What we publish: release reports and sidecars of the models that we measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from certify import manifest, report
from engine import envelope

ROOT = Path(__file__).resolve().parents[2]
REPORTS = sorted((ROOT / "compat-reports").glob("*.json"))
SIDECARS = sorted((ROOT / "envelopes").glob("*.json"))


def test_there_is_a_report_and_a_sidecar_of_every_released_model() -> None:
    released = manifest.load(ROOT / "manifests" / "release.yaml")
    names = {f"{model.artifacts[0].name}.envelope.json" for model in released.models}
    assert {path.name for path in SIDECARS} >= names
    assert REPORTS


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.stem)
def test_a_published_report_is_whole_and_certified(path: Path) -> None:
    document = report.read(path)
    assert document["body"]["engine"]["dirty"] is False
    assert {model["verdict"] for model in document["body"]["models"]} == {"certified"}


@pytest.mark.parametrize("path", SIDECARS, ids=lambda path: path.stem)
def test_a_published_sidecar_is_one_that_the_loader_takes(path: Path) -> None:
    receipt = envelope.parse(path.read_bytes())
    assert receipt.verdict == "certified"
    pinned = {
        artifact.sha256
        for model in manifest.load(ROOT / "manifests" / "release.yaml").models
        for artifact in model.artifacts
    }
    assert receipt.sha256 in pinned
