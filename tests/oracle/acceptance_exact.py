"""How far are we, and how far is llama.cpp, from exact arithmetic on the same file?

Run by hand; it takes minutes a model::

    python -m tests.oracle.acceptance_exact --torch-python VENV/bin/python MODEL.gguf [...]

The oracle is Hugging Face transformers in float64 weights and matrix products (norms and
rotations in float32, as it always does), run by another interpreter because torch is no
dependency of the project. The first 400 positions of ``fixtures/corpora/prose.txt`` are evaluated
in one go, and every figure is the mean over positions of KL(oracle || X) in nats over the whole
vocabulary.
Exits 1 where ``wide`` with f32 KV passes 1e-5, or ``int8`` with f16 KV passes 1.1 times
llama.cpp's figure.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt

HERE = Path(__file__).resolve().parent
PROSE = HERE.parents[1] / "fixtures" / "corpora" / "prose.txt"
POSITIONS = 400
WIDE_MAX = 1e-5
INT8_RATIO_MAX = 1.1
MODES = (("wide", "f32"), ("wide", "f16"), ("int8", "f32"), ("int8", "f16"))


def export_oracle(model: Path, ids: list[int], out: Path) -> None:
    """Write transformers' logits [n, vocab] as float32 (this half runs where torch is)."""
    import torch

    from tests.oracle import hf

    np.save(out, hf.logits(hf.load(model, torch.float64), ids).astype(np.float32))


def mean_kld(oracle: npt.NDArray[np.float32], rows: Iterable[npt.NDArray[np.float32]]) -> tuple[float, int]:
    """(mean KL(oracle || rows) in nats, positions whose best token differs), in float64."""
    total, flips, n = 0.0, 0, 0
    for expected, row in zip(oracle, rows, strict=True):
        p, q = (_log_softmax(r.astype(np.float64)) for r in (expected, row))
        total += float((np.exp(p) * (p - q)).sum())
        flips += int(p.argmax() != q.argmax())
        n += 1
    return total / n, flips


def _log_softmax(row: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    shifted = row - row.max()
    return shifted - np.log(np.exp(shifted).sum())


def compare(model: Path, torch_python: str, text: str, positions: int) -> dict[str, tuple[float, int]]:
    """All figures of one model, by name."""
    from certify.references import EvalOptions
    from certify.references.llama_cpp import LlamaCpp
    from tests.engine.evaluation import opened

    found: dict[str, tuple[float, int]] = {}
    with tempfile.TemporaryDirectory() as folder, LlamaCpp(model, threads=2) as reference:
        bos = [2] if "gemma" in model.name.lower() else []
        ids = (bos + reference.tokenize(text, special=False))[:positions]
        if len(ids) < positions:
            raise SystemExit(f"the text has {len(ids)} tokens, fewer than {positions}")
        out = Path(folder) / "oracle.npy"
        command = [torch_python, "-m", __spec__.name, "--export", str(out), str(model)]
        subprocess.run(command, input=json.dumps(ids), text=True, check=True, cwd=HERE.parents[1])
        oracle = np.load(out, mmap_mode="r")
        for name, options in {
            "llama.cpp (defaults, KV f16)": EvalOptions(batch=512),
            "llama.cpp (flash attention off, KV f16)": EvalOptions(batch=512, flash_attention=False),
        }.items():
            found[name] = mean_kld(oracle, (row for _, row in reference.rows(ids, None, options)))
        with opened(model) as core:
            for activations, kv in MODES:
                rows = core.logits(ids, activations=activations, kv=kv, threads=2)
                found[f"ours ({activations}, KV {kv})"] = mean_kld(oracle, rows)
    return found


def main(argv: list[str] | None = None) -> int:
    """Print the figures of each model; returns the exit code."""
    parser = argparse.ArgumentParser(prog=f"python -m {__spec__.name}")
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument(
        "--torch-python", default=sys.executable, help="an interpreter with torch, transformers"
    )
    parser.add_argument("--text", type=Path, default=PROSE)
    parser.add_argument("--positions", type=int, default=POSITIONS)
    parser.add_argument("--export", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.export:
        export_oracle(options.models[0], json.load(sys.stdin), options.export)
        return 0
    text, bad = options.text.read_text(encoding="utf-8"), 0
    for model in options.models:
        found = compare(model, options.torch_python, text, options.positions)
        print(f"{model.name}: {options.positions} positions, mean KL(oracle || X) in nats, flips")
        for name, (kld, flips) in found.items():
            print(f"  {name:42s} {kld:.3e}  {flips}")
        wide = found["ours (wide, KV f32)"][0]
        ratio = found["ours (int8, KV f16)"][0] / found["llama.cpp (defaults, KV f16)"][0]
        print(f"  int8 / llama.cpp = {ratio:.3f}")
        bad += not (wide <= WIDE_MAX and ratio <= INT8_RATIO_MAX)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
