"""Manifests: what is accepted, and that every refusal names file, line and key."""

from __future__ import annotations

import copy
import json
from datetime import date
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from certify import manifest, schemas
from certify.manifest import ManifestError
from engine.sources import ConcatSource, PypiSource
from tests.certify import records

EXAMPLE = """\
schema: gaugeblock.manifest/1
name: release
defaults: {timeout_s: 3600}
references:
  llama.cpp: {provider: xllamacpp, revision: b11549}
corpora:
  prose: {file: prose.txt, sha256: 9999999999999999999999999999999999999999999999999999999999999abc}
models:
- id: gemma-3-270m-q4_k_m
  architecture: gemma3
  license: Gemma
  artifacts:
  - name: gemma-3-270m-q4_k_m.gguf
    sha256: a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
    bytes: 253113024
    sources:
    - path: gemma-3-270m-q4_k_m.gguf
    - concat:
      - {pypi: gemma3-part1==1.0.0, member: gemma3/data/x.part00}
      - {pypi: gemma3-part2==1.0.0, member: gemma3/data/x.part01}
  derivation: {parent: null, method: null}
  config: {activations: wide, kv: f16, context_tokens: 2048}
  checks:
    load: {}
    fidelity: {positions: 400, kld_mean_nats_max: 0.01, timeout_s: 90}
  waivers:
  - {check: fidelity, measurement: kld_mean_nats, reason: "r", owner: "o", issue: "i", until: "2027-03-31"}
"""


def parse(text: str, name: str = "m.yaml") -> manifest.Manifest:
    return manifest.parse(text.encode(), name=name, parameters=records.PARAMETERS)


def problems(text: str, name: str = "m.yaml") -> tuple[str, ...]:
    with pytest.raises(ManifestError) as caught:
        parse(text, name)
    return caught.value.problems


def test_the_example_is_read_whole() -> None:
    found = parse(EXAMPLE)
    entry = found.models[0]
    assert (found.name, found.timeout_s, found.references["llama.cpp"].revision) == (
        "release",
        3600.0,
        "b11549",
    )
    assert entry.config == manifest.Config("wide", "f16", 2048)
    assert entry.artifacts[0].bytes == 253113024
    assert entry.artifacts[0].sources[1] == ConcatSource(
        (
            PypiSource("gemma3-part1==1.0.0", "gemma3/data/x.part00"),
            PypiSource("gemma3-part2==1.0.0", "gemma3/data/x.part01"),
        )
    )
    assert entry.check("load") == manifest.CheckEntry("load", {}, 3600.0)
    assert entry.check("fidelity") == manifest.CheckEntry(
        "fidelity", {"positions": 400, "kld_mean_nats_max": 0.01}, 90.0
    )
    assert entry.waivers[0].until == date(2027, 3, 31)
    assert not entry.waivers[0].expired(date(2027, 3, 31))
    assert entry.waivers[0].expired(date(2027, 4, 1))


def test_json_is_the_same_document() -> None:
    document = yaml.safe_load(EXAMPLE)
    for indent in (None, 2):
        assert parse(json.dumps(document, indent=indent), "m.json").sha256 == parse(EXAMPLE).sha256


@pytest.mark.parametrize("name", ["m.yaml", "m.json"])
def test_a_whole_number_is_an_integer_however_it_is_written(name: str) -> None:
    plain, dotted = EXAMPLE, EXAMPLE.replace("2048", "2048.0").replace("253113024", "253113024.0")
    dotted = dotted.replace("positions: 400", "positions: 400.0")
    if name.endswith(".json"):
        plain, dotted = (json.dumps(yaml.safe_load(text)) for text in (plain, dotted))
    first, second = parse(plain, name), parse(dotted, name)
    assert first == second
    entry = second.models[0]
    numbers = (entry.config.context_tokens, entry.artifacts[0].bytes, entry.checks[1].parameters["positions"])
    assert [type(number) for number in numbers] == [int] * 3


