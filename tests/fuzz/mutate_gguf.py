"""Thousands of damaged GGUF files through the whole C core under ASan and UBSan.

``python tests/fuzz/mutate_gguf.py`` builds ``drive.c`` with sanitizers, makes ``--count`` mutants
of tiny models (and of a real model's header, where one is found) and feeds them to it. Each must
either run a token or be refused with a text; at least ``--accept-ratio`` of them must run. A
sanitizer's report, a crash, a hang, an empty text or a demand for absurd memory is a finding: it
is printed, the mutant is kept under ``out/mutants``, and the exit code is 1. Mutant ``i`` of a
seed is always the same file: ``--only i`` repeats one.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import select
import struct
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from fixtures import tiny  # noqa: E402
from tests.ci import native  # noqa: E402

FLAGS = [
    "-O1",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-fno-omit-frame-pointer",
    "-Wno-error",
]
# A single allocation over 256 MiB fails: no file of this campaign warrants one.
SANITIZERS = {
    "ASAN_OPTIONS": (
        "detect_leaks=1:allocator_may_return_null=1:max_allocation_size_mb=256:hard_rss_limit_mb=3000"
    ),
    "UBSAN_OPTIONS": "print_stacktrace=1",
}
REAL = "SmolLM2-135M-Instruct.Q4_1.gguf"
TINY = ("llama-f32", "llama-q4_k_m", "llama-odd", "qwen2-f32", "qwen3-q8_0", "gemma3-f32", "llama-q4_0")
ENOMEM = 5
SECONDS = 60.0  # a mutant that takes longer hangs

U32_LIES = (0, 1, 2, 3, 7, 8, 9, 13, 255, 256, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
U64_LIES = (0, 1, 2, 3, 31, 32, 33, 1 << 16, 1 << 31, 1 << 32, (1 << 61) + 1, 1 << 62, 1 << 63, (1 << 64) - 1)
SCALARS = (1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8)
STRING, ARRAY = 8, 9


@dataclass(frozen=True)
class Field:
    """A place in a header: ``role`` says what stands there."""

    role: str
    at: int
    size: int


@dataclass
class Base:
    """A file to mutate: its stored bytes, its full size, and where things stand in it."""

    name: str
    data: bytes
    size: int
    run: bool
    fields: dict[str, list[Field]] = field(default_factory=dict)
    keys: list[tuple[int, int]] = field(default_factory=list)
    tensors: list[tuple[int, int]] = field(default_factory=list)
    header_end: int = 0


class Mapper:
    """Walks a valid header and notes its fields by role."""

    def __init__(self, base: Base) -> None:
        self.base, self.at = base, 0
        for role, size in (("magic", 4), ("version", 4), ("count", 8), ("count", 8)):
            self.take(role, size)
        tensors, keys = struct.unpack_from("<QQ", base.data, 8)
        for _ in range(keys):
            start = self.at
            self.string("key")
            self.value(self.number("value type", 4))
            base.keys.append((start, self.at))
        for _ in range(tensors):
            start = self.at
            self.string("tensor name")
            for _ in range(self.number("n_dims", 4)):
                self.take("dim", 8)
            self.take("tensor type", 4)
            self.take("tensor offset", 8)
            base.tensors.append((start, self.at))
        base.header_end = self.at

    def take(self, role: str, size: int) -> int:
        """Note a field; returns where it starts."""
        start, self.at = self.at, self.at + size
        self.base.fields.setdefault(role, []).append(Field(role, start, size))
        return start

    def number(self, role: str, size: int) -> int:
        """Note an unsigned field; returns its value."""
        start = self.take(role, size)
        return int.from_bytes(self.base.data[start : start + size], "little")

    def string(self, role: str) -> None:
        """Length, then bytes."""
        size = self.number(f"{role} length", 8)
        if size:
            self.take(role, size)

    def value(self, kind: int) -> None:
        """A value of a metadata type."""
        if kind == STRING:
            self.string("text")
        elif kind == ARRAY:
            element, count = self.number("element type", 4), self.number("array count", 8)
            if element == STRING:
                for _ in range(count):
                    self.string("element")
            elif count:
                self.take("elements", SCALARS[element] * count)
        else:
            self.take("scalar", SCALARS[kind])


# ---- Mutations: (random, base) -> bytes ------------------------------------------------------


def put(data: bytes, at: int, raw: bytes) -> bytes:
    """The bytes with ``raw`` written over them at ``at``."""
    return data[:at] + raw + data[at + len(raw) :]


def pick(rng: random.Random, base: Base) -> Field:
    """A field; every role is as likely as another, so that rare ones are met."""
    return rng.choice(base.fields[rng.choice(sorted(base.fields))])


def lie(rng: random.Random, base: Base) -> bytes:
    """A field gets a value that is extreme, or next to its own, or another field's."""
    f = pick(rng, base)
    size = min(f.size, 8)
    old = int.from_bytes(base.data[f.at : f.at + size], "little")
    lies = [old + 1, old - 1, old * 2, old ^ (1 << rng.randrange(8 * size)), rng.getrandbits(8 * size)]
    new = rng.choice([*lies, *(U32_LIES if size <= 4 else U64_LIES)])
    return put(base.data, f.at, (new % (1 << 8 * size)).to_bytes(size, "little"))


