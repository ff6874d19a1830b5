"""Speed side by side with llama.cpp: the same file, threads and counts, alternating in one run."""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from certify.reasons import Reason
from certify.references import SpeedReference
from certify.references.llama_peer import peer_environment
from certify.targets import Context, EvidenceWriter, Setting, stop
from certify.types import Number, Outcome, OutcomeName, Variant
from engine.bench import process_start, tokens
from engine.errors import MeasureError

REQUIREMENT = (
    "The median ratio of our speed to the peer's, over back-to-back pairs on the same file with the same "
    "threads and token counts, MUST reach the manifest's thresholds in every activation mode and at every "
    "number of threads; a pair with stolen time, on a crowded machine, or with a drifting peer MUST NOT "
    "count, and too few pairs are no measurement."
)
VERSION = 1

_RATIOS = {
    "type": "object",
    "additionalProperties": False,
    "properties": {mode: {"type": "number", "exclusiveMinimum": 0} for mode in ("wide", "int8", "f32")},
    "minProperties": 1,
}
_COUNT = {"type": "integer", "minimum": 1, "maximum": 100000}
PARAMETERS = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "reference": {"type": "string", "default": "llama.cpp",
                      "description": "Timed where certify run was not given --peer."},
        "peer_features": {"type": "array", "items": {"type": "string"}, "default": [],
                          "description": "CPU features that the peer must be built with, in lower case."},
        "threads": {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 256},
                    "minItems": 1, "default": [1, 2]},
        "pairs": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 9},
        "min_pairs": {"type": "integer", "minimum": 1, "maximum": 1000,
                      "description": "Pairs that must be left; by default, all of them."},
        "max_pairs": {"type": "integer", "minimum": 1, "maximum": 1000,
                      "description": "Pairs made at most to get them; by default, twice as many."},
        "peer_drift_ratio_max": {"type": "number", "exclusiveMinimum": 0, "maximum": 1, "default": 0.15},
        "stolen_ratio_max": {"type": "number", "minimum": 0, "maximum": 1, "default": 0.005,
                             "description": "CPU time that the hypervisor gave to others."},
        "crowded_ratio_max": {"type": "number", "minimum": 0, "maximum": 1, "default": 0.05,
                              "description": "Time that threads of ours and the peer's waited for a CPU."},
        "prompt_tokens": {**_COUNT, "default": 512},
        "decode_tokens": {**_COUNT, "default": 64},
        "depth_tokens": {**_COUNT, "default": 4096},
        "depth_decode_tokens": {**_COUNT, "default": 32},
        "prompt_ratio_min": _RATIOS,
        "decode_ratio_min": _RATIOS,
        "depth_decode_ratio_min": _RATIOS,
        "start_ratio_max": {"type": "number", "exclusiveMinimum": 0,
                            "description": "Our time from process start to first token, over the peer's."},
    },
}  # fmt: skip

FLASH = ("on", "off")
PROBES = 2
PROMPT = "The first sentence of a story about a lighthouse:"


@dataclass(frozen=True)
class Workload:
    """One kind of work at one number of threads; ``bars`` maps modes to the ratio that is asked."""

    kind: str
    before: int
    count: int
    together: bool
    threads: int
    bars: Mapping[str, float]


@dataclass(frozen=True)
class Round:
    """One pair for every mode, back to back. ``stolen`` and ``crowded`` are shares of its time: given to
    others by the hypervisor, and spent by threads of either side in waiting for a CPU."""

    peer_s: float
    ours_s: Mapping[str, float]
    stolen: float
    crowded: float = 0.0


@dataclass(frozen=True)
class Found:
    """What one workload gave: rounds that count, and what was thrown away."""

    work: Workload
    flash: str
    kept: Sequence[Round]
    stolen: int
    crowded: int
    drifted: int

    def ratio(self, mode: str) -> float:
        """Median of the pairs' ratios."""
        return statistics.median(item.peer_s / item.ours_s[mode] for item in self.kept)

    def rate(self, mode: str | None) -> float:
        """Tokens per second, ours or the peer's (None): the median's."""
        times = [item.peer_s if mode is None else item.ours_s[mode] for item in self.kept]
        return self.work.count / statistics.median(times)