def test_defaults_apply_and_are_overridden() -> None:
    text = EXAMPLE.replace("defaults: {timeout_s: 3600}", "defaults: {config: {kv: q8, context_tokens: 64}}")
    entry = parse(text.replace("kv: f16, context_tokens: 2048", "context_tokens: 128")).models[0]
    assert entry.config == manifest.Config("wide", "q8", 128)
    assert entry.checks[0].timeout_s == manifest.DEFAULT_TIMEOUT_S


def test_a_parent_is_another_model_or_a_hash() -> None:
    document = copy.deepcopy(records.DOCUMENT)
    document["models"].append({**copy.deepcopy(document["models"][0]), "id": "child"})
    document["models"][1]["derivation"] = {"parent": "m", "method": "Q4_0"}
    assert records.load(document).models[1].derivation == manifest.Derivation("m", records.SHA, "Q4_0")
    document["models"][1]["derivation"] = {"parent": "b" * 64}
    assert records.load(document).models[1].derivation.parent_sha256 == "b" * 64
    document["models"][1]["derivation"] = {"parent": "n"}
    with pytest.raises(ManifestError, match="neither a SHA-256 nor the id of a model"):
        records.load(document)
    document["models"][1]["derivation"] = {"parent": "child"}
    with pytest.raises(ManifestError, match="not its own parent"):
        records.load(document)


@pytest.mark.parametrize(
    ("old", "new", "line", "expected"),
    [
        ("license:", "licence:", 11, "models[0].licence: unknown key 'licence'; did you mean 'license'?"),
        ("name: release", "nam: release", 2, "nam: unknown key 'nam'; did you mean 'name'?"),
        ("timeout_s: 3600", "timeout: 3600", 3, "defaults.timeout: unknown key"),
        (
            "positions: 400",
            "position: 400",
            25,
            "fidelity.position: unknown key 'position'; did you mean 'pos",
        ),
        ("positions: 400", "positions: many", 25, "fidelity.positions: 'many' is not of type integer"),
        ("    load: {}", "    laod: {}", 24, "checks.laod: unknown check 'laod'; did you mean 'load'?"),
        (
            "activations: wide",
            "activations: wyde",
            22,
            "'wyde' is none of wide, int8, f32; did you mean 'wide'?",
        ),
        (
            "revision: b11549",
            "revision: 11549",
            5,
            "llama.cpp.revision: 11549 is not of type string; quote it",
        ),
        (
            "path: gemma",
            "path: ../gemma",
            17,
            "sources[0].path: '../gemma-3-270m-q4_k_m.gguf' is not a plain",
        ),
        ("path: gemma", "path: /gemma", 17, "does not match"),
        (
            "path: gemma",
            "url: http://x/gemma",
            17,
            "sources[0].url: 'http://x/gemma-3-270m-q4_k_m.gguf' does not",
        ),
        ("path: gemma", "url: https://u:p@x/gemma", 17, "does not match ^https"),
        (
            "path: gemma",
            "file: gemma",
            17,
            "sources[0]: must be exactly one kind of source; its keys are file",
        ),
        ("path: gemma", "url: https://x\n      path: gemma", 17, "unknown key 'url'"),
        (
            "part1==1.0.0",
            "part1>=1.0.0",
            19,
            "sources[1].concat[0].pypi: 'gemma3-part1>=1.0.0' does not match",
        ),
        ("part1==1.0.0", "part1==1.0.0 --index-url=https://evil.example", 19, "does not match"),
        ("member: gemma3/data/x.part00", "revision: 5", 19, "concat[0]: lacks the required key 'member'"),
        ("bytes: 253113024\n", "\n", 13, "models[0].artifacts[0]: lacks the required key 'bytes'"),
        ("bytes: 253113024", "bytes: '253113024'", 15, "is not of type integer"),
        ("sha256: a5fd", "sha256: A5FD", 14, "models[0].artifacts[0].sha256: 'A5FD"),
        (
            "manifest/1",
            "manifest/2",
            1,
            "schema: must be 'gaugeblock.manifest/1', not 'gaugeblock.manifest/2'",
        ),
        ("provider: xllamacpp", "provider: /usr/bin/llama-server", 5, "is none of xllamacpp"),
        ("provider: xllamacpp", "provider: xllamacpp, binary: x", 5, "unknown key 'binary'"),
        ("file: prose.txt", "file: ../../etc/passwd", 7, "is not a plain relative path"),
        ("{check: fidelity, me", "{check: identity, me", 27, "the model declares no check 'identity'"),
        ("2027-03-31", "2027-02-30", 27, "waivers[0].until: '2027-02-30' is no day of the calendar"),
        ("2027-03-31", "next year", 27, "models[0].waivers[0].until: 'next year' does not match"),
        ('owner: "o", ', "", 27, "models[0].waivers[0]: lacks the required key 'owner'"),
        ("timeout_s: 90", "timeout_s: 0", 25, "fidelity.timeout_s: 0 is less than"),
        ("name: gemma-3-270m-q4_k_m.gguf", "name: a/b.gguf", 13, "does not match"),
        ("license: Gemma", "license: Gemma\n  license: MIT", 12, "duplicate key 'license', first on line 11"),
        ("license: Gemma", "license: !!str Gemma", 11, "tags are not allowed"),
        ("context_tokens: 2048", "context_tokens: 2.5", 22, "is not of type integer"),
        ("name: release", 'name: "a\\e[2Jb"', 2, "'a\\x1b[2Jb' does not match"),
    ],
)
def test_every_refusal_names_file_line_and_key(old: str, new: str, line: int, expected: str) -> None:
    assert old in EXAMPLE
    found = problems(EXAMPLE.replace(old, new, 1))
    assert any(problem.startswith(f"m.yaml:{line}: ") and expected in problem for problem in found), found
    assert all(problem.isprintable() for problem in found)


