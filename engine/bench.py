"""How fast our engine is on one model: the stopwatch behind ``gaugeblock bench`` and ``certify``.

Every time here is seconds of work, measured around the calls of a session that has been warmed up;
rates are medians over repetitions. Tokens are chosen by number, not by meaning: speed does not
depend on the text, and so a peer can be given the same ones.
"""

from __future__ import annotations

import hashlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from engine import native
from engine.envelope import Policy
from engine.errors import MeasureError, UsageError
from engine.machine import available_bytes, last_cache_bytes, usable_cpus
from engine.model import Header, Model, RuntimeConfig
from engine.session import Entry, Session

READ_BYTES = 1 << 30
PEAK_REPETITIONS = 3


@dataclass(frozen=True)
class Work:
    """What to time: ``prompt`` tokens at once, ``decode`` tokens one by one, behind ``depth`` others."""

    prompt: int = 512
    decode: int = 64
    depth: int = 0
    sequences: int = 1

    def __post_init__(self) -> None:
        if min(self.prompt, self.decode) < 1 or self.depth < 0 or self.sequences < 1:
            raise UsageError("a benchmark needs at least one token of prompt and one of decode")

    @property
    def positions(self) -> int:
        """Positions that the longest sequence of this work takes."""
        return max(self.prompt, self.decode + max(self.depth, 1))


@dataclass(frozen=True)
class Traffic:
    """What one token costs: bytes of weights that a decode step reads, products that a prompt token needs."""

    decode_bytes: int
    prompt_macs: int
    output_macs: int

    @classmethod
    def of(cls, header: Header) -> Traffic:
        """From the tensor list: an embedding matrix is read whole only where it is also the output's."""
        names = {tensor.name for tensor in header.tensors}
        output = "output.weight" if "output.weight" in names else "token_embd.weight"
        read = macs = last = 0
        for tensor in header.tensors:
            count = int(np.prod(tensor.dims, dtype=np.int64)) if len(tensor.dims) > 1 else 0
            if tensor.name == output:
                last = count
            elif tensor.name == "token_embd.weight":
                continue
            else:
                macs += count
            read += tensor.bytes
        return cls(read, macs, last)


def tokens(count: int, vocab: int, start: int = 0) -> list[int]:
    """``count`` ids from all over the vocabulary, always the same ones."""
    return [(7919 * (start + i) + 13) % vocab for i in range(count)]


def _bits(logits: np.ndarray) -> bytes:
    """A digest of one row: rows themselves would be the peak of memory."""
    return hashlib.sha256(logits.tobytes()).digest()


