"""The same bits whatever the process does: rounding modes set by others, forced kernel sets."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# A child process evaluates a model after its control word was spoiled, as a library that was
# built with -ffast-math does when it is loaded, and prints digest and control word.
CHILD = """
import ctypes, sys
from engine.digest import logits_digest
from engine.model import Model, RuntimeConfig
libm = ctypes.CDLL(None) if sys.argv[2] == "0" else ctypes.CDLL("libm.so.6")
libm.fesetround.argtypes = [ctypes.c_int]
with Model.open(sys.argv[1], config=RuntimeConfig(context_tokens=200)) as model:
    with model.session(threads=2, batch=16) as session:
        assert libm.fesetround(int(sys.argv[2])) == 0
        rows = session.eval([(i * 37) % 256 for i in range(150)], want="all")
        assert libm.fegetround() == int(sys.argv[2])
        libm.fesetround(0)
print(logits_digest(rows, activations="wide", kv="f16"))
"""


def child(model: Path, rounding: int, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run CHILD with a rounding mode of <fenv.h>."""
    return subprocess.run(
        [sys.executable, "-c", CHILD, str(model), str(rounding)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | environment,
    )


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="uses the x86-64 numbers of <fenv.h>"
)
@pytest.mark.parametrize("rounding", [0x400, 0x800, 0xC00], ids=["down", "up", "to zero"])
def test_a_rounding_mode_of_the_process_changes_nothing(
    rounding: int, tiny_model: Callable[[str], Path]
) -> None:
    path = tiny_model("gemma3-q4_k_m")
    usual, spoiled = child(path, 0), child(path, rounding)
    assert usual.returncode == 0, usual.stderr
    assert (spoiled.stdout, spoiled.returncode) == (usual.stdout, 0), spoiled.stderr


@pytest.mark.parametrize("name", ["llama-q4_k_m", "qwen3-q8_0"])
def test_the_portable_kernels_give_the_same_digest(name: str, tiny_model: Callable[[str], Path]) -> None:
    path = tiny_model(name)
    usual, portable = child(path, 0), child(path, 0, ENGINE_KERNELS="ref")
    assert usual.returncode == 0, usual.stderr
    assert (portable.stdout, portable.returncode) == (usual.stdout, 0), portable.stderr


def test_an_unknown_kernel_set_is_refused_by_name(tiny_model: Callable[[str], Path]) -> None:
    done = child(tiny_model("llama-f32"), 0, ENGINE_KERNELS="fastest")
    assert done.returncode != 0
    assert "ENGINE_KERNELS" in done.stderr