def test_all_problems_are_named_at_once() -> None:
    text = (
        EXAMPLE.replace("license:", "licence:").replace("wide", "wyde").replace("path: gemma", "path: ../x")
    )
    assert len(problems(text)) == 3


def test_problems_of_json_have_their_line_too() -> None:
    document = yaml.safe_load(EXAMPLE)
    document["models"][0]["checks"]["fidelity"]["position"] = 1
    text = json.dumps(document, indent=1)
    line = next(number for number, part in enumerate(text.splitlines(), 1) if '"position"' in part)
    assert problems(text, "m.json")[0].startswith(
        f"m.json:{line}: models[0].checks.fidelity.position: unknown key"
    )


def _model(**more: Any) -> dict[str, Any]:
    return copy.deepcopy({**records.DOCUMENT["models"][0], **more})


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"models": []}, "models: must not be empty"),
        ({"models": [_model(checks={})]}, "checks: must not be empty"),
        ({"models": [_model(), _model()]}, "model id 'm' is already that of models[0]"),
        ({"models": [_model(artifacts=_model()["artifacts"] + _model()["artifacts"])]}, "occurs twice"),
        ({"name": "a\n"}, "does not match"),
        ({"name": None}, "is not of type string"),
    ],
)
def test_what_would_measure_nothing_or_twice(change: dict[str, Any], text: str) -> None:
    with pytest.raises(ManifestError) as caught:
        records.load(records.DOCUMENT | change)
    assert text in str(caught.value)


def test_a_second_waiver_of_the_same_thing_is_refused() -> None:
    with pytest.raises(ManifestError, match="second waiver"):
        records.load(records.with_waivers(records.waiver(), records.waiver()))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match=r"nothing\.yaml: cannot be read: No such file"):
        manifest.load(tmp_path / "nothing.yaml")
    with pytest.raises(ManifestError, match="cannot be read"):
        manifest.load(tmp_path)


def test_the_published_schema_agrees_with_an_independent_validator() -> None:
    schema = json.loads(schemas.text("manifest"))
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    assert validator.is_valid(yaml.safe_load(EXAMPLE))
    assert validator.is_valid(records.DOCUMENT)
    assert not validator.is_valid(records.DOCUMENT | {"extra": 1})


def test_the_checks_of_this_harness_have_parameter_schemas() -> None:
    for check_id, schema in manifest.known_checks().items():
        jsonschema.Draft202012Validator.check_schema(schema)
        assert schema["type"] == "object", check_id
