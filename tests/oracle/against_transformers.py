"""Check ``float64_forward`` against Hugging Face transformers on the same GGUF files.

Run by hand where torch and transformers are installed (they are no dependency of the project)::

    python -m tests.oracle.against_transformers MODEL.gguf [...]

transformers computes norms and rotations in float32 whatever the dtype, which is where the
differences that remain come from. It exits 1 if a logit differs by more than 1e-3 or a mean KL
divergence passes 1e-8 nats.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch

from tests.oracle import float64_forward, hf
from tests.oracle.float64_forward import File, log_softmax

TOKENS = 200  # beyond every window and one attention chunk


def main(paths: list[str]) -> int:
    """Compare each model; returns the exit code."""
    bad = 0
    for path in map(Path, paths):
        size = min(File(path).row_count("token_embd.weight"), 30000)
        ids = [int(i) for i in np.random.default_rng(7).integers(0, size, TOKENS)]
        theirs = hf.logits(hf.load(path, torch.float64), ids)
        ours = float64_forward.logits(path, ids)
        delta = float(np.abs(ours - theirs).max())
        p, q = log_softmax(theirs), log_softmax(ours)
        kld = float((np.exp(p) * (p - q)).sum(axis=-1).mean())
        flips = int((ours.argmax(-1) != theirs.argmax(-1)).sum())
        print(f"{path.stem}: max |delta logit| {delta:.2e}, mean KLD {kld:.2e} nats, flips {flips}")
        bad += not (delta <= 1e-3 and kld <= 1e-8)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
