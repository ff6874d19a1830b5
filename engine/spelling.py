"""How bytes that must come are spelled in tokens, and which tokens hold given bytes.

**Canonical tokenisation of a forced run** (docs/constraints.md): the tokenizer's own tokenisation of
the run's bytes, taken by themselves behind whatever was generated, so that no token reaches beyond
the run and the text of a control token stays text wherever it stands in a document. A vocabulary
that puts a space before a text is asked behind a line feed, which is then taken away. Where those
tokens do not spell the run byte for byte (a run that begins or ends inside a character, a tokenizer
that changes spaces), it is the longest token at each place, the lowest id among equal ones.
"""

from __future__ import annotations

import bisect
import re
import threading
import weakref
from collections.abc import Sequence

from engine.errors import UsageError
from engine.native import Span, Vocab

_LOCK = threading.Lock()
_KNOWN: weakref.WeakKeyDictionary[Vocab, Spelling] = weakref.WeakKeyDictionary()


class Spelling:
    """The tokens of one vocabulary by their bytes; ``Spelling.of`` makes one for each vocabulary."""

    def __init__(self, vocab: Vocab) -> None:
        self._weak = weakref.ref(vocab)  # not to keep alive what it is found by
        self._lead = vocab.info.add_space_prefix
        self._sorted: list[tuple[bytes, int]] | None = None
        self._blob = b""
        self._offsets: list[int] = []
        self._edges: dict[bytes, list[tuple[bytes, list[int]]]] = {}
        self._singles: dict[str, int | None] = {}

    @classmethod
    def of(cls, vocab: Vocab) -> Spelling:
        """The one of this vocabulary, made on first use."""
        with _LOCK:
            found = _KNOWN.get(vocab)
            if found is None:
                found = _KNOWN[vocab] = cls(vocab)
            return found

    @property
    def _vocab(self) -> Vocab:
        vocab = self._weak()
        if vocab is None:
            raise UsageError("the vocabulary is closed")
        return vocab

    def ids(self, run: bytes, literal: Sequence[Span] = ()) -> list[int]:
        """Canonical tokens of a run; inside the byte spans ``literal`` nothing is a control token.

        Empty where the vocabulary cannot spell the run.
        """
        if not run:
            return []
        found = self._own(run, literal)
        return self._longest(run, literal) if found is None else found

    def single(self, text: str) -> int | None:
        """The token whose text this is, where it is a control or user-defined one."""
        if text not in self._singles:
            self._singles[text] = self._single(text)
        return self._singles[text]

    def _single(self, text: str) -> int | None:
        ids = self._vocab.tokenize(text.encode(), special=True)
        if self._lead and len(ids) > 1:
            ids = [token for token in ids if self._vocab.token_bytes(token, special=True).strip()]
        if len(ids) != 1 or self._vocab.token_kind(ids[0]) not in ("control", "user-defined"):
            return None
        return ids[0] if self._vocab.token_bytes(ids[0], special=True) == text.encode() else None

    def beginning(self, prefix: bytes) -> list[tuple[bytes, int]]:
        """Tokens whose bytes begin with ``prefix``, and go on."""
        table = self._table()
        at = bisect.bisect_left(table, (prefix, -1))
        found = []
        while at < len(table) and table[at][0].startswith(prefix):
            if len(table[at][0]) > len(prefix):
                found.append(table[at])
            at += 1
        return found

    def holding(self, text: bytes) -> list[tuple[bytes, int]]:
        """Tokens that hold ``text`` anywhere."""
        table = self._table()
        rows = {
            bisect.bisect_right(self._offsets, match.start()) - 1
            for match in re.finditer(re.escape(text), self._blob)
        }
        return [table[row] for row in sorted(rows) if text in table[row][0]]

    def edges(self, tail: bytes) -> list[tuple[bytes, list[int]]]:
        """Tokens made of the end of a JSON object and a beginning of ``tail``, grouped by the former."""
        if tail not in self._edges:
            found: dict[bytes, list[int]] = {}
            for data, token in self.holding(b"}" + tail[:1]) if tail else ():
                for at in range(1, len(data)):
                    if data[at - 1 : at] == b"}" and tail.startswith(data[at:]):
                        found.setdefault(data[:at], []).append(token)
            self._edges[tail] = sorted(found.items())
        return self._edges[tail]

    def _own(self, run: bytes, literal: Sequence[Span]) -> list[int] | None:
        """The tokenizer's tokens of a run, or None where their bytes are not the run's."""
        shift = 1 if self._lead else 0
        spans = [(begin + shift, end + shift) for begin, end in literal]
        ids = self._vocab.tokenize(b"\n" * shift + run, special=True, literal=spans)
        pieces = [self._vocab.token_bytes(token, special=True) for token in ids]
        drop, lead = 0, b""
        while shift and drop < len(pieces) and lead not in (b"\n", b" \n"):
            lead += pieces[drop]
            drop += 1
        return ids[drop:] if b"".join(pieces[drop:]) == run else None

    def _longest(self, run: bytes, literal: Sequence[Span]) -> list[int]:
        """The longest token at each place; control tokens outside the literal spans only."""
        ids, at = [], 0
        while at < len(run):
            token = self._special_at(run, at, literal) or self._longest_at(run, at)
            if token is None:
                return []
            ids.append(token[1])
            at += len(token[0])
        return ids

    def _special_at(self, run: bytes, at: int, literal: Sequence[Span]) -> tuple[bytes, int] | None:
        for token in self._vocab.steering():
            data = self._vocab.token_bytes(token, special=True)
            end = at + len(data)
            free = all(end <= first or at >= last for first, last in literal)
            if data and free and run[at:end] == data:
                return data, token
        return None

    def _longest_at(self, run: bytes, at: int) -> tuple[bytes, int] | None:
        table = self._table()
        for size in range(min(64, len(run) - at), 0, -1):
            row = bisect.bisect_left(table, (run[at : at + size], -1))
            if row < len(table) and table[row][0] == run[at : at + size]:
                return table[row]
        return None

    def _table(self) -> list[tuple[bytes, int]]:
        """Ordinary tokens as (bytes, id), sorted."""
        if self._sorted is None:
            with _LOCK:
                if self._sorted is None:
                    self._build()
        return self._sorted or []

    def _build(self) -> None:
        every = enumerate(self._vocab.all_token_bytes())
        rows = sorted((data, token) for token, data in every if data)
        offsets, at = [], 0
        for data, _ in rows:
            offsets.append(at)
            at += len(data) + 1
        self._blob, self._offsets = b"\xff".join(data for data, _ in rows), offsets
        self._sorted = rows
