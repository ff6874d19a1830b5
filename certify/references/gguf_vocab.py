"""The vocabulary inside a GGUF as plain data, for references that are built from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from certify.references import ReferenceUnavailable

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
SPACE = "\u2581"


@dataclass(frozen=True)
class GgufVocab:
    """Tokens in the order of their ids, with their types and, by model, scores or merges."""

    model: str
    pre: str | None
    tokens: tuple[str, ...]
    types: tuple[int, ...]
    scores: tuple[float, ...]
    merges: tuple[tuple[str, str], ...]
    unknown: int | None
    space_prefix: bool

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> GgufVocab:
        """Read the ``tokenizer.ggml.*`` keys. ReferenceUnavailable where the vocabulary is missing."""
        try:
            model, tokens = str(metadata["tokenizer.ggml.model"]), list(metadata["tokenizer.ggml.tokens"])
        except KeyError as error:
            raise ReferenceUnavailable(f"the file has no {error.args[0]}") from None
        get = metadata.get
        merges = [str(m) for m in get("tokenizer.ggml.merges", ())]
        return cls(
            model=model,
            pre=get("tokenizer.ggml.pre"),
            tokens=tuple(tokens),
            types=tuple(int(t) for t in get("tokenizer.ggml.token_type", [NORMAL] * len(tokens))),
            scores=tuple(float(s) for s in get("tokenizer.ggml.scores", ())),
            merges=tuple((m[: m.index(" ", 1)], m[m.index(" ", 1) + 1 :]) for m in merges if " " in m[1:]),
            unknown=get("tokenizer.ggml.unknown_token_id"),
            space_prefix=bool(get("tokenizer.ggml.add_space_prefix", model == "llama")),
        )
