"""certify validate, show, diff, envelope, replay, schema: as a person runs them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from certify import diff, report, schemas
from certify.commands.records import _difference
from certify.types import Outcome
from engine import Model, logits_digest
from engine.contracts import contracts
from tests.certify import records
from tests.certify.records import MISSED, build
from tests.engine import sidecars

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        found = json.loads(self.out)
        assert found["schema"].startswith("gaugeblock.")
        assert isinstance(found, dict)
        return found


def certify(*arguments: str | Path) -> Ran:
    done = subprocess.run(
        [sys.executable, "-m", "certify.cli", *map(str, arguments)],
        cwd=ROOT,
        env=os.environ | {"NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return Ran(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def reports(tmp_path: Path) -> Callable[..., Path]:
    def make(name: str, **more: Any) -> Path:
        path = tmp_path / f"{name}.json"
        report.write(build(**more), path)
        return path

    return make


# ---- validate --------------------------------------------------------------------------------


def manifest_of(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "m.yaml"
    path.write_text(text)
    return path


GOOD = {
    **records.DOCUMENT,
    "models": [{**records.DOCUMENT["models"][0], "checks": {"load": {}}}],
}


def test_validate_says_what_it_found(tmp_path: Path) -> None:
    path = manifest_of(tmp_path, yaml.safe_dump(GOOD))
    ran = certify("validate", path)
    assert (ran.code, ran.err) == (0, "")
    assert "valid: 1 model, 1 check, sha256 " in ran.out
    assert certify("validate", path, "--json").document["valid"] is True


def test_validate_names_every_problem_and_ends_with_2(tmp_path: Path) -> None:
    path = manifest_of(tmp_path, yaml.safe_dump(GOOD | {"mdels": 1, "defaults": {"timeout": 1}}))
    ran = certify("validate", path)
    assert ran.code == 2
    assert ran.out == ""
    assert "unknown key 'mdels'; did you mean 'models'?" in ran.err
    assert f"{path}:" in ran.err
    ran = certify("--log-format", "json", "validate", path, "--json")
    assert len(ran.document["problems"]) == 2
    assert [json.loads(line)["level"] for line in ran.err.splitlines()] == ["error", "error"]


def test_validate_takes_several_manifests(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(yaml.safe_dump(GOOD))
    bad.write_text(yaml.safe_dump(GOOD | {"mdels": 1}))
    assert certify("validate", good, good).code == 0
    ran = certify("validate", bad, good)
    assert ran.code == 2
    assert f"{good}: valid" in ran.out
    assert "mdels" in ran.err
    document = certify("validate", good, bad, "--json").document
    assert document["valid"] is False
    assert [item["valid"] for item in document["manifests"]] == [True, False]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["no-such-command"], "certify: error: No such command 'no-such-command'. (see certify --help)"),
        (["validate"], "certify: error: Missing argument 'MANIFEST...'. (see certify validate --help)"),
        (["show", "r.json", "--jason"], "(see certify show --help)"),
        (["run", "m.yaml", "--queit"], "(see certify run --help)"),
        ([], "certify: error: a command is missing (see certify --help)"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_exit_2(arguments: list[str], text: str) -> None:
    ran = certify(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert text in ran.err
    assert ran.err.startswith("certify: error: ")
    assert ran.err.count("\n") == 1


def test_validate_of_nothing_ends_with_2(tmp_path: Path) -> None:
    assert certify("validate", tmp_path / "none.yaml").code == 2
    assert certify("validate").code == 2
    assert certify("no-such-command").code == 2


# ---- show ------------------------------------------------------------------------------------


def test_show_is_readable_and_escapes(reports: Callable[..., Path]) -> None:
    failing = dataclasses.replace(MISSED, detail="said \x1b[31m[red]boo[/red]")
    ran = certify("show", reports("r", outcomes={"fidelity": failing}))
    assert ran.code == 0
    assert "m: outside-envelope (rule v1; activations wide, kv f16, up to 2048 tokens)" in ran.out
    assert "fail    fidelity [threshold_missed]: kld_mean_nats 0.31 (max 0.01)" in ran.out
    assert "required: fidelity MUST hold." in ran.out
    assert "said \\x1b[31m[red]boo[/red]" in ran.out
    assert "variants: 1 pass, backend=cuda skip [no_device]" in ran.out
    assert "\x1b" not in ran.out
    skipped = Outcome("skip", "not_selected", detail="left out by --check")
    ran = certify("show", reports("s", outcomes={"fidelity": skipped}))
    assert "skip    fidelity [not_selected]\n          left out by --check" in ran.out
    assert "required: " not in ran.out


def test_show_of_a_model_that_is_not_there_and_of_a_broken_report(reports: Callable[..., Path]) -> None:
    path = reports("r")
    assert "it has m" in certify("show", path, "--model", "n").err
    assert certify("show", path, "--json").document == json.loads(path.read_text())
    path.write_bytes(path.read_bytes().replace(b"0.0044", b"0.0001"))
    ran = certify("show", path)
    assert ran.code == 2
    assert "body_sha256 states" in ran.err
    assert "certify schema report" in ran.err


# ---- diff ------------------------------------------------------------------------------------


def test_equal_reports_have_no_difference(reports: Callable[..., Path]) -> None:
    other = dataclasses.replace(records.RUN, id="again", finished="2027-01-01T00:00:00Z")
    ran = certify("diff", reports("a"), reports("b", run=other))
    assert (ran.code, ran.out) == (0, "equal\n")


def test_diff_names_what_changed_and_what_became_worse(reports: Callable[..., Path]) -> None:
    a, b = reports("a"), reports("b", outcomes={"fidelity": MISSED})
    ran = certify("diff", a, b)
    assert ran.code == 1
    assert "worse  models[m].checks[fidelity].outcome: pass -> fail" in ran.out
    assert "worse  models[m].verdict: certified -> outside-envelope" in ran.out
    assert "models[m].checks[fidelity].measurements.kld_mean_nats: 0.0044 -> 0.31" in ran.out
    document = certify("diff", b, a, "--json").document
    assert document["equal"] is False
    assert not any(change["worse"] for change in document["changes"])
    exit_code = {"path": "exit_code", "a": 1, "b": 0, "worse": False, "only": None, "item": False}
    assert exit_code in document["changes"]


def test_diff_says_once_what_one_report_lacks_and_tells_null_from_absent() -> None:
    def report_of(*models: dict[str, Any]) -> dict[str, Any]:
        return {"body": {"models": list(models)}}

    m = {"id": "m", "verdict": "certified", "checks": [{"id": "load", "outcome": "pass", "reason": None}]}
    other = m | {"id": "n", "checks": [{"id": "load", "outcome": "pass", "note": None}]}
    found = diff.changes(report_of(m), report_of(other))
    assert [(item.path, item.only, item.item, item.worse) for item in found] == [
        ("models[m]", "a", True, True),
        ("models[n]", "b", True, False),
    ]
    assert [_difference(item) for item in found] == ["only in A", "only in B"]
    less = m | {"checks": [{"id": "load", "outcome": "pass", "note": None}]}
    found = diff.changes(report_of(m), report_of(less))
    assert [(item.path, _difference(item)) for item in found] == [
        ("models[m].checks[load].reason", "null -> absent"),
        ("models[m].checks[load].note", "absent -> null"),
    ]
    for one, two in ((m, m | {"checks": []}), (m | {"checks": []}, m)):
        assert [item.path for item in diff.changes(report_of(one), report_of(two))] == [
            "models[m].checks[load]"
        ]
    empty = m | {"checks": [{"id": "load", "outcome": "pass", "reason": None, "thresholds": {}}]}
    assert [_difference(item) for item in diff.changes(report_of(m), report_of(empty))] == ["absent -> {}"]


def test_a_check_that_no_longer_runs_is_worse(reports: Callable[..., Path]) -> None:
    skipped = {"identity": Outcome("skip", "not_selected")}
    ran = certify("diff", reports("a"), reports("b", outcomes=skipped))
    assert "worse  models[m].checks[identity].outcome: pass -> skip" in ran.out


# ---- envelope --------------------------------------------------------------------------------


def test_envelope_writes_sidecars_by_hash(reports: Callable[..., Path], tmp_path: Path) -> None:
    root = tmp_path / "models"
    root.mkdir()
    (root / "m.gguf").write_bytes(records.DATA)
    path = reports("r")
    ran = certify("envelope", path, "--models-root", root, "--json")
    written = ran.document["written"][0]
    sidecar = root / "m.gguf.envelope.json"
    assert (ran.code, written["verdict"]) == (0, "certified")
    assert written["sha256"] == hashlib.sha256(sidecar.read_bytes()).hexdigest()
    assert certify("envelope", path, root / "m.gguf").code == 1
    ran = certify("envelope", path, root / "m.gguf", "--out", tmp_path / "out")
    assert ran.code == 0
    assert (tmp_path / "out" / "m.gguf.envelope.json").read_bytes() == sidecar.read_bytes()


def test_envelope_says_that_a_certified_receipt_gives_way(
    reports: Callable[..., Path], tmp_path: Path
) -> None:
    (tmp_path / "m.gguf").write_bytes(records.DATA)
    full = reports("r")
    assert certify("envelope", full, tmp_path / "m.gguf").err == ""
    lesser = reports("s", outcomes={"fidelity": Outcome("skip", "not_selected")})
    for option in ([], ["--json"]):
        certify("envelope", full, tmp_path / "m.gguf", "--force")
        ran = certify("envelope", lesser, tmp_path / "m.gguf", "--force", *option)
        assert ran.code == 0
        assert ran.err.startswith("certify: warning: ")
        assert "said certified, this one says experimental" in ran.err


def test_envelope_refuses_other_bytes_and_nothing(reports: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"other")
    ran = certify("envelope", reports("r"), tmp_path / "m.gguf")
    assert ran.code == 1
    assert "it was not measured. Run `certify run`" in ran.err
    assert certify("envelope", tmp_path / "r.json").code == 2


# ---- replay ----------------------------------------------------------------------------------

PROMPT = [5, 17, 40, 3, 99, 256]
POSITIONS = [1, 3, 5]


@pytest.fixture
def model(tmp_path: Path, tiny_model: Callable[[str], Path]) -> Path:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(tiny_model("llama-q4_0").read_bytes())
    return path


def receipt(model: Path, **digest: Any) -> Path:
    """A sidecar with the digest that this engine computes, one field replaced."""
    with Model.open(model) as opened, opened.session(threads=1) as session:
        rows = session.eval(PROMPT, want="all")
        sha256 = logits_digest(rows[POSITIONS], activations="wide", kv="f16")
        vocab = rows.shape[1]
    base = {
        "algorithm": "gblogits/1",
        "prompt_ids": PROMPT,
        "positions": POSITIONS,
        "vocab": vocab,
        "sha256": sha256,
    }
    body = sidecars.body(model.read_bytes(), context_tokens=64) | {"contracts": contracts()}
    body["digest"] = base | digest if digest.pop("present", True) else None
    return sidecars.write(model, sidecars.envelope(body))


def test_a_receipt_that_holds(model: Path) -> None:
    sidecar = receipt(model)
    ran = certify("replay", sidecar, model, "-t", "2")
    assert ran.code == 0
    assert ran.out.startswith("holds: this machine computes the same bits")
    document = certify("replay", sidecar, model, "--json").document
    assert (document["holds"], document["stated"]) == (True, document["computed"])


def test_a_receipt_of_a_measured_failure_can_be_replayed(model: Path) -> None:
    document = json.loads(receipt(model).read_bytes())
    sidecar = sidecars.write(model, sidecars.envelope(sidecars.failing(document["body"])))
    ran = certify("replay", sidecar, model)
    assert ran.code == 0
    assert "verdict of the receipt: outside-envelope" in ran.out


@pytest.mark.parametrize(
    ("digest", "text"),
    [
        ({"sha256": "0" * 64}, "this machine computes other bits"),
        ({"prompt_ids": [*PROMPT[:-1], 257]}, "this machine computes other bits"),
        ({"positions": [0, 3, 5]}, "this machine computes other bits"),
        ({"positions": [1, 3, 6]}, "malformed"),
        ({"positions": [3, 1]}, "malformed"),
        ({"positions": []}, "malformed"),
        ({"prompt_ids": [True, 2, 3, 4, 5, 6]}, "malformed"),
        ({"algorithm": "gblogits/2"}, "another algorithm"),
        ({"prompt_ids": [10**9] * 6}, "tiny.gguf"),
        ({"present": False}, "no digest"),
        ({"vocab": 7}, "vocabulary: the receipt has 7"),
        ({"vocab": None}, "vocabulary: the receipt has None"),
        ({"prompt_ids": [1] * 65}, "65 tokens, the receipt covers contexts of up to 64"),
    ],
)
def test_a_receipt_that_does_not_hold(model: Path, digest: dict[str, Any], text: str) -> None:
    ran = certify("replay", receipt(model, **digest), model)
    assert ran.code == 1
    assert text in ran.out + ran.err


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        (("scope", "backends"), ["metal"], "measured on metal, not on cpu"),
        (("model", "architecture"), "qwen9", "architecture: the receipt has qwen9"),
        (("artifacts", 0, "bytes"), 1, "of 1 bytes"),
    ],
)
def test_a_receipt_about_something_else_does_not_hold(
    model: Path, path: tuple[Any, ...], value: Any, text: str
) -> None:
    body = json.loads(receipt(model).read_bytes())["body"]
    inner = body
    for part in path[:-1]:
        inner = inner[part]
    inner[path[-1]] = value
    ran = certify("replay", sidecars.write(model, sidecars.envelope(body)), model)
    assert ran.code == 1
    assert text in ran.out


def test_replay_on_other_bytes_under_another_contract_or_of_nothing(model: Path, tmp_path: Path) -> None:
    sidecar = receipt(model)
    other = tmp_path / "other.gguf"
    other.write_bytes(model.read_bytes() + b"\0")
    ran = certify("replay", sidecar, other)
    assert ran.code == 1
    assert "the receipt is about sha256" in ran.out
    assert "  computed  not computed\n" in ran.out
    body = json.loads(sidecar.read_bytes())["body"]
    body["contracts"]["numerics"] = "gb0"
    ran = certify("replay", sidecars.write(model, sidecars.envelope(body)), model)
    assert ran.code == 1
    assert "under numerics gb0" in ran.out
    assert "not there" in certify("replay", tmp_path / "none.json", model).err
    sidecars.write(model, b"{}")
    assert certify("replay", sidecar, model).code == 1


# ---- schema and version ------------------------------------------------------------------------


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="there is no /dev/full here")
@pytest.mark.parametrize("arguments", [("list",), ("schema", "report"), ("--version",)])
def test_an_output_that_cannot_be_written_is_said_without_a_traceback(arguments: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "certify.cli", *arguments]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 4
    assert done.stderr == "certify: error: the output cannot be written: No space left on device\n"


def test_characters_without_a_code_are_escaped(reports: Callable[..., Path]) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    command = [sys.executable, "-m", "certify.cli", "show", str(reports("a"))]
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("name", schemas.NAMES)
def test_schema_prints_the_published_file(name: str) -> None:
    ran = certify("schema", name)
    assert json.loads(ran.out) == json.loads(schemas.text(name))
    assert certify("schema", "nothing").code == 2


def test_version_names_the_contracts() -> None:
    out = certify("--version").out
    assert "numerics gb1" in out
    assert "verdict rule v1" in out
