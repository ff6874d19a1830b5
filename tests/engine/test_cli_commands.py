"""What each command of ``gaugeblock`` prints, on tiny models and on a real one."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from engine.digest import logits_digest
from engine.model import Model
from fixtures import tiny
from fixtures.gguf_writer import STRING, Value
from tests.engine import sidecars
from tests.engine.cli import ROOT, document, gaugeblock

Tiny = Callable[[str], Path]
NAME = "llama-q8_0"
SMOL = "SmolLM2-135M-Instruct.Q4_1.gguf"


def test_run_prints_the_text_and_nothing_else_on_stdout(tiny_model: Tiny) -> None:
    model = tiny_model(NAME)
    result = gaugeblock("run", "-m", model, "-p", "the ", "-n", "8")
    found = document(gaugeblock("run", "-m", model, "-p", "the ", "-n", "8", "--json"), "run/1")
    assert result.returncode == 0
    assert result.stdout == found["text"] + "\n"
    assert "unclassified" in result.stderr
    assert found["finish"] == "length"
    assert found["generated_tokens"] == len(found["ids"]) == 8
    assert found["standing"]["state"] == "unclassified"
    assert found["config"] == {"activations": "wide", "kv": "f16", "context_tokens": 2048}
    with Model.open(model) as opened, opened.session(threads=1) as session:
        ids = opened.tokenize("the ", special=True, bos=True)
        assert found["prompt_ids"] == ids
        assert found["ids"] == [piece.token for piece in session.generate(ids, max_tokens=8)]


def test_options_reach_the_engine(tiny_model: Tiny) -> None:
    def ids(*options: object) -> list[int]:
        result = gaugeblock("run", "-m", tiny_model(NAME), "-p", "the ", "-n", "12", "--json", *options)
        found: list[int] = document(result, "run/1")["ids"]
        return found

    plain = ids()
    assert plain == ids("-t", "3", "-b", "1", "--no-mmap")
    hot = ids("--temp", "2", "--seed", "5")
    assert hot == ids("--temp", "2", "--seed", "5")
    assert hot != ids("--temp", "2", "--seed", "6")
    assert ids("--temp", "2", "--seed", "5", "--top-k", "1") == plain
    assert ids("--temp", "2", "--seed", "5", "--min-p", "1") == plain
    result = gaugeblock(
        "run",
        "-m",
        tiny_model(NAME),
        "-p",
        "the ",
        "--json",
        "--kv",
        "q8",
        "--activations",
        "int8",
        "-c",
        "9",
    )
    found = document(result, "run/1")
    assert found["config"] == {"activations": "int8", "kv": "q8", "context_tokens": 9}
    assert found["finish"] in ("context", "stop")


def test_choice_logprobs_in_json(tiny_model: Tiny) -> None:
    options = ("run", "-m", tiny_model(NAME), "-p", "the ", "--json", "--regex", "then|end")
    (record,) = document(gaugeblock(*options, "--choice-logprobs"), "run/1")["choice_logprobs"]
    assert {one["value"] for one in record["alternatives"]} == {"then", "end"}
    assert "choice_logprobs" not in document(gaugeblock(*options), "run/1")


def test_the_text_is_one_of_the_choices(tiny_model: Tiny) -> None:
    choices = ("--choice", "größer", "--choice", "grün")
    options = ("run", "-m", tiny_model(NAME), "-p", "the ", "--json", *choices)
    assert document(gaugeblock(*options), "run/1")["text"] in ("größer", "grün")
    cut = document(gaugeblock(*options, "-n", "1"), "run/1")
    assert cut["text"] in ("größer", "grün")
    result = gaugeblock(*options, "--regex", "a")
    assert result.returncode == 2
    assert "give one of" in result.stderr


def test_logprobs_in_json(tiny_model: Tiny) -> None:
    result = gaugeblock("run", "-m", tiny_model(NAME), "-p", "the ", "-n", "3", "--json", "--logprobs", "2")
    for entry in document(result, "run/1")["logprobs_nats"]:
        assert entry["top"][0] == [entry["id"], entry["logprob_nats"]]
        assert len(entry["top"]) == 2


def test_prompts_come_from_files_and_standard_input(tiny_model: Tiny, tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_text("naïve text", encoding="utf-8")
    model = tiny_model(NAME)
    wanted = gaugeblock("tokenize", "-m", model, "-p", "naïve text").stdout
    assert gaugeblock("tokenize", "-m", model, "-f", tmp_path / "p.txt").stdout == wanted
    assert gaugeblock("tokenize", "-m", model, "-f", "-", input="naïve text").stdout == wanted
    (tmp_path / "p.txt").write_bytes(b"ab\xff")
    result = gaugeblock("tokenize", "-m", model, "-f", tmp_path / "p.txt")
    assert result.returncode == 2
    assert "not UTF-8 at byte 2" in result.stderr
    result = gaugeblock("tokenize", "-m", model, "-f", tmp_path / "absent.txt")
    assert result.returncode == 1
    assert "absent.txt: No such file" in result.stderr


def test_a_prompt_too_long_for_the_context_is_a_failure(tiny_model: Tiny) -> None:
    result = gaugeblock("run", "-m", tiny_model(NAME), "-p", "a b c d e f g h", "-c", "4")
    assert result.returncode == 1
    assert "context" in result.stderr
    assert gaugeblock("run", "-m", tiny_model(NAME), "-p", "").returncode == 2


def test_tokenize(tiny_model: Tiny) -> None:
    model = tiny_model(NAME)
    found = document(gaugeblock("tokenize", "-m", model, "-p", "é <|im_end|>", "--json"), "tokenize/1")
    assert b"".join(map(bytes.fromhex, found["bytes_hex"])).decode() == "é <|im_end|>"
    text = gaugeblock("tokenize", "-m", model, "-p", "é <|im_end|>", "--no-special", "--ids").stdout
    assert len(text.split()) > len(found["ids"])
    assert gaugeblock("tokenize", "-m", model, "-p", "é <|im_end|>", "--ids").stdout.split() == [
        str(token) for token in found["ids"]
    ]


def test_logits_digest_and_array(tiny_model: Tiny, tmp_path: Path) -> None:
    model, target = tiny_model(NAME), tmp_path / "rows.npy"
    result = gaugeblock("logits", "-m", model, "--ids", "5,9,40,7", "--digest", "--npy", target)
    rows = np.load(target)
    with Model.open(model) as opened, opened.session(threads=1) as session:
        wanted = session.eval([5, 9, 40, 7], want="all")
    assert rows.tobytes() == wanted.tobytes()
    assert rows.shape == wanted.shape
    assert result.stdout.strip() == logits_digest(wanted, activations="wide", kv="f16")
    found = document(
        gaugeblock("logits", "-m", model, "--ids", "5,9,40,7", "--positions", "1,3", "--json"), "logits/1"
    )
    assert found["sha256"] == logits_digest(wanted[[1, 3]], activations="wide", kv="f16")
    assert (found["algorithm"], found["positions"]) == ("gblogits/1", [1, 3])
    assert list(tmp_path.iterdir()) == [target]


def test_long_prompts_are_evaluated_in_parts_with_the_same_digest(tiny_model: Tiny) -> None:
    ids = [3 + i % 90 for i in range(150)]
    with Model.open(tiny_model(NAME)) as model, model.session(threads=1) as session:
        wanted = logits_digest(session.eval(ids, want="all"), activations="wide", kv="f16")
    result = gaugeblock("logits", "-m", tiny_model(NAME), "--ids", ",".join(map(str, ids)), "--digest")
    assert result.stdout.strip() == wanted


@pytest.mark.parametrize("positions", ["4", "-1", "2,1", "1,1", "x", ""])
def test_positions_are_checked(tiny_model: Tiny, positions: str) -> None:
    result = gaugeblock("logits", "-m", tiny_model(NAME), "--ids", "1,2,3,4", f"--positions={positions}")
    assert result.returncode == 2


def test_logits_shows_the_best_tokens(tiny_model: Tiny) -> None:
    lines = gaugeblock("logits", "-m", tiny_model(NAME), "--ids", "5,9").stdout.splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("0\t")
    assert lines[2].startswith("gblogits/1 ")


def test_score_equals_the_log_softmax_of_eval(tiny_model: Tiny) -> None:
    text = "the quick brown fox jumps over the lazy dog " * 4
    found = document(gaugeblock("score", "-m", tiny_model(NAME), "-p", text, "--json"), "score/1")
    with Model.open(tiny_model(NAME)) as model, model.session(threads=1) as session:
        ids = model.tokenize(text, special=True, bos=True)
        rows = session.eval(ids, want="all").astype(np.float64)
    exact = rows - np.log(np.exp(rows).sum(axis=1, keepdims=True))
    wanted = [exact[i, token] for i, token in enumerate(ids[1:])]
    assert found["ids"] == ids
    assert found["logprobs_nats"][0] is None
    assert np.allclose(found["logprobs_nats"][1:], wanted, atol=1e-5)
    assert found["scored"] == len(ids) - 1 > 32
    assert found["perplexity"] == pytest.approx(math.exp(-np.mean(wanted)), rel=1e-5)
    result = gaugeblock("score", "-m", tiny_model(NAME), "-p", "a b", "--per-token")
    assert "perplexity" in result.stdout.splitlines()[-1]
    assert gaugeblock("score", "-m", tiny_model(NAME), "-p", "a").returncode == 2


def test_info(tiny_model: Tiny) -> None:
    model = tiny_model("gemma3-q4_k_m")
    found = document(gaugeblock("info", "-m", model, "--json", "--tensors", "--hash"), "info/1")
    assert found["sha256"] == hashlib.sha256(model.read_bytes()).hexdigest()
    assert found["architecture"] == "gemma3"
    assert sum(kind["count"] for kind in found["tensor_types"].values()) == len(found["tensors"])
    assert found["templates"] == ["default"]
    assert found["tokenizer"]["model"] == "llama"
    text = gaugeblock("info", "-m", model).stdout
    assert "standing: unclassified" in text
    assert "general.architecture = gemma3" in text


def hostile(key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model whose metadata would recolour a terminal, move its cursor and open rich markup."""
    evil = "\x1b]0;owned\x07\x1b[2J\x9b31m[red]x[/red]\r\n\u202e"
    extra = {key: Value(STRING, evil), "general.y": Value(STRING, evil.encode() + b"\xff")}
    monkeypatch.setitem(tiny.MODELS, NAME, dataclasses.replace(tiny.MODELS[NAME], extra=extra))
    return tiny.build(NAME, tmp_path / "evil\x1b[31m.gguf")


