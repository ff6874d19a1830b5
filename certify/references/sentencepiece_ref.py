"""Google's ``sentencepiece`` as a second tokenizer reference, built from a GGUF's SentencePiece vocabulary.

The model proto is written here field by field, so that no protobuf package is needed: pieces with
scores and types in the order of their ids, BPE with byte fallback, an identity normaliser.
"""

from __future__ import annotations

import struct
from typing import Any

from certify.references import ReferenceUnavailable
from certify.references.gguf_vocab import CONTROL, SPACE, UNKNOWN, USER_DEFINED, GgufVocab
from certify.references.vocab_tokenizer import VocabTokenizer

PACKAGE = "sentencepiece"
BPE = 2  # TrainerSpec.ModelType


class SentencePieceTokenizer(VocabTokenizer):
    """A ``SentencePieceProcessor`` for plain text and one for text with special tokens."""

    name = "sentencepiece"
    provider = PACKAGE

    def _check(self, vocab: GgufVocab) -> None:
        if vocab.model != "llama":
            raise ReferenceUnavailable(
                f"{PACKAGE} is built for SentencePiece vocabularies, not {vocab.model}"
            )

    def _make(self, vocab: GgufVocab, *, special: bool) -> Any:
        return _processor(model_proto(vocab, special=special))

    def _ids(self, tokenizer: Any, text: str) -> list[int]:
        return list(tokenizer.encode(text, out_type=int))


def _processor(proto: bytes) -> Any:
    import sentencepiece

    try:
        return sentencepiece.SentencePieceProcessor(model_proto=proto)
    except RuntimeError as error:
        raise ReferenceUnavailable(f"{PACKAGE} refuses the vocabulary: {error}") from None


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _field(number: int, value: int | float | bytes) -> bytes:
    """One protobuf field: bytes and messages, 32-bit floats, integers."""
    if isinstance(value, bytes):
        return _varint(number << 3 | 2) + _varint(len(value)) + value
    if isinstance(value, float):
        return _varint(number << 3 | 5) + struct.pack("<f", value)
    return _varint(number << 3) + _varint(value)


def _piece(text: str, score: float, kind: int) -> bytes:
    return _field(1, text.encode()) + _field(2, score) + _field(3, kind)


def model_proto(vocab: GgufVocab, *, special: bool) -> bytes:
    """A serialised ``ModelProto``. With ``special``, control pieces are matched like user-defined ones."""
    unknown = 0 if vocab.unknown is None else vocab.unknown
    pieces = []
    for i, (text, score, kind) in enumerate(zip(vocab.tokens, vocab.scores, vocab.types, strict=True)):
        if i == unknown:
            kind = UNKNOWN
        elif kind == CONTROL or (kind == UNKNOWN and i != unknown):
            kind = USER_DEFINED if special else CONTROL
        if kind == USER_DEFINED:
            text = text.replace(" ", SPACE)  # GGUF stores them with spaces
        pieces.append(_field(1, _piece(text, score, kind)))
    trainer = _field(3, BPE) + _field(35, 1) + _field(40, unknown)
    normaliser = _field(1, b"identity") + _field(3, int(vocab.space_prefix)) + _field(4, 0) + _field(5, 1)
    return b"".join(pieces) + _field(2, trainer) + _field(3, normaliser)