class Bench:
    """One session of a model, used over and over; the model stays the caller's."""

    def __init__(
        self,
        model: Model,
        *,
        threads: int | None = None,
        batch: int = 512,
        sequences: int = 1,
        repack: bool = True,
    ) -> None:
        self.model = model
        self.threads = threads or usable_cpus()
        self.session: Session = model.session(self.threads, batch=batch, sequences=sequences, repack=repack)
        self.vocab = model.info.vocab
        self._filled = -1

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the session."""
        self.session.close()

    def prompt(self, count: int) -> float:
        """Seconds for ``count`` tokens in an empty sequence, logits of the last."""
        self._rewind(0)
        return self._timed(lambda: self.session.eval(tokens(count, self.vocab)))

    def decode(self, count: int, depth: int = 0) -> float:
        """Seconds for ``count`` single tokens behind ``depth`` (at least one) others, logits of each."""
        depth = max(depth, 1)
        self._fill(depth)
        ids = tokens(count, self.vocab, depth)

        def run() -> None:
            for token in ids:
                self.session.eval([token])

        seconds = self._timed(run)
        self.session.truncate(depth)
        return seconds

    def decode_together(self, count: int, sequences: int) -> float:
        """Seconds for ``count`` steps that each advance so many sequences by one token."""
        for seq in range(sequences):
            self.session.truncate(0, seq)
            self.session.eval([seq], seq=seq, want="none")
        steps = [self._entries(i, sequences) for i in range(count)]

        def run() -> None:  # a step's logits go before the next one's come
            for entries in steps:
                self.session.step(entries)

        seconds = self._timed(run)
        for seq in range(sequences):
            self.session.truncate(0, seq)
        self._filled = -1
        return seconds

    def together_is_alone(self, count: int, sequences: int) -> bool:
        """Whether sequences that advance together have the logits, to the bit, of each by itself."""
        for seq in range(sequences):
            self.session.truncate(0, seq)
            self.session.eval([seq], seq=seq, want="none")
        together = [
            [_bits(row) for row in self.session.step(self._entries(i, sequences))] for i in range(count)
        ]
        same = True
        for seq in range(sequences):
            self._rewind(0)
            self.session.eval([seq], want="none")
            for i in range(count):
                alone = self.session.eval([self._entries(i, sequences)[seq].token])[0]
                same = same and _bits(alone) == together[i][seq]
        return same

    def _entries(self, index: int, sequences: int) -> list[Entry]:
        ids = [tokens(1, self.vocab, 1000 * seq + index)[0] for seq in range(sequences)]
        return [Entry(token, 1 + index, seq, "logits") for seq, token in enumerate(ids)]

    def _rewind(self, length: int) -> None:
        self.session.truncate(length)
        self._filled = length

    def _fill(self, depth: int) -> None:
        """Bring sequence 0 to ``depth`` tokens; what is already there stays."""
        if self._filled != depth:
            self._rewind(0)
            self.session.eval(tokens(depth, self.vocab), want="none")
            self._filled = depth

    @staticmethod
    def _timed(run: Callable[[], object]) -> float:
        begin = time.perf_counter()
        run()
        return time.perf_counter() - begin


@dataclass(frozen=True)
class Peaks:
    """What the machine gives at most, at so many threads."""

    read_bytes_per_s: float
    read_bytes: int
    dot_macs_per_s: float
    dot_instruction: str


def peaks(threads: int, repetitions: int = PEAK_REPETITIONS) -> Peaks:
    """Measure the read loop over memory well past the last cache, and the product loop in registers."""
    room = available_bytes()
    size = max(READ_BYTES, 8 * (last_cache_bytes() or 0))
    size = size if room is None else min(size, room // 4)
    size = max(size >> 12, 1) << 12
    rate, instruction = native.measure_dot(threads, repetitions)
    return Peaks(native.measure_read(size, threads, repetitions), size, rate, instruction)


@dataclass(frozen=True)
class Figures:
    """What ``measure`` found. Times in seconds, one entry a repetition; None: was not asked for."""

    threads: int
    batch: int
    work: Work
    traffic: Traffic
    load_s: tuple[float, ...]
    first_token_s: tuple[float, ...]
    prompt_s: tuple[float, ...]
    decode_s: tuple[float, ...]
    depth_s: tuple[float, ...] | None
    together_s: tuple[float, ...] | None
    together_identical: bool | None
    file_bytes: int
    kv_bytes: int
    peak_rss_bytes: int | None
    peaks: Peaks

    @property
    def prompt_tokens_per_s(self) -> float:
        return self.work.prompt / statistics.median(self.prompt_s)

    @property
    def decode_tokens_per_s(self) -> float:
        return self.work.decode / statistics.median(self.decode_s)

    @property
    def depth_tokens_per_s(self) -> float | None:
        return None if self.depth_s is None else self.work.decode / statistics.median(self.depth_s)

    @property
    def together_tokens_per_s(self) -> float | None:
        """Of all sequences together."""
        if self.together_s is None:
            return None
        return self.work.sequences * self.work.decode / statistics.median(self.together_s)

    @property
    def decode_bytes_per_s(self) -> float:
        """Weights read by decoding."""
        return self.traffic.decode_bytes * self.decode_tokens_per_s

    @property
    def prompt_macs_per_s(self) -> float:
        """Products of weights and activations in the prompt; attention's are not counted."""
        macs = self.traffic.prompt_macs * self.work.prompt + self.traffic.output_macs
        return macs / statistics.median(self.prompt_s)