def controls(text: str) -> set[str]:
    return {
        char
        for char in text
        if (ord(char) < 32 and char not in "\n\t") or 127 <= ord(char) < 160 or char == "\u202e"
    }


@pytest.mark.parametrize("as_json", [False, True])
def test_a_hostile_file_cannot_reach_the_terminal(
    tmp_path: Path, as_json: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = hostile("general.[red]\u202e", tmp_path, monkeypatch)
    result = gaugeblock("info", "-m", path, *(["--json"] if as_json else []))
    assert result.returncode == 0, result.stderr
    assert "owned" in result.stdout
    assert controls(result.stdout + result.stderr) == set()
    run = gaugeblock("run", "-m", path, "-p", "a", "-n", "1")
    assert controls(run.stderr) == set()
    missing = gaugeblock("run", "-m", str(path) + "x", "-p", "a")
    assert controls(missing.stderr) == set()
    refused = gaugeblock("info", "-m", hostile("general.\x1b[31m", tmp_path, monkeypatch))
    assert refused.returncode == 1
    assert controls(refused.stderr) == set()


def test_generated_text_is_escaped_on_a_terminal_and_raw_in_a_pipe(tiny_model: Tiny) -> None:
    code = (
        "from engine.generate import TextStream; from engine.cli.console import CONSOLE; "
        "CONSOLE.text('a\\x1b[31mb\\n')"
    )
    leader, follower = pty.openpty()
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, stdout=follower, check=True)
    os.close(follower)
    shown = os.read(leader, 1000)
    os.close(leader)
    assert shown == b"a\\x1b[31mb\r\n"
    piped = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True)
    assert piped.stdout == b"a\x1b[31mb\n"


