"""Random context-free grammars, their text in both notations, and what they admit, by brute force.

An expression is a tuple: ``("text", str)``, ``("set", str)``, ``("seq", [e…])``, ``("alt", [e…])``,
``("rep", e, least, most or None)`` or ``("ref", rule)``. A grammar is a list of expressions; rule 0 is the
whole text. Nothing here knows how the engine reads grammars.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from engine import constrain

Expr = tuple[Any, ...]
Grammar = list[Expr]
BYTES = constrain.Tokens.from_bytes([bytes([i]) for i in range(256)] + [b""], [256])


def matcher(constraint: constrain.Constraint, data: bytes = b"") -> constrain.Matcher:
    """A matcher behind ``data``."""
    made = constrain.Matcher(constraint, BYTES)
    made.commit_bytes(data)
    return made


def allowed(at: constrain.Matcher) -> bytes:
    """The bytes that may come next."""
    mask = at.mask()
    return bytes(i for i in range(256) if int(mask[i // 32]) >> (i % 32) & 1)


def accepts(constraint: constrain.Constraint, text: str | bytes) -> bool:
    """Whether the whole text is admitted."""
    at = constrain.Matcher(constraint, BYTES)
    try:
        at.commit_bytes(text.encode() if isinstance(text, str) else text)
    except constrain.ConstraintError:
        return False
    return at.accepting


# ---- Random grammars ---------------------------------------------------------------------------


def random_expr(draw: random.Random, rules: int, depth: int) -> Expr:
    """An expression that refers to rules below ``rules``."""
    kind = draw.choice(["text", "set", "ref", "ref", "seq", "seq", "alt", "alt", "rep"])
    if kind == "text" or (depth == 0 and kind not in ("set", "ref")):
        return ("text", draw.choice(["", "a", "b", "ab", "ba", "é", "aé", "è"]))
    if kind == "set":
        return ("set", draw.choice(["a", "ab", "aé", "éèb", "€é", "𝄞a"]))
    if kind == "ref":
        return ("ref", draw.randrange(rules))
    if kind == "rep":
        least = draw.choice([0, 0, 1, 2])
        most = draw.choice([None, None, least, least + 1, least + 2])
        return ("rep", random_expr(draw, rules, depth - 1), least, most)
    return (kind, [random_expr(draw, rules, depth - 1) for _ in range(draw.randint(1, 3))])


def random_grammar(seed: int) -> Grammar:
    """A grammar of one to five rules."""
    draw = random.Random(seed)
    rules = draw.randint(1, 5)
    return [random_expr(draw, rules, draw.randint(1, 3)) for _ in range(rules)]


# ---- Notations ---------------------------------------------------------------------------------


def gbnf(grammar: Grammar) -> str:
    """The grammar in GBNF."""

    def write(e: Expr) -> str:
        if e[0] == "text":
            return f'"{e[1]}"'
        if e[0] == "set":
            return f"[{e[1]}]"
        if e[0] == "ref":
            return "root" if e[1] == 0 else f"r{e[1]}"
        if e[0] == "rep":
            counts = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get(
                (e[2], e[3]), f"{{{e[2]},{'' if e[3] is None else e[3]}}}"
            )
            return f"({write(e[1])}){counts}"
        return "(" + {"seq": " ", "alt": " | "}[e[0]].join(map(write, e[1])) + ")"

    return "".join(f"{'root' if i == 0 else f'r{i}'} ::= {write(e)}\n" for i, e in enumerate(grammar))


def lark(grammar: Grammar) -> str:
    """The grammar in Lark's notation."""

    def write(e: Expr) -> str:
        if e[0] == "text":
            return f'"{e[1]}"'
        if e[0] == "set":
            return f"/[{e[1]}]/"
        if e[0] == "ref":
            return "start" if e[1] == 0 else f"r{e[1]}"
        if e[0] == "rep":
            body = f"({write(e[1])})"
            if e[3] is None:
                return f"{body}*" if e[2] == 0 else f"{body}~{e[2]} {body}*"
            return f"{body}~{e[2]}..{e[3]}"
        return "(" + {"seq": " ", "alt": " | "}[e[0]].join(map(write, e[1])) + ")"

    return "".join(f"{'start' if i == 0 else f'r{i}'}: {write(e)}\n" for i, e in enumerate(grammar))


