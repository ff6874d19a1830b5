"""Write the golden digests: ``python -m tests.golden.record`` (tiny models) or ``… record --real DIR``.

Run it only when the arithmetic has changed on purpose, together with a new contract revision
(``engine_numerics``); the files are data that tests compare with, never a way to make them pass.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from engine._engine import ffi, lib

from fixtures import tiny
from tests.engine.evaluation import Core, digest, opened
from tests.engine.test_forward_oracle import REAL, prompt

HERE = Path(__file__).resolve().parent
TINY, REAL_FILE = HERE / "tiny.json", HERE / "real.json"
POSITIONS = 140  # beyond one attention chunk and every small window
MODES = (("wide", "f16"), ("wide", "f32"), ("wide", "q8"), ("int8", "f16"), ("int8", "q8"), ("f32", "f32"))


def modes(head_dim: int) -> list[tuple[str, str]]:
    """The modes that a model can run: q8 KV needs heads of whole blocks of 32."""
    return [(a, kv) for a, kv in MODES if kv != "q8" or head_dim % 32 == 0]


def digests(core: Core, head_dim: int, positions: int) -> dict[str, str]:
    """``gblogits/1`` by mode (``wide/f16``)."""
    ids = prompt(core.vocab, positions)
    found = {}
    for activations, kv in modes(head_dim):
        rows = core.logits(ids, activations=activations, kv=kv, threads=2)
        found[f"{activations}/{kv}"] = digest(rows, activations, kv)
    return found


def record_tiny() -> dict[str, Any]:
    """Digests of every tiny model, with the hash of its file."""
    models: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, model in tiny.MODELS.items():
            path = tiny.build(name, Path(folder) / f"{name}.gguf")
            with opened(path) as core:
                models[name] = {
                    "file_sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
                    "digests": digests(core, model.head_dim, POSITIONS),
                }
    return models


def record_real(folder: Path) -> dict[str, Any]:
    """Digests of the real models, 64 positions each."""
    models: dict[str, Any] = {}
    for name in REAL:
        with opened(folder / name) as core:
            sha256 = hashlib.sha256((folder / name).read_bytes()).hexdigest()
            models[name] = {"file_sha256": sha256, "digests": digests(core, 32, 64)}
    return models


def main(argv: list[str] | None = None) -> int:
    """Write one of the two files."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden.record")
    parser.add_argument("--real", type=Path, metavar="DIR", help="record the real models of this folder")
    options = parser.parse_args(argv)
    target = REAL_FILE if options.real else TINY
    models = record_real(options.real) if options.real else record_tiny()
    text = {"numerics": ffi.string(lib.engine_numerics()).decode(), "models": models}
    target.write_text(json.dumps(text, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
