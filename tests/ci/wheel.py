"""Build the sdist, the wheel from the sdist, and run it outside the checkout: ``make wheel``.

What passed lies in ``dist/`` afterwards.

Shows that the sdist carries the C sources and the schemas, that the wheel is abi3, and that an
installed wheel opens a generated model and prints its version without the checkout.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NEEDED_IN_SDIST = [
    "engine/src/engine.h",
    "engine/src/gguf.c",
    "engine/_engine.c",
    "certify/schemas/manifest.json",
]
NEEDED_IN_WHEEL = ["engine/__init__.py", "engine/py.typed", "certify/schemas/envelope.json"]


def only(folder: Path, pattern: str) -> Path:
    """The one file of a folder that matches."""
    [found] = folder.glob(pattern)
    return found


def call(*command: str | Path, cwd: Path) -> str:
    """Run a command; its output, or its failure, is shown."""
    print("$", *command, flush=True)
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [str(c) for c in command], cwd=cwd, env=env, check=True, stdout=subprocess.PIPE, text=True
    )
    print(done.stdout, flush=True)
    return done.stdout


def build(scratch: Path) -> Path:
    """Build sdist and wheel into ``scratch``; check their contents; the wheel's path."""
    call(sys.executable, "-m", "build", "--sdist", "--outdir", scratch, ROOT, cwd=scratch)
    sdist = only(scratch, "*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[-1] for name in archive.getnames()}
    missing = [name for name in NEEDED_IN_SDIST if name not in names]
    call(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        scratch,
        sdist,
        cwd=scratch,
    )
    wheel = only(scratch, "*.whl")
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
    missing += [name for name in NEEDED_IN_WHEEL if name not in inside]
    if missing or "-abi3-" not in wheel.name:
        raise SystemExit(f"wheel: {wheel.name}: missing {missing}, or not abi3")
    return wheel


def keep(*products: Path) -> None:
    """Copy what passed into ``dist/``, in place of what was there."""
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    dist.mkdir()
    for product in products:
        shutil.copy2(product, dist)
        print(f"dist/{product.name}")


def main() -> int:
    """Build, install into a new environment, run outside the checkout."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        wheel = build(scratch)
        venv.create(scratch / "venv", with_pip=True)
        python = scratch / "venv" / "bin" / "python"
        call(python, "-m", "pip", "install", "--quiet", wheel, cwd=scratch)
        model = scratch / "tiny.gguf"
        call(
            sys.executable,
            "-c",
            f"import sys; sys.path.insert(0, {str(ROOT)!r}); "
            f"from fixtures import tiny; tiny.build('llama-f32', {str(model)!r})",
            cwd=scratch,
        )
        call(python.parent / "gaugeblock", "--version", cwd=scratch)
        call(python.parent / "certify", "schema", "envelope", cwd=scratch)
        call(
            python.parent / "gaugeblock",
            "run",
            "-m",
            model,
            "-p",
            "hello",
            "-n",
            "4",
            "--temp",
            "0",
            cwd=scratch,
        )
        keep(only(scratch, "*.tar.gz"), wheel)
    print("wheel: installs and runs outside the checkout")
    return 0


if __name__ == "__main__":
    sys.exit(main())
