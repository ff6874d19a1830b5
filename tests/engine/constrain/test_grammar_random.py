"""Random grammars in both notations against brute force: what is admitted, allowed, and how it ends."""

from __future__ import annotations

from typing import Literal

import pytest

from engine import constrain
from tests.engine.constrain import grammars

LIMIT = 6  # bytes of the texts that are enumerated
SEEDS = 60


def check_position(
    grammar: grammars.Grammar, texts: set[bytes], at: constrain.Matcher, prefix: bytes
) -> None:
    """One position: acceptance, the shortest ending, and every byte that may follow."""
    assert at.accepting == (prefix in texts)
    behind = sorted((t for t in texts if t.startswith(prefix)), key=lambda t: (len(t), t))
    ending = at.close().data
    assert (prefix + ending == behind[0]) if behind else len(prefix + ending) > LIMIT
    assert grammars.admits(grammar, prefix + ending)
    follow = {t[len(prefix)] for t in behind if len(t) > len(prefix)}
    may = grammars.allowed(at)
    assert follow <= set(may)
    for byte in may:
        on = at.fork()
        on.commit_bytes(bytes([byte]))
        rest = on.close().data
        assert grammars.admits(grammar, prefix + bytes([byte]) + rest)
        if rest:
            on.commit_bytes(rest[:1])
            assert on.close().data == rest[1:]


def check_grammar(grammar: grammars.Grammar, kind: Literal["gbnf", "lark"]) -> bool:
    """All positions within LIMIT bytes, a hundred at most; False where the grammar admits nothing."""
    source = grammars.gbnf(grammar) if kind == "gbnf" else grammars.lark(grammar)
    if not grammars.productive(grammar):
        with pytest.raises(constrain.ConstraintError, match="admits no text"):
            constrain.compile(kind, source)
        return False
    constraint = constrain.compile(kind, source)
    texts = grammars.language(grammar, LIMIT)
    for prefix in list(grammars.prefixes(texts))[:100] or [b""]:
        check_position(grammar, texts, grammars.matcher(constraint, prefix), prefix)
    return True


@pytest.mark.parametrize("kind", ["gbnf", "lark"])
def test_random_grammars_equal_brute_force(kind: Literal["gbnf", "lark"]) -> None:
    held = [check_grammar(grammars.random_grammar(seed), kind) for seed in range(SEEDS)]
    assert 0.5 * SEEDS < sum(held) < SEEDS  # both kinds of grammar occur
