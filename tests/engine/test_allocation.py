"""Out of memory: every allocation of the C core fails once, under AddressSanitizer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.ci import native

ROOT = Path(__file__).resolve().parents[2]
WRAPPED = ("malloc", "calloc", "posix_memalign", "pthread_create")
FLAGS = ["-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-Wno-error"]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
@pytest.mark.skipif(sys.platform != "linux", reason="the linker's --wrap is used")
def test_every_failing_allocation_is_survived(tiny_model: Callable[[str], Path], tmp_path: Path) -> None:
    wrap = [f"-Wl,--wrap={name}" for name in WRAPPED]
    objects = native.engine_objects("gcc", FLAGS, tmp_path / "objects")
    main = ROOT / "tests" / "c" / "allocation.c"
    program = native.program("gcc", [*FLAGS, *wrap], main, objects, tmp_path / "allocation")
    models = [tiny_model(name) for name in ("qwen2-q4_k_m", "gemma3-q8_0", "llama-odd")]
    done = subprocess.run(
        [str(program), *(m.stem for m in models)],
        cwd=models[0].parent,
        env=os.environ | {"ASAN_OPTIONS": "detect_leaks=1:allocator_may_return_null=1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("allocations failed in turn") == len(models)
