"""Run every libFuzzer target for a while: ``make fuzz``.

Needs clang with its sanitizer runtime; says ``skipped`` and exits 0 without it. A finding is
written to ``out/fuzz`` and fails the run.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import native

# What the targets reach: the readers of bytes, not the arithmetic.
READERS = (
    "status",
    "dtype",
    "gguf",
    "gguf_access",
    "vocab",
    "vocab_marks",
    "tokenizer",
    "pretokenize",
    "merge",
    "bpe",
    "spm",
)
FLAGS = ["-O1", "-fsanitize=fuzzer-no-link,address,undefined", "-fno-sanitize-recover=all"]
LINK = ["-O1", "-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all"]


def main() -> int:
    """Build all targets, run each for --seconds from its seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", default="60")
    options = parser.parse_args()
    if shutil.which("clang") is None:
        print("fuzz: skipped: clang is not installed (apt-get install clang libclang-rt-14-dev)")
        return 0
    findings = native.ROOT / "out" / "fuzz"
    findings.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        files = [native.SOURCES / f"{name}.c" for name in READERS] + sorted(native.CONSTRAIN.glob("*.c"))
        objects = native.compile_all("clang", FLAGS, files, scratch / "objects")
        models = scratch / "models"
        subprocess.run([sys.executable, "-m", "fixtures.tiny", str(models)], cwd=native.ROOT, check=True)
        for target in sorted((native.ROOT / "tests" / "fuzz").glob("fuzz_*.c")):
            binary = native.program("clang", LINK, target, objects, scratch / target.stem)
            fuzz(binary, models, scratch, findings, options.seconds)
    return 0


def fuzz(binary: Path, models: Path, scratch: Path, findings: Path, seconds: str) -> None:
    """Run one target; its corpus starts from its own seeds, else from the tiny models."""
    corpus = scratch / f"corpus-{binary.name}"
    corpus.mkdir()
    seeds = native.ROOT / "tests" / "fuzz" / "seeds" / binary.name
    command = [
        str(binary), f"-max_total_time={seconds}", "-timeout=60", "-rss_limit_mb=2048",
        "-print_final_stats=1", "-max_len=65536", f"-artifact_prefix={findings}/", str(corpus),
        str(seeds if seeds.is_dir() else models),
    ]  # fmt: skip
    print("fuzz:", binary.name, flush=True)
    subprocess.run(command, env=os.environ | {"GAUGEBLOCK_FUZZ_MODELS": str(models)}, check=True)


if __name__ == "__main__":
    native.leave(main)
