"""The gate as a person meets it: every rule of binding, verdict and safety, through ``gaugeblock run``.

Each sidecar that must not bind states a measured failure, so that "it did not apply" shows: the
command would have ended with 5.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from engine.contracts import contracts
from tests.engine import sidecars

ROOT = Path(__file__).resolve().parents[2]
CONTEXT = 256


@dataclass(frozen=True)
class Ran:
    """What one command did. ``standing`` is what the gate said, from the JSON log."""

    code: int
    out: str
    err: str
    standing: dict[str, Any]


def gaugeblock(*arguments: str, cache: Path, timeout: float = 120) -> Ran:
    """Run the command in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "engine", *arguments, "--log-format", "json"],
        cwd=ROOT,
        env=os.environ | {"XDG_CACHE_HOME": str(cache)},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert "Traceback" not in done.stderr
    entries = [json.loads(line) for line in done.stderr.splitlines()]
    standing = next((entry["standing"] for entry in entries if "standing" in entry), {})
    messages = "\n".join(f"{entry['level']}: {entry['message']}" for entry in entries)
    return Ran(done.returncode, done.stdout, messages, standing)


@pytest.fixture
def model(tmp_path: Path, tiny_model: Callable[[str], Path]) -> Path:
    """A tiny model in a folder of its own."""
    path = tmp_path / "folder" / "m.gguf"
    path.parent.mkdir()
    path.write_bytes(tiny_model("llama-q4_0").read_bytes())
    return path


def run(model: Path, *more: str) -> Ran:
    arguments = ["run", "-m", str(model), "-p", "The", "-n", "2", "-t", "1", "-c", str(CONTEXT), *more]
    return gaugeblock(*arguments, cache=model.parent / "cache")


def body_for(model: Path) -> dict[str, Any]:
    """A certified body that binds everything of ``run`` above."""
    body = sidecars.body(model.read_bytes(), context_tokens=CONTEXT)
    return body | {"contracts": contracts()}


def failing_for(model: Path) -> dict[str, Any]:
    return sidecars.failing(body_for(model))


# ---- Verdicts ------------------------------------------------------------------------------------


def test_no_sidecar_is_unclassified_and_runs(model: Path) -> None:
    ran = run(model)
    assert (ran.code, ran.standing["state"]) == (0, "unclassified")
    assert "warning" not in ran.err
    assert ran.out


def test_a_certified_model_runs(model: Path) -> None:
    sidecars.write(model, sidecars.envelope(body_for(model)))
    ran = run(model)
    assert (ran.code, ran.standing["state"], ran.standing["reason"]) == (0, "certified", "receipt_applies")
    assert "warning" not in ran.err


def test_a_measured_failure_ends_with_5_before_weights_are_read(model: Path) -> None:
    # Without this tensor the weights cannot be bound: whoever reads them meets the error.
    data = model.read_bytes().replace(b"blk.1.attn_q.weight", b"blk.1.attn_z.weight")
    model.write_bytes(data)
    assert "blk.1.attn_q.weight" in run(model).err
    sidecars.write(model, sidecars.envelope(failing_for(model)))
    ran = run(model)
    assert ran.code == 5
    assert "check 'fidelity' failed: kld_mean_nats 0.31 > 0.01" in ran.err
    assert "add --force-uncertified" in ran.err
    assert "Policy(" not in ran.err
    assert "attn_q" not in ran.err
    assert ran.out == ""
    forced = run(model, "--force-uncertified")
    assert forced.code == 1
    assert "blk.1.attn_q.weight" in forced.err


def test_force_loads_it_with_a_warning(model: Path) -> None:
    plain = run(model)
    sidecars.write(model, sidecars.envelope(failing_for(model)))
    assert run(model).code == 5
    ran = run(model, "--force-uncertified")
    assert (ran.code, ran.standing["state"]) == (0, "outside-envelope")
    assert "warning: m.gguf: loaded under --force-uncertified" in ran.err
    assert "kld_mean_nats 0.31 > 0.01" in ran.err
    assert ran.out == plain.out


@pytest.mark.parametrize("check_id", ["load", "tokenizer", "identity", "fidelity"])
def test_each_refusing_check_refuses(model: Path, check_id: str) -> None:
    body = body_for(model)
    index = sidecars.REQUIRED.index(check_id)
    body["checks"][index] = sidecars.check(check_id, "fail", measurements={"differences": 7})
    sidecars.write(model, sidecars.envelope(body | {"verdict": "outside-envelope"}))
    ran = run(model)
    assert ran.code == 5
    assert f"check '{check_id}' failed: differences 7" in ran.err


