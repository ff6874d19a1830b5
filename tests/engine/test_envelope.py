"""The gate: every row of "what binds", of the verdict rule, and of the safety rules, on any bytes."""

from __future__ import annotations

import copy
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine import canonical, envelope, hashing
from engine.envelope import GateReason, Policy, Standing, resolve
from engine.errors import RefusedError, UsageError
from engine.verdict import Judged, verdict_v1
from tests.engine import sidecars
from tests.engine.sidecars import CONTRACTS, check

DATA = b"GGUF, for all that the gate knows"


@dataclass(frozen=True)
class Config:
    activations: str = "wide"
    kv: str = "f16"
    context_tokens: int = 2048


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "m.gguf"
    path.write_bytes(DATA)
    return path


def ask(model: Path, policy: Policy = Policy(), config: Config = Config(), **more: Any) -> Standing:
    fd = os.open(model, os.O_RDONLY)
    try:
        arguments = {"contracts": CONTRACTS, "architecture": "llama"} | more
        return resolve(model, fd, config=config, policy=policy, **arguments)
    finally:
        os.close(fd)


def change(path: str, value: Any) -> dict[str, Any]:
    """A certified body with one field replaced; ``...`` removes it."""
    body = sidecars.body(DATA)
    *parents, last = path.split(".")
    item: Any = body
    for part in parents:
        item = item[int(part) if part.isdigit() else part]
    if value is ...:
        del item[last]
    else:
        item[int(last) if last.isdigit() else last] = value
    return body


# ---- Nothing, or something that applies ----------------------------------------------------------


def test_no_sidecar_is_unclassified_and_silent(model: Path) -> None:
    standing = ask(model)
    assert (standing.state, standing.reason, standing.warning) == ("unclassified", GateReason.ABSENT, None)


def test_without_a_sidecar_nothing_is_hashed(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envelope, "file_sha256", lambda *_, **__: pytest.fail("hashed"))
    ask(model)


def test_a_receipt_that_binds_applies(model: Path) -> None:
    path = sidecars.write(model, sidecars.envelope(sidecars.body(DATA)))
    standing = ask(model)
    assert (standing.state, standing.reason) == ("certified", GateReason.APPLIES)
    assert standing.artifact_sha256 == hashlib.sha256(DATA).hexdigest()
    assert standing.sidecar_sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert standing.document()["sidecar"] == "m.gguf.envelope.json"


def test_a_shorter_context_is_covered(model: Path) -> None:
    sidecars.write(model, sidecars.envelope(sidecars.body(DATA)))
    assert ask(model, config=Config(context_tokens=1)).state == "certified"


def test_what_is_only_recorded_does_not_matter(model: Path) -> None:
    body = sidecars.body(DATA)
    body["engine"] = {"name": "gaugeblock", "version": "9.9.9", "commit": "f" * 40}
    body["scope"]["kernel_sets"] = ["neon"]
    body["artifacts"][0]["name"] = "another-name.gguf"
    document = sidecars.envelope(body, supersedes="e" * 64, attestations=[{"kind": "unknown"}], extra=1)
    document["measured"] = {"date": "…", "os": "plan9", "arch": "vax"}
    sidecars.write(model, document)
    assert ask(model).state == "certified"


# ---- What binds: every row names both sides ---------------------------------------------------------

BINDING = [
    ("contracts.numerics", "gb2", GateReason.NUMERICS, ("gb2", "gb1")),
    ("contracts.tokenizer", "t9", GateReason.TOKENIZER, ("t9", "t1")),
    ("contracts.template", "j9", GateReason.TEMPLATE, ("j9", "j1")),
    ("scope.backends", ["metal"], GateReason.BACKEND, ("metal", "cpu")),
    ("scope.backends", [], GateReason.BACKEND, ("none", "cpu")),
    ("not_measured", ["backend=cpu"], GateReason.BACKEND, ("none", "cpu")),
    ("scope.activations", "int8", GateReason.ACTIVATIONS, ("int8", "wide")),
    ("scope.kv", "q8", GateReason.KV, ("q8", "f16")),
    ("scope.context_tokens_max", 1024, GateReason.CONTEXT, ("1024", "2048")),
    ("model.architecture", "qwen2", GateReason.ARCHITECTURE, ("qwen2", "llama")),
    ("artifacts.0.sha256", "a" * 64, GateReason.HASH, ("a" * 64, hashlib.sha256(DATA).hexdigest())),
    ("artifacts.0.bytes", 1, GateReason.HASH, ("1", str(len(DATA)))),
    ("artifacts", sidecars.body(DATA)["artifacts"] * 2, GateReason.ARTIFACTS, ("2 files", "one file")),
    ("verdict", "experimental", GateReason.VERDICT, ("experimental", "certified")),
    ("verdict", "outside-envelope", GateReason.VERDICT, ("outside-envelope", "certified")),
    ("verdict_rule", "v2", GateReason.RULE, ("v2", "v1")),
    ("verdict", "excellent", GateReason.VALUE, ("excellent",)),
    ("checks.0.outcome", "passed", GateReason.VALUE, ("load", "passed")),
]


