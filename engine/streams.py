"""The standard streams of a command: none is missing, and none fails on a character.

A process may be started with a stream closed. Python then has None in its place, ``print`` sends what
is meant for standard error to standard output, and the next file that is opened gets its number.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path


def prepare() -> None:
    """Put an empty input and an unwritable output where streams are closed; escape what has no code."""
    for name, mode in (("stdin", "r"), ("stdout", "r"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def replaceable(path: Path) -> bool:
    """Whether a rename may put a file here: nothing is there, or a regular file (or a link to one)."""
    return path.is_file() or not path.exists()
