"""Compile C programs of the test suite together with the engine's sources.

Used by ``make sanitize`` and ``make fuzz``; objects are built once a call into a scratch folder.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
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


class _Running:
    """Processes that several threads run and one may end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._ended = False

    def run(self, command: Sequence[str]) -> None:
        """As ``subprocess.run(command, check=True)``; CalledProcessError at once after ``end``."""
        with self._lock:
            if self._ended:
                raise subprocess.CalledProcessError(130, command)
            process = subprocess.Popen(command)
            self._processes.add(process)
        code = process.wait()
        with self._lock:
            self._processes.discard(process)
        if code != 0:
            raise subprocess.CalledProcessError(code, command)

    def end(self) -> None:
        """Kill what runs, and let nothing start."""
        with self._lock:
            self._ended = True
            for process in self._processes:
                process.kill()


def compile_all(compiler: str, flags: list[str], files: list[Path], out: Path) -> list[Path]:
    """Compile each file to an object in ``out``; the objects in the order of the files."""
    out.mkdir(parents=True, exist_ok=True)

    def one(file: Path) -> Path:
        target = out / (file.stem + ".o")
        # Sanitizers and unrolled tiles together take an optimiser minutes; -O0 checks the same.
        sanitized = any("sanitize" in flag for flag in flags)
        level = ["-O0"] if sanitized and file.name.startswith("matmul_") else []
        running.run([compiler, *BASE, *flags, *level, "-c", str(file), "-o", str(target)])
        return target

    running = _Running()
    with ThreadPoolExecutor() as pool:
        try:
            return list(pool.map(one, files))
        except BaseException:
            running.end()  # an interrupt reaches what runs now, not what a worker starts a moment later
            raise


def engine_objects(compiler: str, flags: list[str], out: Path) -> list[Path]:
    """Objects of the whole C core, programs excepted."""
    files = [f for f in sorted(SOURCES.glob("*.c")) if f.name not in PROGRAMS]
    return compile_all(compiler, flags, [*files, *sorted(CONSTRAIN.glob("*.c"))], out)


def program(compiler: str, flags: list[str], main: Path, objects: list[Path], target: Path) -> Path:
    """Compile and link one program against the objects of the core."""
    command = [compiler, *BASE, *flags, str(main), *map(str, objects), "-lm", "-lpthread", "-o", str(target)]
    subprocess.run(command, check=True)
    return target
