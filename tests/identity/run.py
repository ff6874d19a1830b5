"""One digest for every build and every way of running: ``make identity``.

Builds ``gbdigest`` with each compiler at -O1 and -O3 in a scratch folder, runs all tiny models and
the real ones that are present over threads, batches, continuation, other sequences, a hostile
control word, weights repacked or not and every kernel set that runs here, and compares
``gblogits/1`` digests with each other and with those of ``tests/golden``. The known answers of
``chain.c`` and a tiny model also run on an AArch64 cross-build under qemu-user. What cannot run here
is listed as skipped, with its reason.
``--quick`` leaves the real models out.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "ci")]

import native  # noqa: E402

from fixtures import tiny  # noqa: E402

GOLDEN = ROOT / "tests" / "golden"
POSITIONS = {"tiny": 140, "real": 64}  # as tests/golden/record.py
CROSS = "aarch64-linux-gnu-gcc"
BUILDS = [(compiler, level) for compiler in ("gcc", "clang") for level in ("-O3", "-O1")]
EVERYTHING = "--threads 2 --batch 7 --split 5 --beside --hostile"
VARIANTS = [
    "--threads 2",
    "--threads 3",
    "--batch 1",
    "--batch 7",
    "--batch 64 --threads 2",
    "--split 1",
    "--split 50 --threads 3",
    "--beside",
    "--hostile",
    "--no-repack",
    "--no-repack " + EVERYTHING,
    EVERYTHING,
]
MAIN_MODES = [("wide", "f16"), ("int8", "f16")]
OTHER_MODES = [("f32", "f32"), ("wide", "q8"), ("int8", "f32")]
REFUSED_Q8 = "KV type q8 needs heads of a multiple of 32"


@dataclass
class Run:
    """What was compared so far: the golden or else the first digest of each case, and every difference."""

    digests: dict[str, str] = field(default_factory=dict)
    compared: int = 0
    failures: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)  # cases that the engine refuses, in every run alike

    def check(self, case: str, how: str, digest: str) -> None:
        """Compare with the digest of the case, or become it."""
        self.compared += 1
        if REFUSED_Q8 in digest:
            self.refused.add(case)
            return
        if case in self.refused or digest.startswith("exit "):
            self.failures.append(f"{case}: {how}: {digest}")
        first = self.digests.setdefault(case, digest)
        if digest != first:
            self.failures.append(f"{case}: {how}: {digest}, not {first}")
            print(f"identity: DIFFERS: {self.failures[-1]}", flush=True)


@dataclass(frozen=True)
class Subject:
    """A model and how many positions are asked of it."""

    name: str
    path: Path
    positions: int
    real: bool = False

    def arguments(self, mode: tuple[str, str]) -> list[str]:
        """gbdigest's arguments without a variant."""
        return [str(self.path), "--positions", str(self.positions), "--activations", mode[0], "--kv", mode[1]]


def digest(command: list[str], kernels: str | None = None) -> str:
    """Run gbdigest; its digest, or what went wrong in one line."""
    environment = os.environ | ({"ENGINE_KERNELS": kernels} if kernels else {})
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    return done.stdout.strip() if done.returncode == 0 else f"exit {done.returncode}: {done.stderr.strip()}"


def kernel_sets(program: list[str], subject: Subject) -> list[str]:
    """The sets that this machine (or emulator) runs, from the refusal of one that does not exist."""
    refusal = digest([*program, *subject.arguments(MAIN_MODES[0])], "none-such")
    _, found, names = refusal.partition("this machine runs: ")
    if not found:
        raise SystemExit(f"identity: an unknown kernel set is not refused by name: {refusal}")
    return names.split(", ")


def build(compiler: str, level: str, scratch: Path) -> Path:
    """gbdigest from one compiler at one level."""
    folder = scratch / f"{compiler}{level}"
    objects = native.engine_objects(compiler, [level], folder)
    return native.program(compiler, [level], native.SOURCES / "gbdigest.c", objects, folder / "gbdigest")


def golden(kind: str, run: Run) -> list[str]:
    """Names of the golden models of a kind; their digests become those to compare with."""
    models = json.loads((GOLDEN / f"{kind}.json").read_text(encoding="utf-8"))["models"]
    for name, entry in models.items():
        run.digests.update({f"{name} {mode}": digest for mode, digest in entry["digests"].items()})
    return list(models)