# ---- What a grammar admits ---------------------------------------------------------------------


def _joined(left: set[bytes], right: set[bytes], limit: int) -> set[bytes]:
    return {a + b for a in left for b in right if len(a) + len(b) <= limit}


def _texts(e: Expr, known: list[set[bytes]], limit: int) -> set[bytes]:
    if e[0] == "text":
        return {e[1].encode()}
    if e[0] == "set":
        return {c.encode() for c in e[1]}
    if e[0] == "ref":
        return known[e[1]]
    if e[0] == "alt":
        return set().union(*(_texts(part, known, limit) for part in e[1]))
    found = {b""}
    if e[0] == "seq":
        for part in e[1]:
            found = _joined(found, _texts(part, known, limit), limit)
        return found
    body = _texts(e[1], known, limit)
    for _ in range(e[2]):
        found = _joined(found, body, limit)
    last, rounds = found, 0
    while last and (e[3] is None or rounds < e[3] - e[2]):
        last = _joined(last, body, limit) - found
        found, rounds = found | last, rounds + 1
    return found


def language(grammar: Grammar, limit: int) -> set[bytes]:
    """All texts of at most ``limit`` bytes: least fixed point."""
    known: list[set[bytes]] = [set() for _ in grammar]
    while True:
        fresh = [{t for t in _texts(e, known, limit) if len(t) <= limit} for e in grammar]
        if fresh == known:
            return known[0]
        known = fresh


def productive(grammar: Grammar) -> bool:
    """Whether the grammar admits any text, however long."""

    def can_end(e: Expr, known: set[int]) -> bool:
        if e[0] in ("text", "set"):
            return True
        if e[0] == "ref":
            return e[1] in known
        if e[0] == "rep":
            return e[2] == 0 or can_end(e[1], known)
        return (all if e[0] == "seq" else any)(can_end(part, known) for part in e[1])

    known: set[int] = set()
    while True:
        fresh = {i for i, e in enumerate(grammar) if can_end(e, known)}
        if fresh == known:
            return 0 in known
        known = fresh


def _ends(e: Expr, text: bytes, at: int, known: dict[tuple[int, int], set[int]]) -> set[int]:
    if e[0] in ("text", "set"):
        words = [e[1].encode()] if e[0] == "text" else [c.encode() for c in e[1]]
        return {at + len(word) for word in words if text.startswith(word, at)}
    if e[0] == "ref":
        return known.get((e[1], at), set())
    if e[0] == "alt":
        return set().union(*(_ends(part, text, at, known) for part in e[1]))
    reached = {at}
    if e[0] == "seq":
        for part in e[1]:
            reached = set().union(*(_ends(part, text, i, known) for i in reached))
        return reached
    for _ in range(e[2]):
        reached = set().union(*(_ends(e[1], text, i, known) for i in reached))
    last, rounds = reached, 0
    while last and (e[3] is None or rounds < e[3] - e[2]):
        last = set().union(*(_ends(e[1], text, i, known) for i in last)) - reached
        reached, rounds = reached | last, rounds + 1
    return reached


def admits(grammar: Grammar, text: bytes) -> bool:
    """Whether the grammar derives the text, of any length: fixed point over spans."""
    known: dict[tuple[int, int], set[int]] = {}
    while True:
        fresh = {
            (i, at): _ends(e, text, at, known) for i, e in enumerate(grammar) for at in range(len(text) + 1)
        }
        if fresh == known:
            return len(text) in known[0, 0]
        known = fresh


def prefixes(texts: set[bytes]) -> Iterator[bytes]:
    """Every prefix of every text, once, shortest first."""
    yield from sorted({t[:i] for t in texts for i in range(len(t) + 1)}, key=lambda t: (len(t), t))
