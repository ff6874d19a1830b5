"""Name each missing prerequisite together with the command that installs it.

Runs on any Python 3 before anything is installed, so it uses the standard library only.
"""

import importlib.util
import os
import shutil
import sys
import sysconfig

APT = "sudo apt-get install "


def missing():
    """Yield (what, command) for everything that the build needs and does not find."""
    if sys.platform == "win32":
        yield "Windows is not supported: use Linux, macOS or WSL", ""
        return
    if sys.version_info < (3, 11):
        found = ".".join(map(str, sys.version_info[:3]))
        yield (
            f"Python 3.11 or newer (found {found} at {sys.executable})",
            APT + "python3  # then: make PYTHON=…",
        )
    if importlib.util.find_spec("ensurepip") is None:
        yield "the Python module venv with ensurepip", APT + "python3-venv"
    header = os.path.join(sysconfig.get_paths()["include"], "Python.h")
    if not os.path.exists(header):
        yield f"the Python headers ({header})", APT + "python3-dev"
    compiler = os.environ.get("CC", "cc").split()[0]
    if shutil.which(compiler) is None:
        yield f"a C compiler ({compiler})", APT + "gcc libc6-dev"


def main():
    """Print what is missing; exit 1 where anything is."""
    problems = list(missing())
    for what, command in problems:
        print(f"missing: {what}" + (f"\n    install it with: {command}" if command else ""), file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
