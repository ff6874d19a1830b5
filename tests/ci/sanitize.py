"""The C core under AddressSanitizer and UndefinedBehaviorSanitizer: ``make sanitize``.

Every ``tests/c/test_*.c`` is a program that returns 0 and gets a folder of tiny models as its
argument; then the mutation campaign runs over a tiny model, and over SmolLM2's header where
``models/`` holds it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import native

FLAGS = [
    "-O1",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-fno-omit-frame-pointer",
]
ENVIRONMENT = {
    "ASAN_OPTIONS": "detect_leaks=1:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}


def unit_tests(compiler: str, scratch: Path) -> int:
    """Build and run the C unit tests; how many ran."""
    objects = native.engine_objects(compiler, FLAGS, scratch / "objects")
    models = scratch / "models"
    subprocess.run([sys.executable, "-m", "fixtures.tiny", str(models)], cwd=native.ROOT, check=True)
    tests = sorted((native.ROOT / "tests" / "c").glob("test_*.c"))
    for test in tests:
        binary = native.program(compiler, FLAGS, test, objects, scratch / test.stem)
        print(f"sanitize: {test.name}", flush=True)
        subprocess.run([str(binary), str(models)], env=os.environ | ENVIRONMENT, check=True)
    return len(tests)


def main() -> int:
    """Run the unit tests, then the mutation campaign."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compiler", default="gcc")
    parser.add_argument("--mutants", default="5000")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ran = unit_tests(options.compiler, Path(folder))
    if ran == 0:
        raise SystemExit("sanitize: no C test was found")
    campaign = native.ROOT / "tests" / "fuzz" / "mutate_gguf.py"
    subprocess.run([sys.executable, str(campaign), "--count", options.mutants], cwd=native.ROOT, check=True)
    print(f"sanitize: {ran} C programs and {options.mutants} mutants without a finding")
    return 0


if __name__ == "__main__":
    native.leave(main)