def measure(
    path: Path,
    config: RuntimeConfig,
    work: Work,
    *,
    threads: int | None = None,
    batch: int = 512,
    repack: bool = True,
    repetitions: int = 5,
    policy: Policy = Policy(force=True),
    mmap: bool = True,
    progress: Callable[[str], None] = lambda text: None,
) -> Figures:
    """Everything that ``gaugeblock bench`` shows of one model. Each series begins with a warm-up."""

    def series(what: str, once: Callable[[], float]) -> tuple[float, ...]:
        progress(what)
        once()
        return tuple(once() for _ in range(repetitions))

    def opened() -> Model:
        return Model.open(path, config=config, policy=policy, mmap=mmap)

    options = {"threads": threads, "batch": batch, "repack": repack}
    with opened() as model, Bench(model, sequences=work.sequences, **options) as bench:  # type: ignore[arg-type]
        traffic = Traffic.of(bench.model)
        prompt_s = series("prompt", lambda: bench.prompt(work.prompt))
        decode_s = series("decode", lambda: bench.decode(work.decode))
        depth_s = together_s = identical = None
        if work.depth:
            depth_s = series("depth", lambda: bench.decode(work.decode, work.depth))
        kv_bytes = bench.session.kv_bytes
        if work.sequences > 1:
            identical = bench.together_is_alone(min(work.decode, 4), work.sequences)
            together_s = series("sequences", lambda: bench.decode_together(work.decode, work.sequences))
        rss, count, size = peak_rss_bytes(), bench.threads, bench.model.size_bytes
    load_s, first_s = [], []
    for _ in range(repetitions):
        progress("load")
        begin = time.perf_counter()
        with opened() as model, Bench(model, **options) as bench:  # type: ignore[arg-type]
            load_s.append(time.perf_counter() - begin)
            first_s.append(load_s[-1] + bench.prompt(work.prompt))
    progress("machine")
    return Figures(
        count, batch, work, traffic, tuple(load_s), tuple(first_s), prompt_s, decode_s, depth_s, together_s,
        identical, size, kv_bytes, rss, peaks(count),
    )  # fmt: skip


def process_start(command: Sequence[str], env: dict[str, str] | None = None, timeout_s: float = 300) -> float:
    """Seconds from the start of a process to the first byte that it writes to standard output."""
    begin = time.perf_counter()
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    with subprocess.Popen(list(command), env=env, bufsize=0, **pipes) as process:  # type: ignore[call-overload]
        first = process.stdout.read(1)
        seconds = time.perf_counter() - begin
        try:
            _, errors = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            raise MeasureError(f"{Path(command[0]).name} did not end in {timeout_s:g} s") from None
    if not first or process.returncode != 0:
        tail = errors.decode(errors="replace").strip()[-500:]
        raise MeasureError(f"{Path(command[0]).name} ended with status {process.returncode}: {tail}")
    return seconds


def run_command(path: Path, config: RuntimeConfig, threads: int, prompt: str) -> list[str]:
    """``gaugeblock run`` on one token, as a process of its own."""
    return [
        sys.executable, "-m", "engine", "run", "-m", str(path), "-p", prompt, "-n", "1", "-t", str(threads),
        "--activations", config.activations, "--kv", config.kv, "-c", str(config.context_tokens),
    ]  # fmt: skip


def serve_command(path: Path, config: RuntimeConfig, threads: int) -> list[str]:
    """``gaugeblock serve`` on a free port; its ready line on standard error names the URL."""
    return [
        sys.executable, "-m", "engine", "serve", "-m", str(path), "--port", "0", "-t", str(threads),
        "--activations", config.activations, "--kv", config.kv, "-c", str(config.context_tokens),
        "--force-uncertified",
    ]  # fmt: skip


def peak_rss_bytes() -> int | None:
    """Highest resident memory of this process so far, or None where the system does not say."""
    try:
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None