@pytest.mark.parametrize(("path", "value", "reason", "sides"), BINDING)
@pytest.mark.parametrize("failing", [False, True])
def test_what_binds_and_differs_is_indeterminate(
    model: Path, path: str, value: Any, reason: GateReason, sides: tuple[str, ...], failing: bool
) -> None:
    body = change(path, value)
    if failing and path not in ("verdict", "verdict_rule"):
        body = sidecars.failing(body)
    sidecars.write(model, sidecars.envelope(body))
    standing = ask(model)
    assert (standing.state, standing.reason) == ("indeterminate", reason)
    assert all(side in standing.detail for side in sides)
    assert standing.warning is not None
    with pytest.raises(RefusedError, match="indeterminate"):
        ask(model, Policy(require="certified"))


@pytest.mark.parametrize(
    "path",
    [
        "artifacts", "artifacts.0.sha256", "artifacts.0.bytes", "model", "model.architecture", "contracts",
        "contracts.numerics", "contracts.tokenizer", "contracts.template", "scope", "scope.backends",
        "scope.activations", "scope.kv", "scope.context_tokens_max", "not_measured", "checks",
        "checks.0.outcome", "checks.0.id", "checks.0.waived", "verdict", "verdict_rule",
    ],
)  # fmt: skip
@pytest.mark.parametrize("value", [..., None, 1.5, -1])
def test_what_binds_and_is_missing_or_mistyped_is_indeterminate(model: Path, path: str, value: Any) -> None:
    sidecars.write(model, sidecars.envelope(change(path, value)))
    standing = ask(model)
    assert (standing.state, standing.reason) == ("indeterminate", GateReason.FIELD)
    assert path.rpartition(".")[2] in standing.detail


def test_a_hash_in_upper_case_is_not_a_hash(model: Path) -> None:
    sidecars.write(model, sidecars.envelope(change("artifacts.0.sha256", "A" * 64)))
    assert ask(model).reason == GateReason.FIELD


def test_a_repeated_check_has_no_verdict(model: Path) -> None:
    body = sidecars.body(DATA)
    body["checks"].append(check("load"))
    sidecars.write(model, sidecars.envelope(body))
    assert ask(model).reason == GateReason.FIELD


# ---- Verdicts ----------------------------------------------------------------------------------


def test_a_measured_failure_is_refused_with_check_figure_and_override(model: Path) -> None:
    sidecars.write(model, sidecars.envelope(sidecars.failing(sidecars.body(DATA))))
    with pytest.raises(RefusedError) as caught:
        ask(model)
    text = str(caught.value)
    assert "check 'fidelity' failed: kld_mean_nats 0.31 > 0.01 (kld_mean_nats_max)" in text
    assert "pass policy=Policy(force=True)" in text
    assert "--force-uncertified" not in text
    assert caught.value.standing.state == "outside-envelope"
    assert caught.value.standing.failed == ("fidelity",)


def test_force_loads_it_with_a_warning(model: Path) -> None:
    sidecars.write(model, sidecars.envelope(sidecars.failing(sidecars.body(DATA))))
    standing = ask(model, Policy(force=True))
    assert standing.state == "outside-envelope"
    assert standing.warning is not None
    assert "kld_mean_nats 0.31 > 0.01" in standing.warning


def test_a_failure_without_a_threshold_shows_its_figures(model: Path) -> None:
    body = sidecars.body(DATA)
    body["checks"][3] = check("identity", "fail", measurements={"variants_failed": 2, "digest": None})
    sidecars.write(model, sidecars.envelope(body | {"verdict": "outside-envelope"}))
    with pytest.raises(RefusedError, match="check 'identity' failed: variants_failed 2"):
        ask(model)