def run(ctx: Context) -> Outcome:
    """Every workload at every number of threads, then the starts."""
    peer = ctx.speed_reference(ctx.parameters["reference"])
    _refuse_untuned(ctx, peer)
    found: list[Found] = []
    with ctx.evidence("performance.jsonl") as evidence:
        for work in workloads(ctx):
            found.append(measure(ctx, peer, work, evidence))
        starts = _starts(ctx, peer, evidence)
    if not found and starts is None:
        return Outcome("skip", Reason.NOTHING_COMPARED, "the manifest sets no threshold of speed")
    return _outcome(ctx, found, starts)


def _refuse_untuned(ctx: Context, peer: SpeedReference) -> None:
    """A ratio against a peer that was built for another machine says nothing."""
    wanted: Sequence[str] = ctx.parameters["peer_features"]
    missing = sorted(set(wanted) - set(peer.cpu_features))
    if missing:
        has = ", ".join(peer.cpu_features) or "none that it states"
        detail = (
            f"{peer.provider} {peer.revision} lacks {', '.join(missing)}; it has {has}: name a tuned --peer"
        )
        raise stop("skip", Reason.PEER_UNSUITABLE, detail)


def workloads(ctx: Context) -> Iterator[Workload]:
    """What the thresholds ask for, the shallow work first."""
    given = ctx.parameters
    kinds = (
        ("prompt", 0, given["prompt_tokens"], True),
        ("decode", 1, given["decode_tokens"], False),
        ("depth_decode", given["depth_tokens"], given["depth_decode_tokens"], False),
    )
    for kind, before, count, together in kinds:
        bars = given.get(f"{kind}_ratio_min")
        if bars is None:
            continue
        if before + count > ctx.context_tokens:
            detail = f"{kind}: {before} + {count} tokens do not fit a context of {ctx.context_tokens}"
            raise stop("skip", Reason.PARAMETERS_UNSUITABLE, detail)
        for threads in given["threads"]:
            yield Workload(kind, before, count, together, threads, bars)


def measure(ctx: Context, peer: SpeedReference, work: Workload, evidence: EvidenceWriter) -> Found:
    """Rounds until enough count, or as many as are allowed."""
    vocab = ctx.target.vocab
    before, ids = tokens(work.before, vocab), tokens(work.count, vocab, work.before)

    def theirs(flash: str) -> float:
        how = {"together": work.together, "flash": flash, "threads": work.threads}
        return peer.seconds(before, ids, **how)  # type: ignore[arg-type]

    flash = better_flash(theirs)
    ours = {mode: _our_seconds(ctx, work, mode) for mode in work.bars}
    for warm_up in ours.values():
        warm_up()
    wanted = ctx.parameters["pairs"]
    most = ctx.parameters.get("max_pairs", 2 * wanted)
    rounds: list[Round] = []
    found = judge(ctx, work, flash, rounds)
    while len(found.kept) < wanted and len(rounds) < most:
        rounds.append(_round(lambda: theirs(flash), ours, reverse=len(rounds) % 2 == 1))
        evidence.write({"work": _name(work), "flash": flash, **_record(rounds[-1])})
        found = judge(ctx, work, flash, rounds)
    return found


def better_flash(theirs: Callable[[str], float]) -> str:
    """The setting of flash attention in which the peer is faster; these runs are its warm-up too."""
    best = {flash: min(theirs(flash) for _ in range(PROBES)) for flash in FLASH}
    return min(FLASH, key=lambda flash: best[flash])


def _our_seconds(ctx: Context, work: Workload, mode: str) -> Callable[[], float]:
    setting = Setting(mode, str(ctx.job.config["kv"]), work.threads, batch=512)
    return lambda: ctx.target.seconds(work.before, work.count, setting, together=work.together)


