"""``gaugeblock bench``: how fast a model runs here, beside what the machine gives at most."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from engine.cli.console import CONSOLE
from engine.cli.options import Loading, json_option, loading_options
from engine.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.bench import Figures

COUNT = click.IntRange(1, 1 << 20)
PROMPT = "The first sentence of a story about a lighthouse:"


@click.command()
@loading_options
@click.option("-p", "--prompt", "prompt", type=COUNT, default=512, show_default=True, help="Prompt tokens.")
@click.option("-n", "--tokens", "decode", type=COUNT, default=64, show_default=True, help="Decoded tokens.")
@click.option(
    "--depth",
    type=click.IntRange(0, 1 << 24),
    default=0,
    show_default=True,
    help="Also decode behind so many tokens.",
)
@click.option(
    "--sequences",
    type=click.IntRange(1, 1024),
    default=1,
    show_default=True,
    help="Also decode so many sequences in the same steps.",
)
@click.option("--start", is_flag=True, help="Also time `gaugeblock run` from process start to first token.")
@click.option("-r", "--repetitions", type=click.IntRange(1, 1000), default=5, show_default=True)
@json_option
def bench(
    prompt: int,
    decode: int,
    depth: int,
    sequences: int,
    start: bool,
    repetitions: int,
    as_json: bool,
    **rest: Any,
) -> None:
    """Time prompt, decode and loading of a model; medians over repetitions that follow a warm-up.

    Bytes and products per second stand beside the machine's own: a plain read loop over memory well past
    the last cache, and a loop of the kernel set's integer product that touches registers alone.
    """
    loading = Loading.take(rest)
    from engine import bench as timing

    work = timing.Work(prompt, decode, depth, sequences)
    loading = _with_room(loading, work.positions)
    config = _config(loading)
    figures = timing.measure(
        loading.path,
        config,
        work,
        threads=loading.threads,
        batch=loading.batch,
        repack=not loading.no_repack,
        repetitions=repetitions,
        policy=loading.policy(),
        mmap=not loading.no_mmap,
        progress=lambda what: CONSOLE.log("bench", f"timing {what}", what=what),
    )
    starts: tuple[float, ...] | None = None
    if start:
        command = timing.run_command(loading.path, config, figures.threads, PROMPT)
        starts = tuple(timing.process_start(command) for _ in range(repetitions))
    found = document(loading, figures, starts)
    if as_json:
        CONSOLE.document("bench/1", **found)
    else:
        show(found)


def _with_room(loading: Loading, positions: int) -> Loading:
    """The context that the work needs, unless the user asked for another."""
    source = click.get_current_context().get_parameter_source("context")
    if source is ParameterSource.DEFAULT:
        return replace(loading, context=max(positions, 1))
    if loading.context < positions:
        raise UsageError(f"-c {loading.context} is too small: this benchmark takes {positions} positions")
    return loading


def _config(loading: Loading) -> Any:
    from engine.model import RuntimeConfig

    return RuntimeConfig(loading.activations, loading.kv, loading.context)


def document(loading: Loading, figures: Figures, starts: Sequence[float] | None) -> dict[str, Any]:
    """Everything that was measured. Rates are medians; times are lists, one entry a repetition."""
    from engine import native
    from engine.machine import cpu_name

    build, work, peaks = native.build(), figures.work, figures.peaks
    return {
        "model": loading.path.name,
        "engine": build.version,
        "compiler": build.compiler,
        "kernel_set": build.kernel_set,
        "cpu": cpu_name(),
        "config": vars(_config(loading)),
        "threads": figures.threads,
        "batch": figures.batch,
        "work": vars(work),
        "prompt_tokens_per_s": figures.prompt_tokens_per_s,
        "decode_tokens_per_s": figures.decode_tokens_per_s,
        "depth_tokens_per_s": figures.depth_tokens_per_s,
        "together_tokens_per_s": figures.together_tokens_per_s,
        "together_identical": figures.together_identical,
        "load_s": list(figures.load_s),
        "first_token_s": list(figures.first_token_s),
        "process_first_token_s": None if starts is None else list(starts),
        "prompt_s": list(figures.prompt_s),
        "decode_s": list(figures.decode_s),
        "depth_s": None if figures.depth_s is None else list(figures.depth_s),
        "together_s": None if figures.together_s is None else list(figures.together_s),
        "file_bytes": figures.file_bytes,
        "kv_bytes": figures.kv_bytes,
        "peak_rss_bytes": figures.peak_rss_bytes,
        "decode_bytes": figures.traffic.decode_bytes,
        "decode_bytes_per_s": figures.decode_bytes_per_s,
        "machine_read_bytes_per_s": peaks.read_bytes_per_s,
        "machine_read_bytes": peaks.read_bytes,
        "prompt_macs_per_s": figures.prompt_macs_per_s,
        "machine_macs_per_s": peaks.dot_macs_per_s,
        "machine_instruction": peaks.dot_instruction,
    }


def show(found: dict[str, Any]) -> None:
    """The same for people."""
    work, config = found["work"], found["config"]
    line = CONSOLE.line
    line(f"model            {found['model']}: activations {config['activations']}, kv {config['kv']}")
    line(f"engine           {found['engine']}, {found['compiler']}, kernels {found['kernel_set']}")
    line(f"machine          {found['cpu'] or 'unknown'}, {found['threads']} threads")
    line(f"prompt           {found['prompt_tokens_per_s']:.1f} tokens/s over {work['prompt']}")
    line(f"decode           {found['decode_tokens_per_s']:.1f} tokens/s over {work['decode']}")
    if found["depth_tokens_per_s"] is not None:
        line(f"decode at depth  {found['depth_tokens_per_s']:.1f} tokens/s behind {work['depth']}")
    if found["together_tokens_per_s"] is not None:
        ratio = found["together_tokens_per_s"] / found["decode_tokens_per_s"]
        same = "identical to" if found["together_identical"] else "DIFFERENT from"
        rate = f"{found['together_tokens_per_s']:.1f} tokens/s in all, {ratio:.2f} times one alone"
        line(f"{work['sequences']} sequences      {rate}, {same} solo runs")
    line(f"load             {_middle(found['load_s']):.3f} s")
    line(f"first token      {_middle(found['first_token_s']):.3f} s after the start of loading")
    if found["process_first_token_s"] is not None:
        line(f"process start    {_middle(found['process_first_token_s']):.3f} s to the first token")
    if found["peak_rss_bytes"] is not None:
        sizes = f"file {_mib(found['file_bytes'])}, kv {_mib(found['kv_bytes'])}"
        line(f"peak memory      {_mib(found['peak_rss_bytes'])} ({sizes})")
    _limit(
        "weights read", found["decode_bytes_per_s"], found["machine_read_bytes_per_s"], "GB/s", "a read loop"
    )
    instruction = found["machine_instruction"]
    _limit("prompt products", found["prompt_macs_per_s"], found["machine_macs_per_s"], "GMAC/s", instruction)


def _limit(name: str, got: float, most: float, unit: str, by: str) -> None:
    share = 100 * got / most
    CONSOLE.line(f"{name:<17}{got / 1e9:.1f} {unit}, {share:.0f} % of the {most / 1e9:.1f} of {by}")


def _middle(values: Sequence[float]) -> float:
    import statistics

    return statistics.median(values)


def _mib(count: int) -> str:
    return f"{count / (1 << 20):.0f} MiB"
