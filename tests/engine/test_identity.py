"""The same bits whatever the process does: golden digests, hostile control words, forced kernels."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.digest import logits_digest
from engine.model import Model, RuntimeConfig

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = json.loads((ROOT / "tests" / "golden" / "digests.json").read_text(encoding="utf-8"))
MODES = [("wide", "f16"), ("int8", "f16")]


def wandering_ids(vocab: int, n: int) -> list[int]:
    """The ids of tests/identity/run.py."""
    return [(i * i * 7919 + i * 104729 + 17) % vocab for i in range(n)]


@pytest.mark.models
@pytest.mark.parametrize(("activations", "kv"), MODES)
@pytest.mark.parametrize("name", GOLDEN)
def test_real_models_give_the_committed_digests(
    name: str, activations: str, kv: str, real_model: Callable[[str], Path]
) -> None:
    entry = GOLDEN[name]
    config = RuntimeConfig(activations=activations, kv=kv, context_tokens=entry["positions"])
    with Model.open(real_model(name), config=config) as model, model.session(threads=2, batch=33) as session:
        rows = session.eval(wandering_ids(entry["vocab"], entry["positions"]), want="all")
    assert logits_digest(rows, activations=activations, kv=kv) == entry["digests"][f"{activations}/{kv}"]


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
