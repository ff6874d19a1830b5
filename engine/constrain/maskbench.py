"""What a benchmark of masks needs: ``load(tokenizer.json).compile(schema)`` and the calls of a matcher.

The interface is that of MaskBench-like harnesses: ``compile(schema) -> m`` with ``m.reset()``, ``m.mask()``
(packed uint32), ``m.commit(token) -> bool`` and ``m.accepting() -> bool``. Members come in any order, white
space is free, known formats constrain. Vocabularies are byte-level BPE with GPT-2's letters for bytes.
"""

from __future__ import annotations

import json
from pathlib import Path

from engine.constrain.native import Constraint, Matcher, Options, Tokens, Words
from engine.errors import FormatError

OPTIONS = Options(order="any", whitespace="free", formats=True)


def byte_letters() -> dict[str, int]:
    """The letter of each byte: printable Latin-1 as itself, the others from U+0100 on, in order."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(0x100 + i): byte for i, byte in enumerate(others)}


def token_bytes(tokenizer_json: str) -> list[bytes]:
    """Bytes by token id; added tokens that are special have none."""
    data = json.loads(Path(tokenizer_json).read_text(encoding="utf-8"))
    vocab: dict[str, int] = data["model"]["vocab"]
    added = {token["id"]: token for token in data.get("added_tokens", ())}
    size = max([*vocab.values(), *added], default=-1) + 1
    letters, found = byte_letters(), [b""] * size
    for text, token in vocab.items():
        if token in added:
            continue
        try:
            found[token] = bytes(letters[letter] for letter in text)
        except KeyError as error:
            raise FormatError(f"token {token} is not byte-level BPE: it holds {error}") from None
    for token, entry in added.items():
        found[token] = b"" if entry["special"] else entry["content"].encode()
    return found


class Run:
    """One compiled schema and a document under it."""

    __slots__ = ("_matcher", "commit", "mask", "reset")

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher
        self.reset = matcher.reset
        self.mask = matcher.mask
        self.commit = matcher.commit

    def accepting(self) -> bool:
        """Whether the document may end here."""
        return self._matcher.accepting


class Engine:
    """A vocabulary, ready to compile for."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens

    def compile(self, schema: object) -> Run:
        """Compile a schema (nothing is cached: compilation is measured)."""
        text = json.dumps(schema, ensure_ascii=False).encode("utf-8", "surrogatepass")
        return Run(Matcher(Constraint("json_schema", text, OPTIONS), self.tokens))


def load(tokenizer_json: str) -> Engine:
    """Prepare the vocabulary of a Hugging Face ``tokenizer.json``; its first special token ends documents."""
    tokens = token_bytes(tokenizer_json)
    ends = [token for token, data in enumerate(tokens) if not data][:1]
    return Engine(Tokens.from_bytes(tokens, ends))


__all__ = ["Engine", "Run", "Words", "byte_letters", "load", "token_bytes"]
