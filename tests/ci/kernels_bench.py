"""Build ``gbbench`` with the wheel's optimisation and run it: ``make bench-kernels ARGS='-t 1'``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.ci import native

FOLDER = native.ROOT / "build" / "bench"


def main() -> int:
    """Compile everything anew (half a minute), then hand the arguments on."""
    compiler = os.environ.get("CC", "cc")
    objects = native.engine_objects(compiler, ["-O3"], FOLDER)
    program = native.program(compiler, ["-O3"], native.SOURCES / "gbbench.c", objects, FOLDER / "gbbench")
    return subprocess.run([str(program), *sys.argv[1:]], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
