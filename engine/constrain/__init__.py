"""Constraints: languages of documents that a generation keeps to, and ends legally wherever it is cut.

``compile`` turns a source (JSON Schema, regular expression, choice, grammar) into a ``Constraint``;
``Tokens`` is a vocabulary prepared for masks; a ``Matcher`` is a position in one document.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence

from engine import arguments
from engine.constrain.native import KINDS, Closing, Constraint, Kind, Matcher, Note, Options, Tokens
from engine.errors import ConstraintError, UsageError
from engine.native import choice

__all__ = [
    "Closing", "Constraint", "ConstraintError", "Kind", "Matcher", "Note", "Options", "Tokens", "compile",
]  # fmt: skip

CACHE_BYTES = 128 << 20


class _Cache:
    """The constraints compiled last, by hash of what they were compiled from; bounded in bytes."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._held: OrderedDict[bytes, tuple[Constraint, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: bytes) -> Constraint | None:
        with self._lock:
            if key not in self._held:
                return None
            self._held.move_to_end(key)
            return self._held[key][0]

    def put(self, key: bytes, made: Constraint, source_bytes: int) -> None:
        size = made.size_bytes + source_bytes
        with self._lock:
            if key in self._held or size > self._max_bytes:
                return
            self._held[key] = made, size
            self._bytes += size
            while self._bytes > self._max_bytes:
                self._bytes -= self._held.popitem(last=False)[1][1]


_cache = _Cache(CACHE_BYTES)


def compile(
    kind: Kind, source: str | Mapping[str, object] | Sequence[str] | bool = "", options: Options = Options()
) -> Constraint:
    """Compile a constraint, or find it among those compiled last.

    ``json_schema`` takes the schema as text or as a Python object, ``choice`` a list of strings or its JSON
    text, ``json`` "" (any document) or "object"; the others take text. Raises ConstraintError where the
    source is malformed, or says what cannot be held exactly.
    """
    choice(KINDS, kind, "kind")
    if not isinstance(options, Options):
        raise UsageError(f"options must be Options, not {arguments.kind(options)}")
    data = _text(kind, source).encode("utf-8", "surrogatepass")
    head = f"{kind} {options.order} {options.whitespace} {options.formats} {options.plain}\n".encode()
    key = hashlib.sha256(head + data).digest()
    found = _cache.get(key)
    if found is None:
        found = Constraint(kind, data, options)
        _cache.put(key, found, len(data))
    return found


def _text(kind: str, source: object) -> str:
    """The text of a source, Python objects dumped in their order."""
    if isinstance(source, str):
        return source
    if kind not in ("json_schema", "choice"):
        raise UsageError(f"the source of a {kind} constraint must be a string, not {arguments.kind(source)}")
    try:
        return json.dumps(source, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConstraintError(f"the {kind} source is no JSON: {error}") from None