def test_chat_asks_once_or_holds_a_conversation(tiny_model: Tiny) -> None:
    model = tiny_model(NAME)
    found = document(gaugeblock("chat", "-m", model, "-p", "hello", "-n", "6", "--json"), "chat/1")
    assert found["message"] == {"role": "assistant", "content": found["text"]}
    talk = gaugeblock("chat", "-m", model, "-n", "6", input="hello\n\n/clear\nhello\n/exit\nnot read\n")
    assert talk.returncode == 0, talk.stderr
    assert talk.stdout == (found["text"] + "\n") * 2
    ended = gaugeblock("chat", "-m", model, "-n", "6", input="hello\n")
    assert ended.returncode == 0
    assert ended.stdout == found["text"] + "\n"


def test_a_second_question_sees_the_first(tiny_model: Tiny) -> None:
    model = tiny_model(NAME)
    talk = gaugeblock("chat", "-m", model, "-n", "5", input="one\ntwo\n")
    first = gaugeblock("chat", "-m", model, "-n", "5", "-p", "one").stdout
    assert talk.stdout.startswith(first)
    with Model.open(model) as opened, opened.session(threads=1) as session:
        messages = [
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": first[:-1]},
            {"role": "user", "content": "two"},
        ]
        rendered = opened.template().render(messages)
        ids = opened.tokenize(rendered.text, special=True, literal=rendered.literal)
        second = "".join(piece.text for piece in session.generate(ids, max_tokens=5))
    assert talk.stdout == first + second + "\n"