def wrap(rng: random.Random, base: Base) -> bytes:
    """A dimension or an array's length grows by 2^64 / 2^k: times a multiple of 2^k it is what it was."""
    f = rng.choice(base.fields[rng.choice(["dim", "dim", "array count"])])
    old = int.from_bytes(base.data[f.at : f.at + 8], "little")
    return put(base.data, f.at, ((old + (1 << 64 - rng.randint(1, 8))) % (1 << 64)).to_bytes(8, "little"))


def small_lie(rng: random.Random, base: Base) -> bytes:
    """A scalar of the metadata changes a little: head counts, widths, ids, scales."""
    f = rng.choice(base.fields["scalar"])
    old = int.from_bytes(base.data[f.at : f.at + f.size], "little")
    new = rng.choice([old + 1, old - 1, old * 2, old // 2, 0, 1, old ^ (1 << rng.randrange(8 * f.size))])
    return put(base.data, f.at, (new % (1 << 8 * f.size)).to_bytes(f.size, "little"))


def swap_fields(rng: random.Random, base: Base) -> bytes:
    """Two fields of one role and size change places."""
    role = rng.choice(sorted(r for r, found in base.fields.items() if len(found) > 1))
    a = rng.choice(base.fields[role])
    b = rng.choice([f for f in base.fields[role][:2000] if f.size == a.size] or [a])
    data = put(base.data, a.at, base.data[b.at : b.at + b.size])
    return put(data, b.at, base.data[a.at : a.at + a.size])


def text_noise(rng: random.Random, base: Base) -> bytes:
    """A byte of a key, a name, a token or a text changes."""
    role = rng.choice([r for r in ("key", "tensor name", "text", "element", "elements") if r in base.fields])
    f = rng.choice(base.fields[role])
    return put(base.data, f.at + rng.randrange(f.size), bytes([rng.getrandbits(8)]))


def header_noise(rng: random.Random, base: Base) -> bytes:
    """One to eight bits of the header flip."""
    data = bytearray(base.data)
    for _ in range(rng.randint(1, 8)):
        data[rng.randrange(base.header_end)] ^= 1 << rng.randrange(8)
    return bytes(data)


def weight_noise(rng: random.Random, base: Base) -> bytes:
    """A few bytes of the tensors' data change (of the header, where no data are stored)."""
    low = base.header_end if base.header_end < len(base.data) else 0
    data = bytearray(base.data)
    for _ in range(rng.randint(1, 32)):
        data[rng.randrange(low, len(data))] = rng.getrandbits(8)
    return bytes(data)


def cut(rng: random.Random, base: Base) -> bytes:
    """The file ends early: in the header, at a field's edge or a byte before, or in the data."""
    f = pick(rng, base)
    ends = [f.at, f.at + f.size, f.at + f.size - 1, rng.randrange(base.header_end)]
    ends += [rng.randrange(len(base.data)), len(base.data) - 1]
    return base.data[: rng.choice(ends)]


def splice(rng: random.Random, base: Base) -> bytes:
    """Bytes are inserted into, or removed from, the header."""
    at, size = rng.randrange(base.header_end), rng.choice([1, 4, 8, 32])
    if rng.random() < 0.5:
        return base.data[:at] + rng.randbytes(size) + base.data[at:]
    return base.data[:at] + base.data[at + size :]


def counted(data: bytes, tensors: int, keys: int) -> bytes:
    """The header's counts moved by so much."""
    old = struct.unpack_from("<QQ", data, 8)
    return put(data, 8, struct.pack("<QQ", old[0] + tensors, old[1] + keys))


def whole_entries(rng: random.Random, base: Base) -> bytes:
    """A key or a tensor is removed, doubled or moved; counts and alignment follow, so that the
    file stays well-formed and the loader behind the reader has to judge it."""
    is_key = rng.random() < 0.6
    entries = base.keys if is_key else base.tensors
    (a, b), (c, d) = rng.choice(entries), rng.choice(entries)
    chunk = base.data[a:b]
    match rng.randrange(3):
        case 0:
            head, delta = base.data[:a] + base.data[b : base.header_end], -1
        case 1:
            head, delta = base.data[:c] + chunk + base.data[c : base.header_end], 1
        case _:
            head, delta = replaced(base, (a, b), (c, d)), 0
    head = counted(head, 0 if is_key else delta, delta if is_key else 0)
    start = -(-base.header_end // 32) * 32
    return head.ljust(-(-len(head) // 32) * 32, b"\0") + base.data[start:]


def replaced(base: Base, a: tuple[int, int], b: tuple[int, int]) -> bytes:
    """The header with two entries exchanged."""
    (a, b) = sorted([a, b])
    data, end = base.data, base.header_end
    if a == b:
        return data[:end]
    return data[: a[0]] + data[b[0] : b[1]] + data[a[1] : b[0]] + data[a[0] : a[1]] + data[b[1] : end]


MUTATIONS: tuple[tuple[Callable[[random.Random, Base], bytes], int], ...] = (
    (lie, 27), (wrap, 3), (small_lie, 15), (swap_fields, 6), (text_noise, 10), (header_noise, 8),
    (weight_noise, 12), (cut, 6), (splice, 6), (whole_entries, 7),
)  # fmt: skip


# ---- Bases and mutants ----------------------------------------------------------------------


def tiny_bases() -> list[Base]:
    """Tiny models, whole."""
    return [mapped(Base(name, data, len(data), True)) for name in TINY for data in [tiny.build_bytes(name)]]


def real_base(path: Path) -> Base:
    """A real model's header; its weights are a hole, so it is loaded, but no token is run."""
    with path.open("rb") as handle:
        data = handle.read(16 << 20)
    base = mapped(Base(path.name, data, path.stat().st_size, False))
    base.data = data[: base.header_end]
    return base


def mapped(base: Base) -> Base:
    Mapper(base)
    return base


@dataclass(frozen=True)
class Mutant:
    """What is fed to the driver."""

    number: int
    title: str
    data: bytes
    size: int
    run: bool

    def frame(self) -> bytes:
        """As drive.c reads it."""
        return struct.pack("<4Q", self.size, len(self.data), self.number, self.run) + self.data


@dataclass
class Campaign:
    """The bases, and how many mutants of them to make."""

    seed: int
    bases: list[Base]
    real: Base | None

    def base(self, number: int) -> Base:
        """Every fifth mutant is one of the real header, where there is one."""
        if self.real is not None and number % 5 == 4:
            return self.real
        return self.bases[number % len(self.bases)]

    def mutant(self, number: int) -> Mutant:
        """Mutant ``number``, always the same for a seed."""
        base, rng = self.base(number), random.Random(f"{self.seed}:{number}")
        functions, weights = zip(*MUTATIONS, strict=True)
        mutate = rng.choices(functions, weights)[0]
        data = mutate(rng, base)
        size = len(data) if base.run or mutate is cut else max(base.size, len(data))
        return Mutant(number, f"{base.name}: {mutate.__name__}", data, size, base.run)

    def controls(self) -> list[Mutant]:
        """The bases as they are, under all nine options of drive.c."""
        bases = self.bases + ([self.real] if self.real else [])
        return [
            Mutant(i, f"{b.name}: control", b.data, b.size, b.run)
            for b in bases
            for i in range(9 if b.run else 1)
        ]


# ---- Driving ------------------------------------------------------------------------------------


@dataclass
class Tally:
    """What came of some mutants."""

    outcomes: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    findings: list[tuple[Mutant, str]] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Take in another's."""
        self.outcomes += other.outcomes
        self.refusals += other.refusals
        self.findings += other.findings

    def judge(self, mutant: Mutant, answer: str) -> None:
        """Count one answer of the driver."""
        if answer in ("ok", "loaded"):
            self.outcomes[answer] += 1
            return
        stage, status, text = [*answer.split(" ", 2), "", "", ""][:3]
        self.outcomes[f"refused ({stage})"] += 1
        self.refusals[f"{stage} {status}: {shape(text)}"] += 1
        if not re.search(r"\w{3}", text):
            self.findings.append((mutant, f"refused without a text: {answer!r}"))
        if status == str(ENOMEM):
            self.findings.append((mutant, f"asked for absurd memory: {answer!r}"))


@cache
def shape(text: str) -> str:
    """A text without its particulars: one line of the histogram."""
    text = re.sub(r'"(?:[^"\\]|\\.)*"', '"…"', text)
    text = re.sub(r"(?<![\w<-])-?\d+(\.\d+)?(e[+-]?\d+)?\b", "N", text)
    return re.sub(r"(N, )+N", "N, …", text)[:150]


class Driver:
    """One process of drive.c; started again after each death."""

    def __init__(self, binary: Path) -> None:
        self.binary = binary
        self.log = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [self.binary],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            env=os.environ | SANITIZERS,
        )

    def ask(self, mutant: Mutant) -> str:
        """The driver's line for a mutant, or "" where it died or hung."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(mutant.frame())
            stdin.flush()
        except BrokenPipeError:
            return ""
        if not select.select([stdout], [], [], SECONDS)[0]:
            self.process.kill()
            return ""
        return stdout.readline().decode("utf-8", "backslashreplace").rstrip("\n")

    def obituary(self) -> str:
        """Why the process is gone (with what it printed); a new one stands ready."""
        text = f"exit {self.close()}\n{self.report()}"
        self.log.seek(0)
        self.log.truncate()
        self.process = self._start()
        return text

    def report(self) -> str:
        """What the process wrote to standard error."""
        self.log.seek(0)
        return self.log.read().decode(errors="replace")[:6000]

    def close(self) -> int:
        """End of input: leaks are reported now, with an exit code other than 0."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        return self.process.wait(SECONDS)


def drive(binary: Path, mutants: Iterable[Mutant]) -> Tally:
    """Feed mutants to one driver; each death costs one process."""
    tally, driver, alive = Tally(), Driver(binary), []
    for mutant in mutants:
        answer = driver.ask(mutant)
        alive.append(mutant)
        if answer:
            tally.judge(mutant, answer)
        else:
            tally.outcomes["died"] += 1
            tally.findings.append((mutant, "died or hung: " + driver.obituary()))
            alive = []
    if driver.close() != 0 and alive:
        tally.findings.append(leaker(binary, alive, driver.report()))
    driver.log.close()
    return tally


def leaker(binary: Path, suspects: list[Mutant], report: str) -> tuple[Mutant, str]:
    """The mutant after which a process that answered everything ended badly, by halving: that is
    how the sanitizer tells of a leak."""
    while len(suspects) > 1:
        half = suspects[: len(suspects) // 2]
        driver = Driver(binary)
        for mutant in half:
            driver.ask(mutant)
        if driver.close() != 0:
            suspects, report = half, driver.report()
        else:
            suspects = suspects[len(half) :]
        driver.log.close()
    return suspects[0], f"bad end of the process: {report}"


def run_campaign(binary: Path, campaign: Campaign, numbers: list[int], jobs: int) -> Tally:
    """Controls first: they must all pass. Then the mutants, over some processes."""
    controls = drive(binary, campaign.controls())
    expected = {"ok": 9 * len(campaign.bases), "loaded": 1 if campaign.real else 0}
    if controls.findings or controls.outcomes != Counter(expected):
        print(
            f"mutate_gguf: controls must load: {dict(controls.outcomes)} {controls.refusals}", file=sys.stderr
        )
        controls.findings += [(campaign.controls()[0], "a control did not pass")]
        return controls
    total = Tally()
    with ThreadPoolExecutor(jobs) as pool:
        shares = [numbers[i::jobs] for i in range(jobs)]
        for tally in pool.map(lambda share: drive(binary, map(campaign.mutant, share)), shares):
            total.add(tally)
    return total


def report(tally: Tally, campaign: Campaign, count: int, ratio: float) -> int:
    """Print the counts, the histogram and the findings; the exit code."""
    names = ", ".join(b.name for b in campaign.bases)
    real = campaign.real.name if campaign.real else "none found (GAUGEBLOCK_MODELS)"
    print(f"mutate_gguf: seed {campaign.seed}: {count} mutants of {names}")
    print(f"mutate_gguf: real header: {real}")
    for name, found in sorted(tally.outcomes.items()):
        print(f"  {found:6d}  {name}")
    print("mutate_gguf: refusals by text:")
    for text, found in tally.refusals.most_common():
        print(f"  {found:6d}  {text}")
    for mutant, what in tally.findings[:20]:
        folder = ROOT / "out" / "mutants"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{campaign.seed}-{mutant.number}.gguf"
        path.write_bytes(mutant.data)
        print(f"FINDING: mutant {mutant.number} ({mutant.title}), kept as {path}: {what}", file=sys.stderr)
    ran = tally.outcomes["ok"] / max(count, 1)
    print(f"mutate_gguf: {len(tally.findings)} findings; {ran:.1%} ran a token, {ratio:.0%} are asked for")
    return 1 if tally.findings or ran < ratio else 0


def find_real() -> Path | None:
    """SmolLM2, where GAUGEBLOCK_MODELS or models/ holds it."""
    for folder in (os.environ.get("GAUGEBLOCK_MODELS"), str(ROOT / "models")):
        if folder and (Path(folder) / REAL).is_file():
            return Path(folder) / REAL
    if os.environ.get("REQUIRE_MODELS") == "1":
        raise SystemExit(f"mutate_gguf: {REAL} is absent: set GAUGEBLOCK_MODELS, or run make models")
    return None


def main() -> int:
    """Build the driver, run the campaign, report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="run this mutant alone")
    parser.add_argument("--real", type=Path, help="a real GGUF whose header every fifth mutant is made of")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--compiler", default=os.environ.get("CC", "cc"))
    parser.add_argument("--accept-ratio", type=float, default=0.05)
    options = parser.parse_args()
    real = options.real or find_real()
    campaign = Campaign(options.seed, tiny_bases(), real_base(real) if real else None)
    numbers = list(range(options.count)) if options.only is None else [options.only]
    with tempfile.TemporaryDirectory() as folder:
        objects = native.engine_objects(options.compiler, FLAGS, Path(folder))
        source = ROOT / "tests" / "fuzz" / "drive.c"
        binary = native.program(options.compiler, FLAGS, source, objects, Path(folder) / "drive")
        tally = run_campaign(binary, campaign, numbers, options.jobs)
    return report(tally, campaign, len(numbers), options.accept_ratio if options.only is None else 0.0)


if __name__ == "__main__":
    sys.exit(main())
