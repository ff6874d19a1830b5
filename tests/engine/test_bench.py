"""The stopwatch and its command. No time is asserted: only that what was timed is the right work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from engine import native
from engine.bench import Bench, Traffic, Work, process_start, tokens
from engine.errors import MeasureError, UsageError
from engine.machine import last_cache_bytes
from engine.model import Header, Model, RuntimeConfig
from tests.engine.cli import document, gaugeblock

Tiny = Callable[[str], Path]
NAME = "llama-q8_0"


def test_the_command_measures_everything_that_it_is_asked_for(tiny_model: Tiny) -> None:
    options = ("-p", 24, "-n", 3, "--depth", 40, "--sequences", 3, "--start", "-r", 2, "-t", 2)
    found = document(gaugeblock("bench", "-m", tiny_model(NAME), *options, "--json"), "bench/1")
    assert found["config"]["context_tokens"] == 43
    assert found["threads"] == 2
    for name in (
        "load_s",
        "first_token_s",
        "process_first_token_s",
        "prompt_s",
        "decode_s",
        "depth_s",
        "together_s",
    ):
        assert len(found[name]) == 2
        assert all(value > 0 for value in found[name])
    assert found["prompt_tokens_per_s"] == pytest.approx(24 / np.median(found["prompt_s"]))
    assert found["together_tokens_per_s"] == pytest.approx(9 / np.median(found["together_s"]))
    assert found["together_identical"] is True
    assert found["decode_bytes_per_s"] == pytest.approx(found["decode_bytes"] * found["decode_tokens_per_s"])
    assert found["machine_read_bytes_per_s"] > 0
    assert found["machine_macs_per_s"] > 0
    assert found["peak_rss_bytes"] is None or found["peak_rss_bytes"] > found["file_bytes"]


def test_the_command_prints_lines_for_people(tiny_model: Tiny) -> None:
    result = gaugeblock("bench", "-m", tiny_model(NAME), "-p", 4, "-n", 2, "-r", 1, "--sequences", 2)
    assert result.returncode == 0, result.stderr
    assert "identical to solo runs" in result.stdout
    assert "% of the" in result.stdout


def test_a_context_that_is_too_small_is_refused(tiny_model: Tiny) -> None:
    result = gaugeblock("bench", "-m", tiny_model(NAME), "-p", 64, "-c", 63)
    assert result.returncode == 2
    assert "takes 65 positions" in result.stderr


def test_every_series_evaluates_what_it_says(tiny_model: Tiny) -> None:
    config = RuntimeConfig(context_tokens=64)
    with Model.open(tiny_model(NAME), config=config) as model, Bench(model, threads=1, sequences=2) as bench:
        assert bench.prompt(5) > 0
        assert bench.session.length() == 5
        assert bench.decode(3) > 0
        assert bench.session.length() == 1
        assert bench.decode(3, depth=20) > 0
        assert bench.session.length() == 20
        assert bench.decode_together(3, 2) > 0
        assert [bench.session.length(seq) for seq in range(2)] == [0, 0]
        assert bench.together_is_alone(2, 2)


def test_a_sequence_that_differs_from_its_solo_run_is_noticed(
    tiny_model: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Model.open(tiny_model(NAME)) as model, Bench(model, threads=1, sequences=2) as bench:
        step = bench.session.step
        monkeypatch.setattr(bench.session, "step", lambda entries: np.nextafter(step(entries), np.float32(9)))
        assert not bench.together_is_alone(1, 2)


@pytest.mark.parametrize("name", ["llama-q8_0", "gemma3-q8_0", "qwen2-q4_k_m"])
def test_traffic_counts_each_matrix_once(name: str, tiny_model: Tiny) -> None:
    with Header.open(tiny_model(name)) as header:
        traffic = Traffic.of(header)
        sizes = {tensor.name: (tensor.bytes, int(np.prod(tensor.dims))) for tensor in header.tensors}
        matrices = {tensor.name for tensor in header.tensors if len(tensor.dims) > 1}
    embedding = sizes["token_embd.weight"]
    tied = "output.weight" not in sizes
    whole = sum(size for size, _ in sizes.values())
    assert traffic.decode_bytes == (whole if tied else whole - embedding[0])
    assert traffic.output_macs == (embedding[1] if tied else sizes["output.weight"][1])
    layers = matrices - {"token_embd.weight", "output.weight"}
    assert traffic.prompt_macs == sum(sizes[item][1] for item in layers)


def test_tokens_are_spread_over_the_vocabulary() -> None:
    assert tokens(3, 100) == [13, 32, 51]
    assert tokens(2, 100, start=1) == tokens(3, 100)[1:]
    assert len(set(tokens(200, 300))) == 200


def test_work_without_tokens_is_refused() -> None:
    with pytest.raises(UsageError, match="at least one token"):
        Work(prompt=0)


@pytest.mark.parametrize("text", ["", "import sys; print(1); sys.exit(3)"])
def test_a_process_that_gives_no_token_is_no_measurement(text: str) -> None:
    import sys

    with pytest.raises(MeasureError, match="ended with status"):
        process_start([sys.executable, "-c", text])


def test_peaks_are_positive_and_refusals_named() -> None:
    assert native.measure_read(1 << 20, 2, 1) > 0
    rate, instruction = native.measure_dot(2, 1)
    assert rate > 0
    assert instruction != "none"
    with pytest.raises(UsageError, match="a multiple of 4096"):
        native.measure_read(5000, 1, 1)
    with pytest.raises(UsageError, match="0 threads"):
        native.measure_dot(0, 1)
    with pytest.raises(UsageError, match="0 repetitions"):
        native.measure_read(4096, 1, 0)


def test_the_largest_cache_is_found(tmp_path: Path) -> None:
    for index, size in enumerate(["32K", "1024K", "32M", "odd"]):
        (tmp_path / f"index{index}").mkdir()
        (tmp_path / f"index{index}" / "size").write_text(size + "\n")
    assert last_cache_bytes(tmp_path) == 32 << 20
    assert last_cache_bytes(tmp_path / "absent") is None