@pytest.mark.parametrize("change", [{"outcome": "fail", "reason": "picks_differ"}, {"outcome": "skip"}])
def test_greedy_picks_that_differ_or_did_not_run_are_experimental(
    model: Path, change: dict[str, Any]
) -> None:
    body = body_for(model)
    body["checks"][2].update(change)
    sidecars.write(model, sidecars.envelope(body | {"verdict": "experimental"}))
    ran = run(model)
    assert (ran.code, ran.standing["state"]) == (0, "experimental")


def test_a_waived_failure_is_experimental(model: Path) -> None:
    body = body_for(model)
    body["checks"][-1] = sidecars.failed_fidelity() | {"waived": True}
    sidecars.write(model, sidecars.envelope(body | {"verdict": "experimental"}))
    ran = run(model)
    assert (ran.code, ran.standing["state"]) == (0, "experimental")


@pytest.mark.parametrize("stated", ["certified", "experimental"])
def test_a_failure_that_states_a_better_verdict_is_indeterminate(model: Path, stated: str) -> None:
    sidecars.write(model, sidecars.envelope(failing_for(model) | {"verdict": stated}))
    assert_not_applied(run(model), "verdict_differs", stated, "outside-envelope")


# ---- What binds ----------------------------------------------------------------------------------


def assert_not_applied(ran: Ran, reason: str, *sides: str) -> None:
    """The model ran, with a warning that names both sides."""
    assert (ran.standing["state"], ran.standing["reason"]) == ("indeterminate", reason)
    assert ran.code == 0
    warning = next(line for line in ran.err.splitlines() if line.startswith("warning: "))
    for side in sides:
        assert side in warning


