"""The C core's internal functions, for tests: a few sources compiled into a library of their own.

``engine._engine`` exports the public interface only, so what ``dtype.h`` and ``gguf.h`` declare
is reached through this. Needs a C compiler (``$CC``, else ``cc``), as building the engine does.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from cffi import FFI

from engine import build

SRC = Path(build.__file__).parent / "src"
SOURCES = ("status.c", "dtype.c", "gguf.c", "gguf_access.c")
FLAGS = ("-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", "-shared", "-fPIC")


def _without_preprocessor(name: str) -> str:
    lines = (SRC / name).read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if not line.startswith("#"))


@cache
def load() -> tuple[Any, Any]:
    """``(ffi, lib)`` with everything that engine.h, dtype.h and gguf.h declare and SOURCES define."""
    ffi = FFI()
    ffi.cdef(build.declarations())
    ffi.cdef(_without_preprocessor("dtype.h"))
    ffi.cdef(_without_preprocessor("gguf.h"))
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "core.so"
        compiler = os.environ.get("CC", "cc").split()
        command = [*compiler, *FLAGS, "-o", str(target), *(str(SRC / name) for name in SOURCES), "-lm"]
        subprocess.run(command, check=True)
        return ffi, ffi.dlopen(str(target))
