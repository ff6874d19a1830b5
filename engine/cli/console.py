"""What reaches the terminal: results on standard output, everything else on standard error, escaped."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import unicodedata
from typing import Any

from engine import streams

# Marks that reorder what a person reads; the other format characters (joiners) make up real text.
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_HIDDEN = frozenset({"Cc", "Cs", "Zl", "Zp"})


def escape(text: str) -> str:
    """Foreign text of several lines, safe for a terminal: only newlines and tabs move the cursor."""
    return "".join(
        char
        if char in "\n\t" or not (char in _BIDI or unicodedata.category(char) in _HIDDEN)
        else (f"\\x{ord(char):02x}" if ord(char) < 0x100 else f"\\u{ord(char):04x}")
        for char in text
    )


def clean(value: Any) -> Any:
    """JSON-like data whose strings are true Unicode: bytes that were no UTF-8 show as ``\\xNN``."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    if isinstance(value, dict):
        return {clean(key): clean(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(item) for item in value]
    return value


class Console:
    """The two output streams of the process."""

    def __init__(self) -> None:
        self.log_format = "text"

    def reset(self) -> None:
        """The state of a fresh process; characters that a stream cannot encode become escapes."""
        self.log_format = "text"
        streams.prepare()

    def document(self, schema: str, **fields: Any) -> None:
        """Print the one JSON document of a ``--json`` command."""
        document = clean({"schema": f"gaugeblock.{schema}", **fields})
        print(json.dumps(document, indent=2, allow_nan=False))

    def text(self, text: str) -> None:
        """Print a model's text as it comes: raw into a file or pipe, escaped on a terminal."""
        sys.stdout.write(escape(text) if sys.stdout.isatty() else text)
        sys.stdout.flush()

    def line(self, text: str) -> None:
        """Print one line of a report, escaped."""
        print(escape(text))

    def log(self, event: str, message: str, *, level: str = "info", **fields: Any) -> None:
        """Say something on standard error. ``message`` is escaped here once more: it costs nothing."""
        if self.log_format == "json":
            entry = clean({"level": level, "event": event, "message": message, **fields})
            print(json.dumps(entry), file=sys.stderr, flush=True)
            return
        prefix = "gaugeblock: " if level == "info" else f"gaugeblock: {level}: "
        print(f"{prefix}{escape(message)}", file=sys.stderr, flush=True)

    def error(self, event: str, message: str, **fields: Any) -> None:
        """Say why the command ends."""
        with contextlib.suppress(OSError):
            self.log(event, message, level="error", **fields)

    def abandon_output(self) -> None:
        """The reader of our output has gone: what is still buffered must not fail again at exit."""
        null = os.open(os.devnull, os.O_WRONLY)
        with contextlib.suppress(OSError, ValueError):
            os.dup2(null, sys.stdout.fileno())
        os.close(null)


CONSOLE = Console()