def test_a_waived_failure_is_experimental_and_loads(model: Path) -> None:
    body = sidecars.body(DATA)
    body["checks"][-1] = sidecars.failed_fidelity() | {"waived": True}
    sidecars.write(model, sidecars.envelope(body | {"verdict": "experimental"}))
    standing = ask(model)
    assert standing.state == "experimental"
    with pytest.raises(RefusedError, match="the model is experimental"):
        ask(model, Policy(require="certified"))


def test_a_failure_dressed_up_as_certified_is_indeterminate(model: Path) -> None:
    body = sidecars.failing(sidecars.body(DATA)) | {"verdict": "certified"}
    sidecars.write(model, sidecars.envelope(body))
    assert ask(model).reason == GateReason.VERDICT


@pytest.mark.parametrize("measurements", [{"kld_mean_nats": 3.0}, {"kld_mean_nats": None}, {}])
def test_a_pass_whose_figures_say_otherwise_is_indeterminate(
    model: Path, measurements: dict[str, Any]
) -> None:
    body = sidecars.body(DATA)
    body["checks"][-1].update(measurements=measurements, thresholds={"kld_mean_nats_max": 0.01})
    sidecars.write(model, sidecars.envelope(body))
    standing = ask(model)
    assert (standing.state, standing.reason) == ("indeterminate", GateReason.FIGURES)
    assert "kld_mean_nats_max" in standing.detail


def test_a_body_changed_after_its_digest_is_indeterminate(model: Path) -> None:
    document = sidecars.envelope(sidecars.failing(sidecars.body(DATA)))
    document["body"] = sidecars.body(DATA)
    sidecars.write(model, document)
    assert ask(model).reason == GateReason.BODY


def test_unknown_keys_are_ignored_unless_critical_names_them(model: Path) -> None:
    body = sidecars.body(DATA) | {"moon_phase": "full"}
    sidecars.write(model, sidecars.envelope(body))
    assert ask(model).state == "certified"
    sidecars.write(model, sidecars.envelope(body, critical=["scope", "checks"]))
    assert ask(model).state == "certified"
    sidecars.write(model, sidecars.envelope(body, critical=["moon_phase"]))
    standing = ask(model)
    assert standing.reason == GateReason.CRITICAL
    assert "moon_phase" in standing.detail


@pytest.mark.parametrize(
    "schema", [None, 1, "gaugeblock.envelope/2", "gaugeblock.report/1", "GAUGEBLOCK.envelope/1"]
)
def test_another_schema_is_indeterminate(model: Path, schema: Any) -> None:
    sidecars.write(model, sidecars.envelope(sidecars.body(DATA), schema=schema))
    assert ask(model).reason == GateReason.SCHEMA


# ---- require, trust, force ---------------------------------------------------------------------


def test_require_admits_certified_only(model: Path) -> None:
    with pytest.raises(RefusedError, match=r"the model is unclassified.*certify run"):
        ask(model, Policy(require="certified"))
    sidecars.write(model, sidecars.envelope(sidecars.body(DATA)))
    assert ask(model, Policy(require="certified")).state == "certified"
    sidecars.write(model, sidecars.envelope(sidecars.failing(sidecars.body(DATA))))
    with pytest.raises(RefusedError, match=r"outside-envelope.*kld_mean_nats 0.31"):
        ask(model, Policy(require="certified"))


def test_trust_names_sidecars_by_the_hash_of_their_file(model: Path) -> None:
    path = sidecars.write(model, sidecars.envelope(sidecars.body(DATA)))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    trusted = Policy(require="certified", trust=frozenset({"0" * 64, digest.upper()}))
    assert ask(model, trusted).state == "certified"
    with pytest.raises(RefusedError, match=digest):
        ask(model, Policy(require="certified", trust=frozenset({"0" * 64})))