def _set(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(body: dict[str, Any]) -> None:
        *parents, last = path.split(".")
        item: Any = body
        for part in parents:
            item = item[int(part) if part.isdigit() else part]
        item[last] = value

    return change


BINDING = [
    ("artifacts.0.sha256", "a" * 64, "artifact_sha256_differs", ("a" * 64,)),
    ("artifacts.0.bytes", 1, "artifact_sha256_differs", ("the receipt has 1,",)),
    ("contracts.numerics", "gb0", "numerics_differs", ("gb0", contracts()["numerics"])),
    ("contracts.tokenizer", "t0", "tokenizer_differs", ("t0", contracts()["tokenizer"])),
    ("contracts.template", "j0", "template_differs", ("j0", contracts()["template"])),
    ("scope.backends", ["metal"], "backend_not_measured", ("metal", "cpu")),
    ("not_measured", ["backend=cpu"], "backend_not_measured", ("none measured", "cpu")),
    ("scope.activations", "int8", "activations_differ", ("int8", "wide")),
    ("scope.kv", "q8", "kv_differs", ("q8", "f16")),
    ("scope.context_tokens_max", CONTEXT - 1, "context_longer", (str(CONTEXT - 1), str(CONTEXT))),
    ("model.architecture", "qwen2", "architecture_differs", ("qwen2", "llama")),
    ("verdict_rule", "v2", "verdict_rule_unknown", ("v2", "v1")),
    ("checks.0.outcome", "passed", "enum_unknown", ("passed",)),
    ("scope.kv", None, "field_invalid", ("'kv'",)),
]


@pytest.mark.parametrize(("path", "value", "reason", "sides"), BINDING)
def test_what_binds_and_differs_lets_the_model_run_with_a_warning(
    model: Path, path: str, value: Any, reason: str, sides: tuple[str, ...]
) -> None:
    body = failing_for(model)
    _set(path, value)(body)
    sidecars.write(model, sidecars.envelope(body))
    assert_not_applied(run(model), reason, *sides)


@pytest.mark.parametrize(
    ("arguments", "reason", "sides"),
    [
        (["--kv", "f32"], "kv_differs", ("f16", "f32")),
        (["--activations", "int8"], "activations_differ", ("wide", "int8")),
        (["-c", str(CONTEXT + 1)], "context_longer", (f"up to {CONTEXT}", str(CONTEXT + 1))),
    ],
)
def test_options_that_leave_the_measured_scope(
    model: Path, arguments: list[str], reason: str, sides: tuple[str, ...]
) -> None:
    sidecars.write(model, sidecars.envelope(failing_for(model)))
    assert run(model).code == 5
    assert_not_applied(run(model, *arguments), reason, *sides)


def test_a_shorter_context_other_threads_and_batches_stay_inside(model: Path) -> None:
    sidecars.write(model, sidecars.envelope(failing_for(model)))
    assert run(model, "-c", "64", "-t", "2", "-b", "7").code == 5


def test_engine_version_kernels_and_system_are_only_recorded(model: Path) -> None:
    body = failing_for(model)
    body["engine"] = {"name": "gaugeblock", "version": "9.9.9", "commit": "f" * 40}
    body["scope"]["kernel_sets"] = ["another"]
    document = sidecars.envelope(body, supersedes="e" * 64, attestations=[{"kind": "unknown"}])
    document["measured"] = {"date": "2020-01-01T00:00:00Z", "os": "plan9", "arch": "vax"}
    sidecars.write(model, document)
    assert run(model).code == 5


# ---- The sidecar as a file -----------------------------------------------------------------------


def test_a_link_takes_the_sidecar_beside_itself_then_beside_its_target(model: Path, tmp_path: Path) -> None:
    sidecars.write(model, sidecars.envelope(failing_for(model)))
    hub = tmp_path / "hub"
    hub.mkdir()
    link = hub / "linked.gguf"
    link.symlink_to(model)
    assert run(link).code == 5
    sidecars.write(link, sidecars.envelope(body_for(model)))
    ran = run(link)
    assert (ran.code, ran.standing["state"]) == (0, "certified")


def test_a_sidecar_that_is_a_link_is_followed(model: Path) -> None:
    path = sidecars.write(model, sidecars.envelope(failing_for(model)))
    path.rename(model.with_name("stored.json"))
    path.symlink_to("stored.json")
    assert run(model).code == 5


def test_a_fifo_does_not_hang(model: Path) -> None:
    os.mkfifo(sidecars.path_of(model))
    assert_not_applied(run(model), "sidecar_not_regular", "not a regular file")
    pipe = model.with_name("pipe.gguf")
    os.mkfifo(pipe)
    ran = run(pipe)
    assert ran.code == 1
    assert "FIFO" in ran.err


def test_a_directory_is_not_absent(model: Path) -> None:
    sidecars.path_of(model).mkdir()
    assert_not_applied(run(model), "sidecar_not_regular", "not a regular file")
    assert run(model.parent).code == 1


def test_unreadable_is_not_absent(model: Path) -> None:
    path = sidecars.write(model, sidecars.envelope(failing_for(model)))
    if os.geteuid() != 0:
        path.chmod(0)
        assert_not_applied(run(model), "sidecar_unreadable", "Permission denied")
        path.chmod(0o644)
    path.unlink()
    path.symlink_to(path.name)  # a loop: there for everyone, readable for no one, root included
    assert_not_applied(run(model), "sidecar_unreadable", "cannot be read")
    path.unlink()
    path.symlink_to("nothing-here.json")
    assert_not_applied(run(model), "sidecar_unreadable", "cannot be read")


def _padded(data: bytes) -> bytes:
    return data + b" " * (1 << 20)


def _deep(data: bytes) -> bytes:
    return data.replace(b'"attestations": []', b'"attestations": ' + b"[" * 200 + b"]" * 200)


def _duplicate(data: bytes) -> bytes:
    return data.replace(b'"critical": []', b'"critical": [], "critical": []')


def _nan(data: bytes) -> bytes:
    return data.replace(b"0.31", b"NaN")


def _huge(data: bytes) -> bytes:
    return data.replace(b"0.31", b"9007199254740993")


def _latin(data: bytes) -> bytes:
    return data.replace(b"llama.cpp", b"llama\xffcpp")


def _cut(data: bytes) -> bytes:
    return data[:-2]


def _edited(data: bytes) -> bytes:
    return data.replace(b"0.31", b"0.0031")


@pytest.mark.parametrize(
    ("damage", "reason", "text"),
    [
        (_padded, "sidecar_too_large", "larger than 1048576 bytes"),
        (_deep, "sidecar_malformed", "nested deeper"),
        (_duplicate, "sidecar_malformed", "duplicate key 'critical'"),
        (_nan, "sidecar_malformed", "NaN"),
        (_huge, "sidecar_malformed", "2^53"),
        (_latin, "sidecar_malformed", "UTF-8"),
        (_cut, "sidecar_malformed", "strict JSON"),
        (_edited, "body_sha256_differs", "body_sha256: stated"),
    ],
)
def test_a_damaged_sidecar_lets_the_model_run_with_a_warning(
    model: Path, damage: Callable[[bytes], bytes], reason: str, text: str
) -> None:
    data = json.dumps(sidecars.envelope(failing_for(model))).encode()
    assert damage(data) != data
    sidecars.write(model, damage(data))
    assert_not_applied(run(model), reason, text)
    assert run(model, "--require", "certified").code == 5


def test_another_schema_and_unknown_critical_names(model: Path) -> None:
    body = failing_for(model)
    sidecars.write(model, sidecars.envelope(body, schema="gaugeblock.envelope/2"))
    assert_not_applied(run(model), "schema_unknown", "gaugeblock.envelope/2", "gaugeblock.envelope/1")
    sidecars.write(model, sidecars.envelope(body, critical=["moon_phase"]))
    assert_not_applied(run(model), "critical_unknown", "moon_phase")
    sidecars.write(model, sidecars.envelope(body, moon_phase="full"))
    assert run(model).code == 5


# ---- require and trust ---------------------------------------------------------------------------


def test_require_fails_closed(model: Path) -> None:
    ran = run(model, "--require", "certified")
    assert ran.code == 5
    assert "unclassified" in ran.err
    body = body_for(model)
    body["checks"][2]["outcome"] = "skip"
    sidecars.write(model, sidecars.envelope(body | {"verdict": "experimental"}))
    ran = run(model, "--require", "certified")
    assert ran.code == 5
    assert "experimental" in ran.err
    sidecars.write(model, sidecars.envelope(body_for(model)))
    assert run(model, "--require", "certified").code == 0
    assert run(model, "--require", "certified", "--kv", "f32").code == 5


def test_trust_names_the_sidecars_that_may_be_believed(model: Path) -> None:
    path = sidecars.write(model, sidecars.envelope(body_for(model)))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    ran = run(model, "--require", "certified", "--trust-envelope", "0" * 64)
    assert ran.code == 5
    assert digest in ran.err
    assert (
        run(model, "--require", "certified", "--trust-envelope", "0" * 64, "--trust-envelope", digest).code
        == 0
    )


def test_options_that_contradict_each_other_are_usage_errors(model: Path) -> None:
    assert run(model, "--trust-envelope", "0" * 64).code == 2
    assert run(model, "--require", "certified", "--trust-envelope", "zz").code == 2
    assert run(model, "--require", "certified", "--force-uncertified").code == 2


# ---- The hash and its cache ------------------------------------------------------------------------


def _flip_last(model: Path) -> None:
    """Change one weight in place: same inode, same size."""
    with model.open("r+b") as stream:
        stream.seek(-1, os.SEEK_END)
        last = stream.read(1)
        stream.seek(-1, os.SEEK_END)
        stream.write(bytes([last[0] ^ 1]))


def test_a_cache_poisoned_by_utime_is_caught(model: Path) -> None:
    sidecars.write(model, sidecars.envelope(failing_for(model)))
    time.sleep(2.2)  # younger files are not cached
    assert run(model).code == 5
    cache = model.parent / "cache" / "gaugeblock" / "hashes.json"
    before = model.stat()
    assert any(f":{before.st_ino}:" in key for key in json.loads(cache.read_text()))
    _flip_last(model)
    os.utime(model, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = model.stat()
    assert (after.st_ino, after.st_size, after.st_mtime_ns) == (
        before.st_ino,
        before.st_size,
        before.st_mtime_ns,
    )
    assert_not_applied(run(model), "artifact_sha256_differs")


def _plant(model: Path, mode: int) -> None:
    """A cache that says this file has the hash that the sidecar wants."""
    info = model.stat()
    key = f"{info.st_dev}:{info.st_ino}:{info.st_size}:{info.st_mtime_ns}:{info.st_ctime_ns}"
    cache = model.parent / "cache" / "gaugeblock" / "hashes.json"
    cache.parent.mkdir(parents=True, exist_ok=True)
    cache.write_text(json.dumps({key: "a" * 64}))
    cache.chmod(mode)


def test_a_cache_that_others_can_read_or_write_is_ignored_and_require_uses_none(model: Path) -> None:
    body = copy.deepcopy(body_for(model))
    body["artifacts"][0]["sha256"] = "a" * 64
    sidecars.write(model, sidecars.envelope(body))
    _plant(model, 0o600)
    assert run(model).standing["state"] == "certified"  # the planted hash is believed, as ours
    assert run(model, "--require", "certified").code == 5  # but never here
    for mode in (0o644, 0o666):
        _plant(model, mode)
        assert_not_applied(run(model), "artifact_sha256_differs")


def test_without_a_map_the_answer_is_the_same(model: Path) -> None:
    sidecars.write(model, sidecars.envelope(failing_for(model)))
    assert run(model, "--no-mmap").code == 5
    assert run(model, "--no-mmap", "--force-uncertified").out == run(model, "--force-uncertified").out


def test_text_of_a_sidecar_is_escaped(model: Path) -> None:
    body = failing_for(model)
    body["scope"]["kv"] = "\x1b[2Jf16"
    sidecars.write(model, sidecars.envelope(body))
    ran = run(model)
    assert "\\x1b[2Jf16" in ran.err
    assert "\x1b" not in ran.err