def subjects(scratch: Path, run: Run, quick: bool) -> Iterator[Subject]:
    """Every tiny model, and the real ones that are present."""
    for name in golden("tiny", run):
        yield Subject(name, tiny.build(name, scratch / f"{name}.gguf"), POSITIONS["tiny"])
    folder = Path(os.environ.get("GAUGEBLOCK_MODELS", ROOT / "models"))
    for name in golden("real", run):
        if quick:
            run.skipped.append(f"{name}: --quick")
        elif (folder / name).is_file():
            yield Subject(name, folder / name, POSITIONS["real"], real=True)
        else:
            run.skipped.append(f"{name}: not in {folder} (GAUGEBLOCK_MODELS)")


def run_subject(run: Run, program: Path, subject: Subject, thorough: bool, how: str, sets: list[str]) -> None:
    """All variants of one model in one build and every kernel set; few of them unless thorough."""
    for mode in MAIN_MODES + OTHER_MODES:
        if not thorough and subject.real and mode in OTHER_MODES:
            continue
        case = f"{subject.name} {mode[0]}/{mode[1]}"
        command = [str(program), *subject.arguments(mode)]
        run.check(case, f"{how} --threads 1", digest(command))
        for variant in VARIANTS if thorough and mode in MAIN_MODES else [EVERYTHING]:
            run.check(case, f"{how} {variant}", digest(command + variant.split()))
        for name in sets:
            if name != "ref" or not subject.real:
                run.check(case, f"{how} ENGINE_KERNELS={name}", digest(command + EVERYTHING.split(), name))


def run_cross(run: Run, scratch: Path, subject: Subject) -> None:
    """The known answers and one tiny model on AArch64."""
    emulator = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
    if shutil.which(CROSS) is None or emulator is None:
        run.skipped.append(f"AArch64: {CROSS} and qemu-aarch64 are not both installed")
        return
    folder, flags = scratch / "aarch64", ["-O3", "-static"]
    objects = native.engine_objects(CROSS, flags, folder)
    chain = native.program(CROSS, flags, ROOT / "tests" / "identity" / "chain.c", objects, folder / "chain")
    done = subprocess.run([emulator, str(chain)], capture_output=True, text=True)
    print(f"identity: known answers on AArch64: {'equal' if done.returncode == 0 else done.stdout}")
    if done.returncode != 0:
        run.failures.append("known answers differ on AArch64")
    program = native.program(CROSS, flags, native.SOURCES / "gbdigest.c", objects, folder / "gbdigest")
    for mode in MAIN_MODES + OTHER_MODES:
        command = [emulator, str(program), *subject.arguments(mode)]
        for name in kernel_sets([emulator, str(program)], subject):
            for variant in ("", EVERYTHING):
                how = f"aarch64 ENGINE_KERNELS={name} {variant or '--threads 1'}"
                run.check(f"{subject.name} {mode[0]}/{mode[1]}", how, digest(command + variant.split(), name))


def execute(run: Run, scratch: Path, quick: bool) -> None:
    """Every build, every subject."""
    found = list(subjects(scratch, run, quick))
    print(f"identity: {len(found)} models, {len(BUILDS)} builds; a line follows each build", flush=True)
    first = True
    for compiler, level in BUILDS:
        if shutil.which(compiler) is None:
            run.skipped.append(f"{compiler} {level}: {compiler} is not installed")
            continue
        program = build(compiler, level, scratch)
        sets = kernel_sets([str(program)], found[0])
        for subject in found:
            run_subject(run, program, subject, first, f"{compiler} {level}", sets)
        print(f"identity: {compiler} {level}: {run.compared} digests so far", flush=True)
        first = False
    run_cross(run, scratch, next(s for s in found if s.name == "gemma3-q4_k_m"))


def main() -> int:
    """0 where every digest agrees."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="tiny models only")
    options = parser.parse_args()
    run = Run()
    with tempfile.TemporaryDirectory() as scratch:
        execute(run, Path(scratch), options.quick)
    for reason in run.skipped:
        print(f"identity: skipped: {reason}")
    for failure in run.failures:
        print(f"identity: FAILED: {failure}")
    if not run.failures:
        cases = f"{len(run.digests)} cases with one digest each, {len(run.refused)} refused by name"
        print(f"identity: {run.compared} runs: {cases}")
    return 1 if run.failures else 0


if __name__ == "__main__":
    native.leave(main)
