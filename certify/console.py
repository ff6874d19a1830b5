"""Where words go: one JSON document or plain text on stdout, logs and errors on stderr.

Foreign text is escaped on the way out. ``NO_COLOR`` and a stdout that is no terminal mean no colour.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any, NoReturn

import click

from engine.text import printable

LOG_FORMATS = ("text", "json")
_COLOURS = {
    "pass": "green",
    "certified": "green",
    "fail": "red",
    "outside-envelope": "red",
    "error": "red",
    "waived": "yellow",
    "skip": "yellow",
    "experimental": "yellow",
}


def log_format() -> str:
    """The format that the command line chose for stderr."""
    context = click.get_current_context(silent=True)
    root = context.find_root() if context is not None else None
    return str(root.params.get("log_format", "text")) if root is not None else "text"


def log(message: str, *, level: str = "info", **fields: Any) -> None:
    """Write one line on stderr; as JSON where ``--log-format json`` was given."""
    if log_format() == "json":
        print(json.dumps({"level": level, "message": message, **fields}), file=sys.stderr, flush=True)
    else:
        head = "" if level == "info" else f"certify: {level}: "
        print(head + printable(message, None), file=sys.stderr, flush=True)


def fail(message: str, code: int) -> NoReturn:
    """Log an error and end the command with ``code``."""
    for line in message.splitlines():
        log(line, level="error")
    raise SystemExit(int(code))


def emit(document: Mapping[str, Any]) -> None:
    """Write one JSON document on stdout; it has a ``schema`` key."""
    print(json.dumps(document, indent=1, ensure_ascii=True, allow_nan=False))


def say(text: str) -> None:
    """Write one line on stdout. The caller has escaped foreign text."""
    print(text)


def coloured(word: str, *, width: int = 0) -> str:
    """A verdict or an outcome, coloured where stdout is a terminal."""
    padded = word.ljust(width)
    if os.environ.get("NO_COLOR") or not sys.stdout.isatty():
        return padded
    return click.style(padded, fg=_COLOURS.get(word))
