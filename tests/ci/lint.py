"""Every static check of the project: ``make lint``.

ruff, mypy --strict, strict warnings of each C compiler that is installed, and generated files
that must equal what their generators write now. All of them run; the exit code is 1 if any fails.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "engine" / "src"
CONSTRAIN = ROOT / "engine" / "constrain"
STRICT = [
    "-std=c11",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wshadow",
    "-Wstrict-prototypes",
    "-Wvla",
    "-ffp-contract=off",
]

# Generated file -> command that writes it to standard output or to a path given as last argument.
GENERATED = {
    "engine/_engine.c": [sys.executable, "engine/build.py"],
}
CURRENT = {
    "docs/reasons.md": [sys.executable, "-m", "certify.reasons"],
}


def run(title: str, command: list[str]) -> bool:
    """Run one command from the root; say what failed."""
    print(f"lint: {title}", flush=True)
    done = subprocess.run(command, cwd=ROOT, check=False)
    if done.returncode != 0:
        print(f"lint: FAILED: {title}: {' '.join(command)}", file=sys.stderr, flush=True)
    return done.returncode == 0


def compilers() -> list[str]:
    """The C compilers to check with; gcc or cc at least, clang where it is installed."""
    found = [name for name in ("gcc", "clang") if shutil.which(name)]
    if "clang" not in found:
        print("lint: skipped: clang is not installed (apt-get install clang)")
    return found or ["cc"]


def strict_c() -> bool:
    """Compile every C file of the engine and of its tests with warnings as errors."""
    sources = [*sorted(SOURCES.glob("*.c")), *sorted(CONSTRAIN.glob("*.c"))]
    files = [*sources, *sorted((ROOT / "tests").rglob("*.c"))]
    good = True
    for compiler in compilers():
        command = [compiler, *STRICT, f"-I{SOURCES}", f"-I{CONSTRAIN}", "-fsyntax-only", *map(str, files)]
        good &= run(f"{compiler} {' '.join(STRICT)}", command)
    return good


def generated() -> bool:
    """Generated files equal what their generator writes now."""
    good = True
    with tempfile.TemporaryDirectory() as scratch:
        for name, command in GENERATED.items():
            fresh = Path(scratch) / "fresh"
            good &= run(f"generate {name}", [*command, str(fresh)])
            good &= same(name, fresh.read_bytes())
    for name, command in CURRENT.items():
        done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE)
        good &= same(name, done.stdout)
    return good


def same(name: str, fresh: bytes) -> bool:
    """Compare a committed file with fresh content."""
    if (ROOT / name).read_bytes() == fresh:
        return True
    print(f"lint: FAILED: {name} is not current: regenerate it", file=sys.stderr)
    return False


def main() -> int:
    """Run all checks; 1 where any failed."""
    good = run("ruff check", [sys.executable, "-m", "ruff", "check", "."])
    good &= run("ruff format --check", [sys.executable, "-m", "ruff", "format", "--check", "."])
    good &= run("mypy --strict", [sys.executable, "-m", "mypy"])
    good &= strict_c()
    good &= generated()
    print("lint: " + ("all clean" if good else "FAILED"))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
