"""Vocabularies for tests of masks, and the plain model of a mask: commit each token to a fork."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from engine.constrain import Matcher, Tokens

END = 0


def vocabulary(texts: Iterable[str | bytes], *, every_byte: bool = True) -> list[bytes]:
    """Token 0 ends documents; then (all) single bytes, then the texts, each once."""
    data = [text.encode() if isinstance(text, str) else text for text in texts]
    singles = [bytes([byte]) for byte in range(256)] if every_byte else []
    return [b"", *dict.fromkeys([*singles, *data])]


def json_vocabulary(seed: int, count: int = 1500) -> list[bytes]:
    """Single bytes and random runs of what JSON texts are made of, many with quotes, escapes and cuts."""
    rng = random.Random(seed)
    parts = [
        "a",
        "b",
        "name",
        "id",
        "x",
        "1",
        "0",
        "-",
        ".",
        "e",
        "true",
        "null",
        "é",
        "日",
        "😀",
        " ",
        "\n",
        "\t",
    ]
    parts += [
        '"',
        '":',
        '","',
        '"}',
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\\",
        "\\u00",
        "\\n",
        '\\"',
        "d83d",
        "\\ude00",
    ]
    weights = [3] * 18 + [6] * 4 + [2] * 12
    words = []
    for _ in range(count):
        word = "".join(rng.choices(parts, weights, k=rng.randint(1, 5))).encode()
        words.append(word[: rng.randint(1, len(word))] if rng.random() < 0.2 else word)
    return vocabulary(words)


def bits(matcher: Matcher, count: int) -> set[int]:
    """Ids that the mask holds."""
    mask = matcher.mask()
    return {token for token in range(count) if mask[token >> 5] >> (token & 31) & 1}


def plain_bits(matcher: Matcher, tokens: Sequence[bytes]) -> set[int]:
    """Ids that a fork may commit; the end token where the document may end."""
    found = {END} if matcher.accepting else set()
    heads = {data[:1] for data in tokens if data}
    open_heads = {head for head in heads if _takes(matcher, head)}
    for token, data in enumerate(tokens):
        if data and data[:1] in open_heads and matcher.fork().commit(token):
            found.add(token)
    return found


def _takes(matcher: Matcher, data: bytes) -> bool:
    from engine.errors import ConstraintError

    try:
        matcher.fork().commit_bytes(data)
    except ConstraintError:
        return False
    return True


def random_walk(matcher: Matcher, tokens: Sequence[bytes], rng: random.Random, steps: int) -> Iterable[bytes]:
    """Commit random legal tokens; yields what was read so far, before each."""
    text = b""
    for _ in range(steps):
        yield text
        legal = sorted(bits(matcher, len(tokens)) - {END})
        if not legal:
            return
        token = rng.choice(legal)
        assert matcher.commit(token)
        text += tokens[token]


def make(tokens: Sequence[bytes]) -> Tokens:
    return Tokens.from_bytes(tokens, [END])
