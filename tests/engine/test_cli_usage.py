"""Exit codes, messages and streams that every command shares."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.cli import COMMANDS, SUMMARIES, invoke
from engine.cli.console import clean, escape
from engine.errors import CancelledError, ContextOverflow, EngineError, FileError, UsageError
from tests.engine.cli import ROOT, document, gaugeblock

Tiny = Callable[[str], Path]
NAME = "llama-q8_0"


def test_help_names_every_command() -> None:
    result = gaugeblock("--help")
    assert result.returncode == 0
    assert list(COMMANDS) == list(SUMMARIES)
    for name in COMMANDS:
        assert f"  {name} " in result.stdout


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_has_help_and_refuses_an_unknown_option(name: str) -> None:
    assert gaugeblock(name, "--help").returncode == 0
    result = gaugeblock(name, "--no-such-option")
    assert result.returncode == 2
    assert "--no-such-option" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["nothing"],
        ["--json"],
        ["run"],
        ["run", "-m", "x.gguf"],
        ["run", "-m", "x.gguf", "-p", "a", "-f", "b"],
        ["run", "-m", "x.gguf", "-p", "a", "-n", "many"],
        ["run", "-m", "x.gguf", "-p", "a", "-n", "-2"],
        ["run", "-m", "x.gguf", "-p", "a", "--temp", "-1"],
        ["run", "-m", "x.gguf", "-p", "a", "--temp", "nan"],
        ["run", "-m", "x.gguf", "-p", "a", "--top-p", "1.5"],
        ["run", "-m", "x.gguf", "-p", "a", "--seed", "-1"],
        ["run", "-m", "x.gguf", "-p", "a", "-t", "0"],
        ["run", "-m", "x.gguf", "-p", "a", "-c", "0"],
        ["run", "-m", "x.gguf", "-p", "a", "-b", "5000"],
        ["run", "-m", "x.gguf", "-p", "a", "--activations", "f16"],
        ["run", "-m", "x.gguf", "-p", "a", "--kv", "q4"],
        ["run", "-m", "x.gguf", "-p", "a", "--require", "experimental"],
        ["run", "-m", "x.gguf", "-p", "a", "--trust-envelope", "abc"],
        ["run", "-m", "x.gguf", "-p", "a", "--require", "certified", "--force-uncertified"],
        ["run", "-m", "x.gguf", "-p", "a", "--log-format", "xml"],
        ["run", "-m", "x.gguf", "-p", "a", "--logprobs", "2"],
        ["run", "-m", "x.gguf", "-p", "a", "--json", "--choice-logprobs"],
        ["run", "-m", "x.gguf", "-p", "a", "--regex", "a|b", "--choice-logprobs"],
        ["chat", "-m", "x.gguf", "--json"],
        ["logits", "-m", "x.gguf", "-p", "a", "--ids", "1"],
        ["logits", "-m", "x.gguf", "--ids", "1_0"],
        ["logits", "-m", "x.gguf", "--ids", "1,,2"],
        ["logits", "-m", "x.gguf", "--ids", "\u0661"],
        ["logits", "-m", "x.gguf", "--ids", "1", "--positions", "0_0"],
        ["serve", "-m", "x.gguf", "--queue", "0"],
        ["fetch"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_exit_2(args: list[str]) -> None:
    result = gaugeblock(*args)
    assert result.returncode == 2, result.stderr
    assert "Traceback" not in result.stderr
    assert result.stderr.startswith("gaugeblock: error: ")
    assert result.stdout == ""


@pytest.mark.parametrize("command", ["run", "score", "logits"])
def test_a_prompt_that_is_too_long_is_said_in_tokens(tiny_model: Tiny, command: str) -> None:
    result = gaugeblock(command, "-m", tiny_model(NAME), "-p", "one two three " * 40, "-c", "64")
    assert result.returncode == 1
    assert re.search(r"error: \d+ tokens do not fit into the context of 64 positions$", result.stderr.strip())
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("x"), 2),
        (ContextOverflow("x"), 1),
        (FileError("x"), 1),
        (CancelledError("x"), 1),
        (EngineError("x"), 1),
        (KeyboardInterrupt(), 130),
        (BrokenPipeError(), 1),
        (OSError(28, "No space left on device", "out.npy"), 1),
    ],
)
def test_exit_codes_of_exceptions(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import click

    from engine.cli.console import CONSOLE

    @click.command()
    def fails() -> None:
        raise error

    monkeypatch.setattr(CONSOLE, "abandon_output", lambda: None)
    assert invoke(fails, []) == code
    assert "Traceback" not in capsys.readouterr().err


def test_errors_name_the_file_and_the_reason(tmp_path: Path) -> None:
    (tmp_path / "bad.gguf").write_bytes(b"GGUF\x03\0\0\0")
    result = gaugeblock("run", "-m", tmp_path / "bad.gguf", "-p", "x")
    assert result.returncode == 1
    assert f"error: {tmp_path}/bad.gguf: byte" in result.stderr
    assert gaugeblock("run", "-m", tmp_path / "absent", "-p", "x").returncode == 1
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    result = gaugeblock("run", "-m", fifo, "-p", "x", timeout=20)
    assert result.returncode == 1
    assert "FIFO" in result.stderr


def test_logs_can_be_json(tiny_model: Tiny, tmp_path: Path) -> None:
    model = tiny_model(NAME)
    result = gaugeblock("run", "-m", model, "-p", "ab", "-n", "2", "--log-format", "json")
    entries = [json.loads(line) for line in result.stderr.splitlines()]
    assert [entry["event"] for entry in entries] == ["standing", "finish"]
    assert entries[0]["standing"]["state"] == "unclassified"
    failed = gaugeblock("run", "-m", tmp_path / "absent", "-p", "ab", "--log-format", "json")
    assert json.loads(failed.stderr)["level"] == "error"


def test_version_names_everything_that_decides_results() -> None:
    text = gaugeblock("--version").stdout
    for word in (
        "gaugeblock 0.",
        "numerics gb1",
        "tokenizer t1",
        "template j1",
        "kernels: ",
        "compiler: ",
        "flags: ",
    ):
        assert word in text
    found = document(gaugeblock("--version", "--json"), "version/1")
    assert found["contracts"] == {"numerics": "gb1", "tokenizer": "t1", "template": "j1"}


def test_doctor_ends_in_a_verdict() -> None:
    result = gaugeblock("doctor")
    assert result.returncode == 0, result.stdout
    assert result.stdout.splitlines()[-1].startswith("verdict: ")
    found = document(gaugeblock("doctor", "--json"), "doctor/1")
    assert {"core", "self-test", "cpus", "memory", "references"} <= {
        check["name"] for check in found["checks"]
    }
    assert found["verdict"] in ("sound", "limited")


def test_doctor_reports_what_is_broken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from engine import native
    from engine.cli.doctor import doctor
    from engine.errors import SelfTestError

    def wrong() -> None:
        raise SelfTestError("the dot product differs")

    monkeypatch.setattr(native, "selftest", wrong)
    assert invoke(doctor, []) == 1
    out = capsys.readouterr().out
    assert "failure  self-test    the dot product differs" in out
    assert out.splitlines()[-1] == "verdict: broken (self-test)"


def test_a_reader_that_leaves_early_is_no_traceback(tiny_model: Tiny) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "engine", "tokenize", "-m", str(tiny_model(NAME)), "-f", "-"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    process.stdin.write(b"some words " * 20_000)
    process.stdin.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert process.wait(60) == 1
    assert b"Traceback" not in errors
    assert b"BrokenPipe" not in errors


def closed(number: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command with one of its standard streams closed."""
    command = ["sh", "-c", f'exec "$@" {number}>&-', "sh", sys.executable, "-m", "engine", *arguments]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )


def test_closed_streams_are_no_traceback_and_mix_nothing(tiny_model: Tiny) -> None:
    model = ["-m", str(tiny_model(NAME))]
    result = closed(0, "run", *model, "-f", "-")
    assert result.returncode == 2
    assert "the prompt is empty" in result.stderr
    result = closed(1, "run", *model, "-p", "hi", "-n", "1")
    assert result.returncode == 1
    assert "not writable" in result.stderr
    assert "Traceback" not in result.stderr
    result = closed(2, "run", *model, "-p", "hi", "-n", "1", "--json")
    assert document(result, "run/1")["generated_tokens"] == 1


def test_only_a_regular_file_is_replaced(tiny_model: Tiny, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for target in (fifo, tmp_path):
        result = gaugeblock("logits", "-m", tiny_model(NAME), "-p", "hi", "--npy", target)
        assert result.returncode == 2
        assert "is not a regular file" in result.stderr
    assert [item.name for item in tmp_path.iterdir()] == ["fifo"]
    assert fifo.is_fifo()


def test_an_interrupt_during_a_step_is_exit_130(tiny_model: Tiny) -> None:
    command = ["logits", "-m", str(tiny_model("gemma3-q4_k_m")), "--digest", "-c", "200000", "-t", "1"]
    process = subprocess.Popen(
        [sys.executable, "-m", "engine", *command, "--ids", ",".join(["3"] * 20_000)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert "unclassified" in process.stderr.readline()
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == ""
    assert errors.splitlines()[-1] == "gaugeblock: error: interrupted"
    assert "Traceback" not in errors


def test_ctrl_c_stops_an_answer_then_ends_the_conversation(tiny_model: Tiny) -> None:
    leader, follower = pty.openpty()
    command = ["chat", "-m", str(tiny_model("gemma3-q4_k_m")), "-c", "900000", "-t", "1"]
    process = subprocess.Popen(
        [sys.executable, "-m", "engine", *command, "--system", "long " * 20_000],
        cwd=ROOT,
        stdin=follower,
        stdout=follower,
        stderr=follower,
        start_new_session=True,
    )
    os.close(follower)

    def read_until(wanted: bytes) -> None:
        seen = b""
        while wanted not in seen:
            seen += os.read(leader, 4096)

    read_until(b"> ")
    os.write(leader, b"hello\n")
    read_until(b"hello\r\n")
    time.sleep(0.5)  # the prompt takes much longer
    process.send_signal(signal.SIGINT)
    read_until(b"stopped; Ctrl-C once more ends\r\n> ")
    for _ in range(30):  # one that comes just before the process waits for input is seen with the next
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(2)
            break
    process.kill()
    assert process.wait() == 130
    os.close(leader)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\n\ttext é 漢 \U0001f468\u200d\U0001f469", "plain\n\ttext é 漢 \U0001f468\u200d\U0001f469"),
        ("\x1b[31mred\x07\r\x9b", "\\x1b[31mred\\x07\\x0d\\x9b"),
        ("a\u202eb\u2028\ud800", "a\\u202eb\\u2028\\ud800"),
        ("[bold]markup[/bold]", "[bold]markup[/bold]"),
    ],
)
def test_foreign_text_cannot_move_the_cursor(text: str, shown: str) -> None:
    assert escape(text) == shown


def test_json_is_true_unicode() -> None:
    raw = b"a\xff".decode("utf-8", "surrogateescape")
    assert clean({raw: [raw, 1, None]}) == {"a\\xff": ["a\\xff", 1, None]}
