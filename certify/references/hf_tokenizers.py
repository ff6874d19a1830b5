"""Hugging Face ``tokenizers`` as a second tokenizer reference, built from a GGUF's byte-level BPE.

The merges, the vocabulary and the added tokens come from the file; the words that merges stay
inside come from the regular expression that each pre-tokenizer's own ``tokenizer.json`` uses.
"""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Mapping
from typing import Any

from certify.references import ReferenceRefused, ReferenceUnavailable
from certify.references.gguf_vocab import CONTROL, UNKNOWN, USER_DEFINED, GgufVocab
from engine.model import Header

PACKAGE = "tokenizers"
INSTALL = "pip install 'gaugeblock[reference]'"
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}DIGITS| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)
WORDS = {"qwen2": _WORDS.replace("DIGITS", ""), "llama-bpe": _WORDS.replace("DIGITS", "{1,3}")}
SUPPORTED = ("gpt-2", "smollm", *WORDS)


class HfTokenizer:
    """A ``tokenizers.Tokenizer`` for plain text and one for text with special tokens."""

    name = "tokenizers"
    provider = PACKAGE

    def __init__(self, model: str | os.PathLike[str]) -> None:
        with Header.open(model) as header:
            self._build(GgufVocab.from_metadata(header.metadata))

    @classmethod
    def build(cls, metadata: Mapping[str, Any]) -> HfTokenizer:
        """From an opened GGUF's metadata."""
        self = cls.__new__(cls)
        self._build(GgufVocab.from_metadata(metadata))
        return self

    def _build(self, vocab: GgufVocab) -> None:
        try:
            self.package_version = self.revision = importlib.metadata.version(PACKAGE)
        except importlib.metadata.PackageNotFoundError:
            raise ReferenceUnavailable(f"the package {PACKAGE} is not installed: {INSTALL}") from None
        if vocab.model != "gpt2" or vocab.pre not in SUPPORTED:
            raise ReferenceUnavailable(
                f"{PACKAGE} is built for byte-level BPE ({', '.join(SUPPORTED)}), "
                f"and the file is {vocab.model} / {vocab.pre}"
            )
        self._vocab = vocab
        self._made: dict[bool, Any] = {}

    def tokenize(self, text: str | bytes, *, special: bool) -> list[int]:
        """Ids of ``text`` with nothing added; bytes must be UTF-8 (ReferenceRefused otherwise)."""
        try:
            text = text.decode() if isinstance(text, bytes) else text
            return list(self._for(special).encode(text, add_special_tokens=False).ids)
        except UnicodeError as error:
            raise ReferenceRefused(f"{PACKAGE} takes UTF-8 only: {error}") from None

    def encode(self, text: str, special: bool) -> list[int]:
        """``tokenize`` by another name."""
        return self.tokenize(text, special=special)

    def _for(self, special: bool) -> Any:
        if special not in self._made:
            self._made[special] = _tokenizer(self._vocab, special=special)
        return self._made[special]

    def close(self) -> None:
        """Nothing is held open."""


def _tokenizer(vocab: GgufVocab, *, special: bool) -> Any:
    """A ``tokenizers.Tokenizer``. User-defined tokens are always added, control ones with ``special``."""
    from tokenizers import AddedToken, Tokenizer, decoders, models

    ids = {text: i for i, text in enumerate(vocab.tokens)}
    merges = [m for m in vocab.merges if m[0] in ids and m[1] in ids and m[0] + m[1] in ids]
    bpe = models.BPE(vocab=ids, merges=merges, ignore_merges=vocab.pre == "llama-bpe")
    tokenizer = Tokenizer(bpe)
    tokenizer.pre_tokenizer = _pre_tokenizer(str(vocab.pre))
    tokenizer.decoder = decoders.ByteLevel()
    kinds = {USER_DEFINED, CONTROL, UNKNOWN} if special else {USER_DEFINED}
    tokenizer.add_tokens(
        [
            AddedToken(text, normalized=False)
            for text, kind in zip(vocab.tokens, vocab.types, strict=True)
            if kind in kinds
        ]
    )
    return tokenizer


def _pre_tokenizer(pre: str) -> Any:
    from tokenizers import Regex, pre_tokenizers

    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pre not in WORDS)
    if pre == "gpt-2":
        return byte_level
    first = (
        pre_tokenizers.Digits(individual_digits=True)
        if pre == "smollm"
        else pre_tokenizers.Split(Regex(WORDS[pre]), "isolated")
    )
    return pre_tokenizers.Sequence([first, byte_level])