@pytest.mark.parametrize(
    "arguments",
    [
        {"require": "experimental"},
        {"trust": frozenset({"0" * 64})},
        {"require": "certified", "trust": frozenset({"0" * 63})},
        {"require": "certified", "force": True},
    ],
)
def test_policies_that_contradict_themselves_are_usage_errors(arguments: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Policy(**arguments)


# ---- Where it lies and what it is -----------------------------------------------------------------


def test_the_sidecar_of_a_link_lies_beside_the_link_or_beside_its_target(model: Path, tmp_path: Path) -> None:
    (tmp_path / "hub").mkdir()
    link = tmp_path / "hub" / "name.gguf"
    link.symlink_to(model)
    sidecars.write(model, sidecars.envelope(sidecars.body(DATA)))
    assert ask(link).state == "certified"
    sidecars.write(link, b"{")  # beside the path as given wins
    assert ask(link).reason == GateReason.MALFORMED


def test_a_sidecar_may_be_a_link_to_a_regular_file(model: Path, tmp_path: Path) -> None:
    path = sidecars.write(model, sidecars.envelope(sidecars.body(DATA)))
    path.rename(tmp_path / "elsewhere.json")
    path.symlink_to(tmp_path / "elsewhere.json")
    assert ask(model).state == "certified"


def _directory(path: Path) -> None:
    path.mkdir()


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _dangling(path: Path) -> None:
    path.symlink_to("/nonexistent/sidecar")


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


def _device(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (_directory, GateReason.NOT_REGULAR),
        (_fifo, GateReason.NOT_REGULAR),
        (_device, GateReason.NOT_REGULAR),
        (_dangling, GateReason.UNREADABLE),
        (_loop, GateReason.UNREADABLE),
    ],
)
def test_present_but_not_a_readable_file_is_not_absent(
    model: Path, make: Callable[[Path], None], reason: GateReason
) -> None:
    make(sidecars.path_of(model))
    standing = ask(model)
    assert (standing.state, standing.reason) == ("indeterminate", reason)
    with pytest.raises(RefusedError):
        ask(model, Policy(require="certified"))


def test_a_sidecar_that_may_not_be_read_is_not_absent(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = sidecars.write(model, sidecars.envelope(sidecars.body(DATA)))
    path.chmod(0)
    if os.access(path, os.R_OK):  # root reads everything: let the system call say what it would say to others
        real = os.open

        def denied(name: Any, *arguments: Any, **more: Any) -> int:
            if Path(name) == path:
                raise PermissionError(13, "Permission denied")
            return real(name, *arguments, **more)

        fd = real(model, os.O_RDONLY)
        monkeypatch.setattr(os, "open", denied)
        standing = resolve(model, fd, config=Config(), contracts=CONTRACTS)
        os.close(fd)
    else:
        standing = ask(model)
    assert (standing.state, standing.reason) == ("indeterminate", GateReason.UNREADABLE)


@pytest.mark.parametrize(
    ("data", "reason", "text"),
    [
        (b"", GateReason.MALFORMED, "strict JSON"),
        (b"{", GateReason.MALFORMED, "strict JSON"),
        (b"[]", GateReason.MALFORMED, "not an object"),
        (b"null", GateReason.MALFORMED, "not an object"),
        (b"\xff\xfe{}", GateReason.MALFORMED, "UTF-8"),
        (b'{"schema":1,"schema":2}', GateReason.MALFORMED, "duplicate key"),
        (b'{"a":' * 65 + b"1" + b"}" * 65, GateReason.MALFORMED, "nested deeper"),
        (b"[" * 500_000, GateReason.MALFORMED, "nested deeper"),
        (b'{"a": NaN}', GateReason.MALFORMED, "NaN"),
        (b'{"a": 9007199254740992}', GateReason.MALFORMED, "2^53"),
        (b" " * ((1 << 20) + 1), GateReason.TOO_LARGE, "larger than 1048576"),
        (b'{}\x1b[31m', GateReason.MALFORMED, "strict JSON"),
    ],
)  # fmt: skip
def test_bytes_that_are_no_sidecar(model: Path, data: bytes, reason: GateReason, text: str) -> None:
    sidecars.write(model, data)
    standing = ask(model)
    assert (standing.state, standing.reason) == ("indeterminate", reason)
    assert text in standing.detail


def test_a_sidecar_of_exactly_the_limit_is_read(model: Path) -> None:
    data = json.dumps(sidecars.envelope(sidecars.body(DATA))).encode()
    sidecars.write(model, data + b" " * ((1 << 20) - len(data)))
    assert ask(model).state == "certified"


def test_text_from_a_sidecar_cannot_reach_the_terminal_raw(model: Path) -> None:
    sidecars.write(model, sidecars.envelope(change("scope.kv", "\x1b[2J\u202ef16\nrefused: no")))
    standing = ask(model)
    assert "\\x1b[2J\\u202ef16\\x0a" in standing.detail
    assert standing.detail.isprintable()


def test_a_name_too_long_for_a_sidecar_has_none(tmp_path: Path) -> None:
    path = tmp_path / ("m" * 250)
    path.write_bytes(DATA)
    assert ask(path).state == "unclassified"


# ---- Hashing -----------------------------------------------------------------------------------


def test_the_open_file_is_what_is_hashed_even_if_the_path_is_swapped(model: Path) -> None:
    sidecars.write(model, sidecars.envelope(sidecars.body(DATA)))
    fd = os.open(model, os.O_RDONLY)
    other = model.with_name("other")
    other.write_bytes(DATA[::-1])
    other.replace(model)
    assert resolve(model, fd, config=Config(), contracts=CONTRACTS).state == "certified"
    os.close(fd)
    assert ask(model).reason == GateReason.HASH


def test_require_never_uses_the_cache(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []
    real = hashing.file_sha256

    def spy(fd: int, *, cache: bool = False) -> str:
        seen.append(cache)
        return real(fd, cache=cache)

    monkeypatch.setattr(envelope, "file_sha256", spy)
    sidecars.write(model, sidecars.envelope(sidecars.body(DATA)))
    ask(model)
    ask(model, Policy(require="certified"))
    assert seen == [True, False]


def test_a_file_that_changes_under_the_hash_is_indeterminate(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changed(*_: Any, **__: Any) -> str:
        raise hashing.ChangedError("the file changed while it was hashed")

    monkeypatch.setattr(envelope, "file_sha256", changed)
    sidecars.write(model, sidecars.envelope(sidecars.body(DATA)))
    assert ask(model).reason == GateReason.CHANGED


# ---- Any sidecar whatsoever ------------------------------------------------------------------------

JSONS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from _paths(item, (*path, key))


BASES = [
    sidecars.envelope(sidecars.body(DATA)),
    sidecars.envelope(sidecars.failing(sidecars.body(DATA))),
]
PATHS = [(index, path) for index, base in enumerate(BASES) for path in _paths(base) if path]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=400, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(PATHS), JSONS), min_size=1, max_size=3), st.booleans())
def test_a_mutated_sidecar_never_crashes_and_never_certifies_against_the_rule(
    model: Path, changes: list[tuple[tuple[int, tuple[Any, ...]], Any]], redigest: bool
) -> None:
    base = changes[0][0][0]
    document = copy.deepcopy(BASES[base])
    for (index, path), value in changes:
        if index == base:
            _put(document, path, value)
    if redigest:
        try:
            document["body_sha256"] = canonical.digest(document["body"])
        except (canonical.StrictJSONError, KeyError):
            return
    sidecars.path_of(model).write_bytes(json.dumps(document).encode("utf-8", "surrogatepass"))
    try:
        standing = ask(model)
    except RefusedError as refused:
        standing = refused.standing
        assert standing.state == "outside-envelope"
    if standing.state in ("certified", "experimental", "outside-envelope"):
        _assert_rule(document, standing)