def _round(theirs: Callable[[], float], ours: Mapping[str, Callable[[], float]], *, reverse: bool) -> Round:
    """The peer and each of our modes once; every other round the other way about."""
    runs = [("peer", theirs), *ours.items()]
    before = stolen_s(), crowded_s()
    times = {name: once() for name, once in (reversed(runs) if reverse else runs)}
    after = stolen_s(), max(crowded_s(), before[1])  # a thread that ends takes its count along
    total = sum(times.values())
    shares = [(b - a) / total if total > 0 else 0.0 for a, b in zip(before, after, strict=True)]
    return Round(times.pop("peer"), times, *shares)


def stolen_s(path: Path = Path("/proc/stat")) -> float:
    """CPU seconds that the hypervisor has given to others since the start; 0 where nothing says."""
    try:
        fields = path.read_text(encoding="ascii").splitlines()[0].split()
        return int(fields[8]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0


def crowded_s(proc: Path = Path("/proc")) -> float:
    """Seconds that our threads and our children's have waited for a CPU since they began; 0 unless told."""
    own = proc / "self" / "task"
    children = [pid for path in own.glob("*/children") for pid in _text(path).split()]
    folders = [own, *(proc / pid / "task" for pid in children)]
    waits = [_text(path).split() for folder in folders for path in folder.glob("*/schedstat")]
    return sum(int(words[1]) for words in waits if len(words) == 3) / 1e9


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except OSError:
        return ""


def judge(ctx: Context, work: Workload, flash: str, rounds: Sequence[Round]) -> Found:
    """Throw away rounds with stolen time or on a crowded machine, then those with the peer off its median."""
    whole = [item for item in rounds if item.stolen <= ctx.parameters["stolen_ratio_max"]]
    calm = [item for item in whole if item.crowded <= ctx.parameters["crowded_ratio_max"]]
    middle = statistics.median(item.peer_s for item in calm) if calm else 0.0
    limit = ctx.parameters["peer_drift_ratio_max"] * middle
    kept = [item for item in calm if abs(item.peer_s - middle) <= limit]
    return Found(work, flash, kept, len(rounds) - len(whole), len(whole) - len(calm), len(calm) - len(kept))


# ---- From process start to the first token -----------------------------------------------------


@dataclass(frozen=True)
class Starts:
    """Seconds, one entry a pair; ours without and with a sidecar beside the model."""

    peer_s: Sequence[float]
    absent_s: Sequence[float]
    present_s: Sequence[float]

    def ratio(self, ours: Sequence[float]) -> float:
        """Median of the pairs' ratios."""
        return statistics.median(a / b for a, b in zip(ours, self.peer_s, strict=True))


def _starts(ctx: Context, peer: SpeedReference, evidence: EvidenceWriter) -> Starts | None:
    if "start_ratio_max" not in ctx.parameters:
        return None
    threads = max(ctx.parameters["threads"])
    theirs = peer.start_command(PROMPT, threads, ctx.context_tokens)
    if theirs is None:
        detail = f"{peer.provider} has no Python binding whose start could be timed"
        raise stop("skip", Reason.UNSUPPORTED_VARIANT, detail)
    setting = replace(ctx.setting, threads=threads)
    with tempfile.TemporaryDirectory() as folder:
        absent = ctx.target.start_command(setting, PROMPT, None)
        present = ctx.target.start_command(setting, PROMPT, Path(folder))
        commands = {"peer": theirs, "absent": absent, "present": present}
        rounds = [_start_round(commands) for _ in range(ctx.parameters["pairs"] + 1)][1:]
    for times in rounds:
        evidence.write({"work": "start", **{f"{name}_s": value for name, value in times.items()}})
    return Starts(*([times[name] for times in rounds] for name in ("peer", "absent", "present")))


def _start_round(commands: Mapping[str, Sequence[str]]) -> dict[str, float]:
    times = {}
    for name, command in commands.items():
        try:
            times[name] = process_start(command, peer_environment() if name == "peer" else None)
        except MeasureError as error:
            reason = Reason.REFERENCE_FAILED if name == "peer" else Reason.ENGINE_FAILED
            raise stop("error" if name == "peer" else "fail", reason, str(error)) from None
    return times


# ---- Judging -----------------------------------------------------------------------------------


def _outcome(ctx: Context, found: Sequence[Found], starts: Starts | None) -> Outcome:
    needed = ctx.parameters.get("min_pairs", ctx.parameters["pairs"])
    measurements: dict[str, Number | str | None] = {}
    thresholds: dict[str, Number] = {}
    variants: list[Variant] = []
    for item in found:
        enough = len(item.kept) >= needed
        measurements |= _figures(item, enough)
        for mode, bar in item.work.bars.items():
            name = f"{item.work.kind}_{mode}_t{item.work.threads}_ratio"
            measurements[name] = item.ratio(mode) if enough else None
            thresholds[f"{name}_min"] = bar
            variants.append(_variant(item.work, mode, measurements[name], bar))
    if starts is not None:
        bar = ctx.parameters["start_ratio_max"]
        for name, ours in (("absent", starts.absent_s), ("present", starts.present_s)):
            ratio = starts.ratio(ours)
            measurements[f"start_{name}_s"] = statistics.median(ours)
            measurements[f"start_{name}_ratio"] = ratio
            thresholds[f"start_{name}_ratio_max"] = bar
            late = ratio > bar
            reason = Reason.THRESHOLD_MISSED if late else None
            variants.append(Variant(f"start,sidecar={name}", "fail" if late else "pass", reason))
        measurements["peer_start_s"] = statistics.median(starts.peer_s)
    return _verdict(measurements, thresholds, variants)


def _figures(item: Found, enough: bool) -> dict[str, Number | str | None]:
    work = item.work
    name = f"{work.kind}_t{work.threads}"
    figures: dict[str, Number | str | None] = {
        f"{name}_pairs": len(item.kept),
        f"{name}_pairs_stolen": item.stolen,
        f"{name}_pairs_crowded": item.crowded,
        f"{name}_pairs_drifted": item.drifted,
        f"peer_{name}_flash": item.flash,
        f"peer_{name}_tokens_per_s": item.rate(None) if enough else None,
    }
    for mode in work.bars:
        rate = item.rate(mode) if enough else None
        figures[f"{work.kind}_{mode}_t{work.threads}_tokens_per_s"] = rate
    return figures


def _variant(work: Workload, mode: str, ratio: Number | str | None, bar: float) -> Variant:
    name = f"{_name(work)},activations={mode}"
    if not isinstance(ratio, float):
        return Variant(name, "skip", Reason.TOO_NOISY)
    return Variant(name, *(("pass", None) if ratio >= bar else ("fail", Reason.THRESHOLD_MISSED)))


def _verdict(
    measurements: Mapping[str, Number | str | None],
    thresholds: Mapping[str, Number],
    variants: Sequence[Variant],
) -> Outcome:
    """Slow anywhere fails; else a measurement that could not be made keeps the check from passing."""
    slow = [item.name for item in variants if item.outcome == "fail"]
    unmade = [item.name for item in variants if item.outcome == "skip"]
    outcome: OutcomeName = "fail" if slow else "skip" if unmade else "pass"
    reason = Reason.THRESHOLD_MISSED if slow else Reason.TOO_NOISY if unmade else None
    detail = f"past the threshold: {'; '.join(slow)}" if slow else ""
    if unmade:
        detail += f"{'; ' if slow else ''}too few quiet pairs: {'; '.join(unmade)}"
    return Outcome(outcome, reason, detail, measurements, thresholds, tuple(variants))


def _name(work: Workload) -> str:
    return f"{work.kind},threads={work.threads}"


def _record(item: Round) -> dict[str, Any]:
    return {
        "peer_s": item.peer_s,
        "ours_s": dict(item.ours_s),
        "stolen_ratio": item.stolen,
        "crowded_ratio": item.crowded,
    }
