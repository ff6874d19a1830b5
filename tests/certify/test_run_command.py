"""``certify run`` as a process: exit codes, resume after being killed, what a file's state does."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from certify import initial, registry
from certify import manifest as manifest_module
from certify.journal import Journal

NAMES = ("llama-q8_0", "qwen3-q8_0", "llama-odd")
IDENTITY = {"threads": [1, 2], "batches": [1, 7], "tokens": 48, "rows": 4}


def write_manifest(path: Path, root: Path, names: Sequence[str] = NAMES[:1], **changes: Any) -> Path:
    """A manifest of tiny models that needs neither network nor reference."""
    models = []
    for name in names:
        data = (root / f"{name}.gguf").read_bytes()
        models.append(
            {
                "id": name,
                "architecture": name.split("-")[0],
                "artifacts": [
                    {
                        "name": f"{name}.gguf",
                        "sha256": hashlib.sha256(data).hexdigest(),
                        "bytes": len(data),
                        "sources": [{"path": f"{name}.gguf"}],
                    }
                ],
                "config": {"context_tokens": 256},
                "checks": {"load": {}, "identity": IDENTITY},
                **changes,
            }
        )
    path.write_text(json.dumps({"schema": "gaugeblock.manifest/1", "name": "test", "models": models}))
    return path


@pytest.fixture
def root(tmp_path: Path, tiny_model: Callable[[str], Path]) -> Path:
    """A folder of its own with the tiny models."""
    folder = tmp_path / "models"
    folder.mkdir()
    for name in NAMES:
        (folder / f"{name}.gguf").write_bytes(tiny_model(name).read_bytes())
    return folder


def start(*arguments: str | Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "certify.cli", "run", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def certify(*arguments: str | Path) -> tuple[int, str, str]:
    process = start(*arguments)
    out, err = process.communicate(timeout=200)
    return process.returncode, out, err


def read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text()))


def test_a_run_passes_reports_and_repeats_to_the_same_digest(tmp_path: Path, root: Path) -> None:
    manifest = write_manifest(tmp_path / "m.json", root)
    code, out, err = certify(manifest, "--models-root", root, "--out", tmp_path / "a.json", "--envelopes")
    assert code == 0, err
    assert "llama-q8_0: experimental" in out
    assert "pass  llama-q8_0 / identity" in err
    first = read(tmp_path / "a.json")
    sidecar = read(root / "llama-q8_0.gguf.envelope.json")
    assert sidecar["body"]["report_body_sha256"] == first["body_sha256"]
    assert sidecar["body"]["digest"]["algorithm"] == "gblogits/1"
    code, out, _ = certify(manifest, "--models-root", root, "--out", tmp_path / "b.json", "--json", "--quiet")
    assert code == 0
    assert json.loads(out)["body_sha256"] == first["body_sha256"]
    for item in first["body"]["models"][0]["checks"][1]["evidence"]:
        data = (tmp_path / "a.run" / "evidence" / "llama-q8_0" / "identity" / item["name"]).read_bytes()
        assert hashlib.sha256(data).hexdigest() == item["sha256"]


def test_an_earlier_run_is_not_overwritten(tmp_path: Path, root: Path) -> None:
    manifest = write_manifest(tmp_path / "m.json", root)
    arguments = (manifest, "--models-root", root, "--out", tmp_path / "a.json", "--check", "load")
    assert certify(*arguments, "--allow-incomplete")[0] == 0
    code, _, err = certify(*arguments)
    assert code == 2
    assert "--force replaces it" in err
    assert certify(*arguments, "--force")[0] == 3  # identity was not selected
    found = read(tmp_path / "a.json")["body"]["models"][0]["checks"]
    assert [(item["id"], item["outcome"], item["reason"]) for item in found] == [
        ("load", "pass", None),
        ("identity", "skip", "not_selected"),
    ]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--model", "llama-q8"], "no model 'llama-q8'"),
        (["--check", "lode"], "no check 'lode'"),
        (["--resume", "--force"], "one of them"),
    ],
)
def test_usage_errors_end_with_2_and_run_nothing(
    arguments: list[str], text: str, tmp_path: Path, root: Path
) -> None:
    manifest = write_manifest(tmp_path / "m.json", root)
    code, _, err = certify(manifest, "--models-root", root, "--out", tmp_path / "a.json", *arguments)
    assert code == 2
    assert text in err
    assert not (tmp_path / "a.json").exists()


def test_a_missing_file_skips_and_another_file_fails_every_check_by_name(tmp_path: Path, root: Path) -> None:
    manifest = write_manifest(tmp_path / "m.json", root)
    path = root / "llama-q8_0.gguf"
    data = path.read_bytes()
    path.unlink()
    code, _, _ = certify(manifest, "--models-root", root, "--out", tmp_path / "a.json", "--offline")
    assert code == 3
    checks = read(tmp_path / "a.json")["body"]["models"][0]["checks"]
    assert {(item["outcome"], item["reason"]) for item in checks} == {("skip", "artifact_missing")}
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    code, _, _ = certify(manifest, "--models-root", root, "--out", tmp_path / "b.json", "--offline")
    assert code == 1
    model = read(tmp_path / "b.json")["body"]["models"][0]
    assert [(item["outcome"], item["reason"]) for item in model["checks"]] == [
        ("fail", "artifact_differs"),
        ("skip", "artifact_differs"),
    ]
    assert model["artifacts"][0]["actual_sha256"] != model["artifacts"][0]["expected_sha256"]
    assert model["verdict"] != "certified"


def test_a_poisoned_hash_cache_does_not_matter(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine.hashing import Identity, cache_path

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    manifest = write_manifest(tmp_path / "m.json", root)
    path = root / "llama-q8_0.gguf"
    good = hashlib.sha256(path.read_bytes()).hexdigest()
    path.write_bytes(path.read_bytes()[:-1] + b"\x55")
    with path.open("rb") as file:
        key = Identity.of(file.fileno()).key
    cache_path().parent.mkdir(parents=True)
    cache_path().write_text(json.dumps({key: good}))
    cache_path().chmod(0o600)
    assert certify(manifest, "--models-root", root, "--out", tmp_path / "a.json", "--offline")[0] == 1


def test_force_does_not_touch_a_run_that_is_at_work(tmp_path: Path, root: Path) -> None:
    manifest = write_manifest(tmp_path / "m.json", root)
    arguments = (manifest, "--models-root", root, "--out", tmp_path / "a.json")
    evidence = tmp_path / "a.run" / "evidence" / "x"
    evidence.mkdir(parents=True)
    with Journal.create(tmp_path / "a.run" / "journal.jsonl", {}):
        before = (tmp_path / "a.run" / "journal.jsonl").read_bytes()
        code, _, err = certify(*arguments, "--force")
        assert (code, evidence.is_dir()) == (2, True)
        assert "another run is writing" in err
        assert (tmp_path / "a.run" / "journal.jsonl").read_bytes() == before
    assert certify(*arguments, "--force", "--quiet")[0] == 0
    assert not evidence.exists()


@pytest.mark.parametrize(
    ("out", "expected"),
    [("", 2), (".", 2), ("folder", 2), ("fifo", 2), ("file/a.json", 4), ("a" * 300 + ".json", 4)],
)
def test_a_report_that_could_not_be_written_is_refused_before_the_work(
    tmp_path: Path, root: Path, out: str, expected: int
) -> None:
    manifest = write_manifest(tmp_path / "m.json", root)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"")
    os.mkfifo(tmp_path / "fifo")
    place = tmp_path / out if len(out) > 1 else out
    code, _, err = certify(manifest, "--models-root", root, "--out", place, "--force")
    assert code == expected
    assert "--out" in err
    assert "start" not in err
    assert (tmp_path / "fifo").is_fifo()


def test_a_sidecar_that_may_not_be_replaced_is_refused_before_the_work(tmp_path: Path, root: Path) -> None:
    manifest = write_manifest(tmp_path / "m.json", root)
    arguments = (manifest, "--models-root", root, "--out", tmp_path / "a.json", "--envelopes")
    sidecar = root / "llama-q8_0.gguf.envelope.json"
    sidecar.write_text("{}")
    code, _, err = certify(*arguments)
    assert (code, sidecar.read_text()) == (2, "{}")
    assert "--force replaces it" in err
    assert "start" not in err
    code, _, err = certify(*arguments, manifest, "--force")  # a file where the folder should be
    assert code == 4
    assert "start" not in err
    sidecar.unlink()
    sidecar.mkdir()
    code, out, err = certify(*arguments, "--force", "--quiet")
    assert code == 4
    assert "no sidecar" in err
    assert "2 pass; exit 0" in out


def test_dry_run_shows_the_plan_and_runs_nothing(tmp_path: Path, root: Path) -> None:
    manifest = write_manifest(tmp_path / "m.json", root)
    code, out, _ = certify(
        manifest, "--models-root", root, "--dry-run", "--json", "--out", tmp_path / "a.json"
    )
    assert code == 0
    plan = json.loads(out)
    assert plan["schema"] == "gaugeblock.plan/1"
    assert plan["models"][0]["checks"][1]["parameters"]["threads"] == [1, 2]
    assert not (tmp_path / "a.json").exists()


def test_fail_fast_names_what_was_not_reached(tmp_path: Path, root: Path) -> None:
    manifest = write_manifest(tmp_path / "m.json", root, NAMES[:2], architecture="qwen3")
    code, _, err = certify(manifest, "--models-root", root, "--out", tmp_path / "a.json", "--fail-fast")
    assert code == 1, err
    models = read(tmp_path / "a.json")["body"]["models"]
    assert models[0]["checks"][0]["reason"] == "architecture_differs"
    assert models[0]["checks"][1]["reason"] == "not_reached"
    assert {item["reason"] for item in models[1]["checks"]} == {"not_reached"}


def test_json_logs_are_json(tmp_path: Path, root: Path) -> None:
    manifest = write_manifest(tmp_path / "m.json", root)
    arguments = (manifest, "--models-root", root, "--out", tmp_path / "a.json", "--check", "load")
    _, _, err = certify(*arguments, "--log-format", "json")
    events = [json.loads(line) for line in err.splitlines()]
    assert [item["event"] for item in events] == ["start", "end"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_with_130_leaves_nobody_and_resumes(
    number: signal.Signals, tmp_path: Path, root: Path
) -> None:
    manifest = write_manifest(tmp_path / "m.json", root, NAMES)
    arguments = (manifest, "--models-root", root, "--out", tmp_path / "a.json")
    process = start(*arguments)
    journal = tmp_path / "a.run" / "journal.jsonl"
    while not (journal.exists() and journal.read_bytes().count(b"\n") >= 2) and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "--resume" in err
    assert not children_of(process.pid)
    assert not (tmp_path / "a.json").exists()
    assert certify(*arguments, "--resume")[0] == 0


def children_of(pid: int) -> list[int]:
    """Processes whose environment says that they belong to a check of a run that is over."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            stat = (entry / "stat").read_text().rpartition(")")[2].split() if entry.name.isdigit() else []
        except OSError:
            continue
        if stat and int(stat[1]) == pid and stat[0] != "Z":
            found.append(int(entry.name))
    return found