def _put(document: Any, path: tuple[Any, ...], value: Any) -> None:
    item = document
    for part in path[:-1]:
        try:
            item = item[part]
        except (KeyError, IndexError, TypeError):
            return
    if isinstance(item, dict) or (
        isinstance(item, list) and isinstance(path[-1], int) and path[-1] < len(item)
    ):
        item[path[-1]] = value


def _assert_rule(document: dict[str, Any], standing: Standing) -> None:
    """An independent reading of what an applicable receipt must say."""
    body = document["body"]
    assert document["schema"] == "gaugeblock.envelope/1"
    assert document["body_sha256"] == canonical.digest(body)
    assert [(item["sha256"], item["bytes"]) for item in body["artifacts"]] == [
        (hashlib.sha256(DATA).hexdigest(), len(DATA))
    ]
    assert body["contracts"] | CONTRACTS == body["contracts"]
    assert "cpu" in body["scope"]["backends"]
    assert (body["scope"]["activations"], body["scope"]["kv"]) == ("wide", "f16")
    assert body["scope"]["context_tokens_max"] >= 2048
    assert body["model"]["architecture"] == "llama"
    judged = [Judged(item["id"], item["outcome"], item["waived"]) for item in body["checks"]]
    assert standing.state == body["verdict"] == verdict_v1(judged)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300, deadline=None)
@given(st.integers(0, 2000), st.binary(max_size=6), st.integers(0, 40))
def test_flipped_cut_and_inserted_bytes_never_certify_anew(
    model: Path, at: int, insert: bytes, drop: int
) -> None:
    data = json.dumps(BASES[1]).encode()
    changed = data[:at] + insert + data[at + drop :]
    sidecars.write(model, changed)
    try:
        standing = ask(model)
    except RefusedError:
        return
    assert standing.state == "indeterminate" or changed == data


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_are_indeterminate(model: Path, data: bytes) -> None:
    sidecars.write(model, data)
    assert ask(model).state == "indeterminate"
