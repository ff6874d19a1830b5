"""Compile the C core into the cffi extension module ``engine._engine`` (API mode, abi3).

``python engine/build.py`` writes ``engine/_engine.c`` from ``engine/src/engine.h``; setuptools
compiles it (``[tool.setuptools.ext-modules]`` in pyproject.toml). The generated file is
committed, and ``make lint`` fails when it differs from a fresh one.
"""

from __future__ import annotations

import sys
from pathlib import Path

from cffi import FFI

HERE = Path(__file__).resolve().parent
HEADER = HERE / "src" / "engine.h"
GENERATED = HERE / "_engine.c"


def declarations() -> str:
    """Return the public header without its preprocessor lines."""
    lines = HEADER.read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if not line.startswith("#"))


def generate(target: Path = GENERATED) -> None:
    """Write the C source of the extension module to ``target``."""
    ffi = FFI()
    ffi.cdef(declarations())
    ffi.set_source("engine._engine", '#include "engine.h"', py_limited_api=True)
    ffi.emit_c_code(str(target))


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else GENERATED)
