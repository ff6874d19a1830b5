"""Compile C programs of the test suite together with the engine's sources.

Used by ``make sanitize`` and ``make fuzz``; objects are built once a call into a scratch folder.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "engine" / "src"
CONSTRAIN = ROOT / "engine" / "constrain"
PROGRAMS = {"gbdigest.c", "gbbench.c"}  # files with a main() of their own
BASE = [
    "-std=c11",
    "-g",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-fno-fast-math",
    "-ffp-contract=off",
    f"-I{SOURCES}",
    f"-I{CONSTRAIN}",
]


def leave(main: Callable[[], int]) -> NoReturn:
    """End the process with the result of ``main``; Ctrl-C is exit 130 without a trace."""
    try:
        code = main()
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


def compile_all(compiler: str, flags: list[str], files: list[Path], out: Path) -> list[Path]:
    """Compile each file to an object in ``out``; the objects in the order of the files."""
    out.mkdir(parents=True, exist_ok=True)

    def one(file: Path) -> Path:
        target = out / (file.stem + ".o")
        # Sanitizers and unrolled tiles together take an optimiser minutes; -O0 checks the same.
        sanitized = any("sanitize" in flag for flag in flags)
        level = ["-O0"] if sanitized and file.name.startswith("matmul_") else []
        command = [compiler, *BASE, *flags, *level, "-c", str(file), "-o", str(target)]
        subprocess.run(command, check=True)
        return target

    with ThreadPoolExecutor() as pool:
        return list(pool.map(one, files))


def engine_objects(compiler: str, flags: list[str], out: Path) -> list[Path]:
    """Objects of the whole C core, programs excepted."""
    files = [f for f in sorted(SOURCES.glob("*.c")) if f.name not in PROGRAMS]
    return compile_all(compiler, flags, [*files, *sorted(CONSTRAIN.glob("*.c"))], out)


def program(compiler: str, flags: list[str], main: Path, objects: list[Path], target: Path) -> Path:
    """Compile and link one program against the objects of the core."""
    command = [compiler, *BASE, *flags, str(main), *map(str, objects), "-lm", "-lpthread", "-o", str(target)]
    subprocess.run(command, check=True)
    return target
