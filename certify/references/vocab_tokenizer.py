"""What the tokenizer references that are built from a GGUF's own vocabulary have in common."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from certify.references import ReferenceRefused, ReferenceUnavailable
from certify.references.gguf_vocab import GgufVocab
from engine.model import Header

INSTALL = "pip install 'gaugeblock[reference]'"


class VocabTokenizer:
    """One tokenizer for plain text and one for text with special tokens, both made when first asked for.

    A subclass names its package and says which vocabularies it serves (``_check``), how it makes a
    tokenizer (``_make``) and how that encodes (``_ids``).
    """

    name: ClassVar[str]
    provider: ClassVar[str]

    def __init__(self, model: str | os.PathLike[str]) -> None:
        with Header.open(model) as header:
            self._build(GgufVocab.from_metadata(header.metadata))

    @classmethod
    def build(cls, metadata: Mapping[str, Any]) -> Self:
        """From an opened GGUF's metadata."""
        self = cls.__new__(cls)
        self._build(GgufVocab.from_metadata(metadata))
        return self

    def _build(self, vocab: GgufVocab) -> None:
        try:
            self.package_version = self.revision = importlib.metadata.version(self.provider)
        except importlib.metadata.PackageNotFoundError:
            raise ReferenceUnavailable(f"the package {self.provider} is not installed: {INSTALL}") from None
        self._check(vocab)
        self._vocab = vocab
        self._made: dict[bool, Any] = {}

    def _check(self, vocab: GgufVocab) -> None:
        """Raise ReferenceUnavailable where the package does not serve such a vocabulary."""
        raise NotImplementedError

    def _make(self, vocab: GgufVocab, *, special: bool) -> Any:
        raise NotImplementedError

    def _ids(self, tokenizer: Any, text: str) -> list[int]:
        raise NotImplementedError

    def tokenize(self, text: str | bytes, *, special: bool) -> list[int]:
        """Ids of ``text`` with nothing added; bytes must be UTF-8 (ReferenceRefused otherwise)."""
        try:
            text = text.decode() if isinstance(text, bytes) else text
            return self._ids(self._for(special), text)
        except UnicodeError as error:
            raise ReferenceRefused(f"{self.provider} takes UTF-8 only: {error}") from None

    def encode(self, text: str, special: bool) -> list[int]:
        """``tokenize`` by another name."""
        return self.tokenize(text, special=special)

    def _for(self, special: bool) -> Any:
        if special not in self._made:
            self._made[special] = self._make(self._vocab, special=special)
        return self._made[special]

    def close(self) -> None:
        """Nothing is held open."""
