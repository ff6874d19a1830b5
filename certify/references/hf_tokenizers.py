"""Hugging Face ``tokenizers`` as a second tokenizer reference, built from a GGUF's byte-level BPE.

The merges, the vocabulary and the added tokens come from the file; the words that merges stay
inside come from the regular expression that each pre-tokenizer's own ``tokenizer.json`` uses.
"""

from __future__ import annotations

from typing import Any

from certify.references import ReferenceUnavailable
from certify.references.gguf_vocab import CONTROL, UNKNOWN, USER_DEFINED, GgufVocab
from certify.references.vocab_tokenizer import VocabTokenizer

PACKAGE = "tokenizers"
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}DIGITS| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)
WORDS = {"qwen2": _WORDS.replace("DIGITS", ""), "llama-bpe": _WORDS.replace("DIGITS", "{1,3}")}
SUPPORTED = ("gpt-2", "smollm", *WORDS)


class HfTokenizer(VocabTokenizer):
    """A ``tokenizers.Tokenizer`` for plain text and one for text with special tokens."""

    name = "tokenizers"
    provider = PACKAGE

    def _check(self, vocab: GgufVocab) -> None:
        if vocab.model != "gpt2" or vocab.pre not in SUPPORTED:
            raise ReferenceUnavailable(
                f"{PACKAGE} is built for byte-level BPE ({', '.join(SUPPORTED)}), "
                f"and the file is {vocab.model} / {vocab.pre}"
            )

    def _make(self, vocab: GgufVocab, *, special: bool) -> Any:
        return _tokenizer(vocab, special=special)

    def _ids(self, tokenizer: Any, text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False).ids)


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