def test_resume_refuses_another_manifest_or_file(tmp_path: Path, root: Path) -> None:
    manifest = write_manifest(tmp_path / "m.json", root)
    arguments = (manifest, "--models-root", root, "--out", tmp_path / "a.json")
    assert certify(*arguments)[0] == 0
    write_manifest(manifest, root, config={"context_tokens": 255})
    code, _, err = certify(*arguments, "--resume")
    assert code == 2
    assert "manifest changed" in err
    write_manifest(manifest, root)
    path = root / "llama-q8_0.gguf"
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    code, _, err = certify(*arguments, "--resume", "--offline")
    assert code == 2
    assert "artifacts of llama-q8_0" in err
    path.write_bytes(data)
    evidence = tmp_path / "a.run" / "evidence" / "llama-q8_0" / "identity" / "identity.jsonl"
    evidence.write_text("{}\n")
    code, _, err = certify(*arguments, "--resume")
    assert code == 2
    assert "not what the journal recorded" in err


def test_init_writes_a_manifest_that_validates_and_runs(tmp_path: Path, root: Path) -> None:
    out = tmp_path / "mine.yaml"
    files = [str(root / f"{name}.gguf") for name in NAMES]
    command = [sys.executable, "-m", "certify.cli", "init", *files, "--out", str(out)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0
    assert f"mine.yaml: manifest 'mine' of {len(files)} file(s)" in done.stderr
    assert subprocess.run(command, check=False, capture_output=True).returncode == 2  # it exists
    loaded = manifest_module.load(out)
    assert loaded.name == "mine"  # so that the report is out/mine.json
    assert [model.id for model in loaded.models] == list(NAMES)
    assert {check.id for check in loaded.models[0].checks} == set(registry.load()) - {
        "performance",
        "tool",
        "truncation",
    }
    arguments = ("--models-root", root, "--out", tmp_path / "a.json", "--check", "load", "--allow-incomplete")
    assert certify(out, *arguments)[0] == 0
    (root / "no.gguf").write_bytes(b"not a model")
    command = [sys.executable, "-m", "certify.cli", "init", str(root / "no.gguf")]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert "no.gguf: byte 0: not a GGUF" in done.stderr
    assert done.stderr.count("no.gguf") == 1


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("my", "my"),
        ("my models (2)", "my-models-2"),
        ("größe", "gr-e"),
        ("…", ""),
        ("_x", "x"),
        ("a" * 200, "a" * 120),
    ],
)
def test_a_name_is_made_of_any_text(text: str, name: str) -> None:
    assert initial.name_from(text) == name


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--out", "nowhere/m.yaml"], 1, "cannot be written: No such file or directory"),
        (["--out", "."], 2, "exists"),
        (["--out", ".", "--force"], 2, "is not a regular file"),
        (["--name", "../a b"], 2, "'../a b' does not match"),
    ],
)
def test_init_refuses_what_it_could_not_write_or_read_again(
    root: Path, arguments: list[str], code: int, text: str
) -> None:
    command = [sys.executable, "-m", "certify.cli", "init", str(root / "llama-q8_0.gguf"), *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == code
    assert text in done.stderr
    assert "Traceback" not in done.stderr


def test_list_prints_every_check_with_its_requirement() -> None:
    command = [sys.executable, "-m", "certify.cli", "list", "--json"]
    document = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert document["schema"] == "gaugeblock.checks/1"
    assert [item["id"] for item in document["checks"]] == list(registry.load())
    assert all("MUST" in item["requirement"] for item in document["checks"])


def test_what_the_harness_cannot_do_ends_with_4(tmp_path: Path, root: Path) -> None:
    manifest = write_manifest(tmp_path / "m.json", root)
    (tmp_path / "file").write_text("in the way")
    code, _, err = certify(manifest, "--models-root", root, "--out", tmp_path / "file" / "a.json")
    assert code == 4
    assert "cannot be written: Not a directory" in err
    assert "Traceback" not in err


LIVE = {
    "load": {},
    "tokenizer": {"corpus": "core-1", "references": ["llama.cpp", "tokenizers"]},
    "greedy_reference": {"tokens": 8, "max_prompts": 4},
    "identity": IDENTITY,
    "fidelity": {"positions": 60, "floor_factor": 2},
}


@pytest.mark.reference
def test_a_tiny_model_is_certified_against_live_references_and_another_revision_fails(
    tmp_path: Path, root: Path
) -> None:
    pytest.importorskip("xllamacpp")
    pytest.importorskip("tokenizers")
    manifest = write_manifest(tmp_path / "m.json", root, ["qwen3-q8_0"], checks=LIVE)
    document = read(manifest)
    document["references"] = {"llama.cpp": {"provider": "xllamacpp", "revision": "b11549"}}
    manifest.write_text(json.dumps(document))
    code, out, err = certify(manifest, "--models-root", root, "--out", tmp_path / "a.json")
    assert code == 0, out + err
    body = read(tmp_path / "a.json")["body"]
    assert body["models"][0]["verdict"] == "certified"
    assert {item["name"]: item["revision"] for item in body["references"]}["llama.cpp"] == "b11549"
    document["references"]["llama.cpp"]["revision"] = "b11548"
    manifest.write_text(json.dumps(document))
    code, _, _ = certify(manifest, "--models-root", root, "--out", tmp_path / "b.json", "--check", "fidelity")
    assert code == 1
    body = read(tmp_path / "b.json")["body"]
    [fidelity] = [item for item in body["models"][0]["checks"] if item["id"] == "fidelity"]
    assert (fidelity["outcome"], fidelity["reason"]) == ("fail", "reference_revision_differs")
    assert body["references"][0]["revision"] == "b11549"
    assert body["references"][0]["pinned"] == "b11548"


def kill_and_resume(tmp_path: Path, root: Path, kills: int, seed: int) -> None:
    """Kill a run ``kills`` times at random moments, then let it finish, and compare."""
    manifest = write_manifest(tmp_path / "m.json", root, NAMES)
    begin = time.monotonic()
    whole = (manifest, "--models-root", root, "--out", tmp_path / "whole.json")
    assert certify(*whole)[0] == 0
    usual = time.monotonic() - begin
    pieces = (manifest, "--models-root", root, "--out", tmp_path / "pieces.json", "--resume")
    journal = tmp_path / "pieces.run" / "journal.jsonl"
    generator = random.Random(seed)
    begun: dict[str, int] = {}
    for _ in range(kills):
        finished = records(journal)
        process = start(*pieces, "--log-format", "json")
        time.sleep(generator.uniform(0, 0.6 * usual))
        os.kill(process.pid, signal.SIGKILL)
        _, err = process.communicate(timeout=60)
        note_starts(err, finished, begun)
    finished = records(journal)
    process = start(*pieces, "--log-format", "json")
    _, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    note_starts(err, finished, begun)
    one, other = read(tmp_path / "whole.json"), read(tmp_path / "pieces.json")
    assert other["body_sha256"] == one["body_sha256"]
    assert other["run"]["resumed"]
    assert sorted(records(journal)) == sorted(
        f"{name}/{check}" for name in NAMES for check in ("load", "identity")
    )


def records(journal: Path) -> list[str]:
    """Finished checks that the journal holds whole, in order."""
    lines = journal.read_bytes().splitlines(keepends=True)[1:] if journal.exists() else []
    found = []
    for line in lines:
        if line.endswith(b"\n"):
            data = json.loads(line)["data"]
            found.append(f"{data['model']}/{data['result']['id']}")
    return found


def note_starts(err: str, finished: list[str], begun: dict[str, int]) -> None:
    """No check that was finished before is begun again."""
    for line in err.splitlines():
        if line.endswith("}") and (event := json.loads(line)).get("event") == "start":
            name = f"{event['model']}/{event['check']}"
            begun[name] = begun.get(name, 0) + 1
            assert name not in finished


def test_a_killed_run_resumes_to_the_same_report(tmp_path: Path, root: Path) -> None:
    kill_and_resume(tmp_path, root, kills=3, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3])
def test_a_run_killed_at_ten_random_moments_resumes_to_the_same_report(
    seed: int, tmp_path: Path, root: Path
) -> None:
    kill_and_resume(tmp_path, root, kills=10, seed=seed)


@pytest.mark.slow
def test_the_fixtures_manifest_passes_offline(tmp_path: Path, tiny_model: Callable[[str], Path]) -> None:
    manifest = Path(__file__).resolve().parents[2] / "manifests" / "fixtures.yaml"
    for name in ("llama-q4_k_m", "qwen3-q8_0", "gemma3-q4_k_m"):
        tiny_model(name)
    code, out, err = certify(
        manifest, "--models-root", tiny_model("qwen3-q8_0").parent, "--out", tmp_path / "a.json", "--offline"
    )
    assert code == 0, out + err