def test_an_unknown_template_is_named(tiny_model: Tiny) -> None:
    result = gaugeblock("chat", "-m", tiny_model(NAME), "-p", "x", "--template", "rag")
    assert result.returncode == 2
    assert "only 'default'" in result.stderr


def test_a_measured_failure_is_exit_5_with_check_and_figure(tiny_model: Tiny, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    data = tiny_model(NAME).read_bytes()
    path.write_bytes(data)
    sidecars.write(path, sidecars.envelope(sidecars.failing(sidecars.body(data))))
    for command in (["run", "-p", "a"], ["chat", "-p", "a"], ["logits", "-p", "a"], ["score", "-p", "a b"]):
        result = gaugeblock(command[0], "-m", path, *command[1:])
        assert result.returncode == 5, result.stderr
        assert "fidelity" in result.stderr
        assert "0.31" in result.stderr
        assert result.stdout == ""
    forced = gaugeblock("run", "-m", path, "-p", "a", "-n", "1", "--force-uncertified")
    assert forced.returncode == 0
    assert "warning" in forced.stderr
    assert gaugeblock("run", "-m", path, "-p", "a", "-n", "1", "--kv", "f32").returncode == 0
    info = document(gaugeblock("info", "-m", path, "--json"), "info/1")
    assert info["standing"]["state"] == "outside-envelope"


def test_require_certified_fails_closed(tiny_model: Tiny, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    data = tiny_model(NAME).read_bytes()
    path.write_bytes(data)
    args = ("run", "-m", path, "-p", "a", "-n", "1", "--require", "certified")
    assert gaugeblock(*args).returncode == 5
    sidecar = sidecars.write(path, sidecars.envelope(sidecars.body(data)))
    result = gaugeblock(*args)
    assert result.returncode == 0, result.stderr
    assert "m.gguf: certified" in result.stderr
    sha256 = hashlib.sha256(sidecar.read_bytes()).hexdigest()
    assert gaugeblock(*args, "--trust-envelope", sha256).returncode == 0
    assert gaugeblock(*args, "--trust-envelope", "0" * 64).returncode == 5
    assert gaugeblock(*args, "-c", "4096").returncode == 5


def test_fetch_uses_files_that_are_there(tiny_model: Tiny, tmp_path: Path) -> None:
    data = tiny_model(NAME).read_bytes()
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "m.gguf").write_bytes(data)
    artifact = {"name": "m.gguf", "sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    entry = {
        "id": "m",
        "architecture": "llama",
        "license": "none",
        "artifacts": [{**artifact, "sources": [{"path": "m.gguf"}]}],
        "checks": {"load": {}},
    }
    manifest = tmp_path / "m.json"
    manifest.write_text(json.dumps({"schema": "gaugeblock.manifest/1", "name": "m", "models": [entry]}))
    args = ("fetch", "--manifest", manifest, "--models-root", tmp_path / "models")
    found = document(gaugeblock(*args, "--json"), "fetch/1")
    assert found["artifacts"] == [{"model": "m", **artifact}]
    assert gaugeblock(*args, "--model", "m").stdout == f"{tmp_path / 'models' / 'm.gguf'}\n"
    assert gaugeblock(*args, "--model", "x").returncode == 2
    (tmp_path / "models" / "m.gguf").write_bytes(data[:-1] + b"x")
    result = gaugeblock(*args)
    assert result.returncode == 1
    assert "sha256" in result.stderr
    manifest.write_text("{}")
    assert gaugeblock(*args).returncode == 2


@pytest.mark.models
def test_a_real_model_names_the_capital_of_france(real_model: Callable[[str], Path]) -> None:
    result = gaugeblock("chat", "-m", real_model(SMOL), "-p", "What is the capital of France?", "-n", "32")
    assert result.returncode == 0, result.stderr
    assert "Paris" in result.stdout


@pytest.mark.models
def test_a_real_model_finds_sense_likelier_than_nonsense(real_model: Callable[[str], Path]) -> None:
    def perplexity(text: str) -> float:
        result = gaugeblock("score", "-m", real_model(SMOL), "-p", text, "--json")
        return float(document(result, "score/1")["perplexity"])

    assert perplexity("The capital of France is Paris.") < 0.1 * perplexity("Paris capital. of is The France")
