"""Texts, prompts, captures and manifests of the repository are what their pins say."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from certify import captures, corpora, manifest
from certify.checks.greedy_reference import read_prompts
from certify.checks.tokenizer import distinct_strings

ROOT = Path(__file__).resolve().parents[2]
MANIFESTS = sorted((ROOT / "manifests").glob("*.yaml"))


@pytest.mark.parametrize("name", corpora.BUILT_IN)
def test_built_in_texts_have_their_hash(name: str) -> None:
    file, digest = corpora.BUILT_IN[name]
    assert hashlib.sha256(corpora.locate(file, ()).read_bytes()).hexdigest() == digest


def test_prompt_set_and_corpus_are_large_and_varied_enough() -> None:
    prompts = read_prompts(corpora.locate("default-16.json", ()).read_bytes())
    assert len(prompts) == len({name for name, _ in prompts}) == len({text for _, text in prompts}) == 16
    assert len(distinct_strings(corpora.locate("core-1.jsonl", ()).read_bytes())) >= 700
    assert len(corpora.locate("prose.txt", ()).read_text().split()) >= 2400


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_manifests_are_valid_and_pin_texts_that_are_here(path: Path) -> None:
    loaded = manifest.load(path)
    texts = corpora.texts(loaded)
    for text in texts.values():
        assert hashlib.sha256(Path(text.path).read_bytes()).hexdigest() == text.sha256
    for model in loaded.models:
        # those two measure speed and endings, of models that others certify
        assert model.check("load") is not None or loaded.name in {"performance", "truncation"}


def test_the_release_manifest_demands_what_the_acceptance_says() -> None:
    loaded = manifest.load(ROOT / "manifests" / "release.yaml")
    assert [model.architecture for model in loaded.models] == ["llama", "gemma3"]
    for model in loaded.models:
        parameters = {check.id: check.parameters for check in model.checks}
        assert parameters["tokenizer"]["max_disputed_ratio"] == 0.02
        assert parameters["greedy_reference"]["tokens"] == 64
        assert parameters["greedy_reference"]["tie_band_nats"] == 0.5
        assert parameters["fidelity"]["positions"] == 400
        assert parameters["fidelity"]["kld_mean_nats_max"] == 0.01
        assert parameters["fidelity"]["floor_factor"] == 2
        assert parameters["fidelity"]["margin_top1_ratio_min"] == 1.0
        assert parameters["identity"]["threads"] == [1, 2, 3]
        assert parameters["identity"]["batches"] == [1, 7, 64, 512]


def test_the_tiny_models_are_those_that_the_manifest_pins(tiny_model: Callable[[str], Path]) -> None:
    for model in manifest.load(ROOT / "manifests" / "fixtures.yaml").models:
        data = tiny_model(model.artifacts[0].name.removesuffix(".gguf")).read_bytes()
        assert hashlib.sha256(data).hexdigest() == model.artifacts[0].sha256


def test_captures_are_bound_to_corpus_model_and_revision(tmp_path: Path) -> None:
    folder = corpora.captures()
    assert folder is not None
    for model in manifest.load(ROOT / "manifests" / "fixtures.yaml").models:
        found = captures.find(folder, model.artifacts[0].sha256, "llama.cpp")
        assert found is not None
        assert found.corpus_sha256 == corpora.BUILT_IN["core-1"][1]
        assert found.revision == "b11549"
        assert captures.find(folder, "0" * 64, "llama.cpp") is None
        copy = captures.write(tmp_path, found)
        assert captures.find(str(tmp_path), model.artifacts[0].sha256, "llama.cpp") == found
        copy.rename(tmp_path / captures.file_name("0" * 64, "llama.cpp"))
        with pytest.raises(captures.CaptureError, match="another model"):
            captures.find(str(tmp_path), "0" * 64, "llama.cpp")


@pytest.mark.parametrize("data", [b"", b"no gzip", gzip.compress(b"{}"), gzip.compress(b'{"schema": "x"}')])
def test_a_broken_capture_is_refused_by_name(data: bytes, tmp_path: Path) -> None:
    (tmp_path / captures.file_name("a" * 64, "llama.cpp")).write_bytes(data)
    with pytest.raises(captures.CaptureError, match=r"aaaa-llama\.cpp\.json\.gz"):
        captures.find(str(tmp_path), "a" * 64, "llama.cpp")


def test_a_changed_capture_changes_what_a_journal_belongs_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpora, "CAPTURE_FOLDERS", (tmp_path,))
    assert corpora.capture_digests() == {}
    (tmp_path / "a.json.gz").write_bytes(b"one")
    first = corpora.capture_digests()
    (tmp_path / "a.json.gz").write_bytes(b"two")
    assert set(first) == {"a.json.gz"}
    assert corpora.capture_digests() != first
