"""Text from a model, a GGUF, a sidecar or a log, made safe for a terminal and for one line.

Control characters, bidirectional overrides and lone surrogates are shown as escapes, so that no
foreign text can move a cursor, recolour, or reorder what a person reads.
"""

from __future__ import annotations

import unicodedata

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def printable(text: object, limit: int | None = 200) -> str:
    """Return ``text`` as one line without control or format characters, cut to ``limit`` characters."""
    whole = str(text)
    kept = whole if limit is None else whole[:limit]
    shown = "".join(char if unicodedata.category(char) not in _HIDDEN else _escape(char) for char in kept)
    return shown if len(kept) == len(whole) else f"{shown}… ({len(whole)} characters)"


def plural(count: int, noun: str) -> str:
    """Return "1 model", "2 models": a count with its noun, which must form its plural with an s."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _escape(char: str) -> str:
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
