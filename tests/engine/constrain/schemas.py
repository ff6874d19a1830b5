"""Random JSON Schemas (draft 2020-12) and values that are near them, and all small documents."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from itertools import product
from typing import Any

KEYS = ["a", "b", "c", "ab", "z"]
SCALARS: list[object] = [None, True, False, 0, 1, 2, 1.5, -1, "", "a", "ab", "b"]
TYPES: list[object] = [
    "object", "object", "array", "string", "number", "integer", "boolean", "null",
    ["object", "string"], ["array", "null"],
]  # fmt: skip
NAMES: list[object] = [
    {"maxLength": 1},
    {"pattern": "^[ab]"},
    {"enum": ["a", "b", "c"]},
    {"not": {"const": "a"}},
]
LEAVES: list[Any] = [
    True, False, {}, {"type": "string"}, {"type": "integer"}, {"const": 1}, {"enum": ["a", 1, None]},
    {"type": "number", "minimum": 1},
]  # fmt: skip


def value(r: random.Random, depth: int = 2) -> Any:
    """A random JSON value over few keys and scalars."""
    kind = r.random()
    if depth == 0 or kind < 0.5:
        return r.choice(SCALARS)
    if kind < 0.75:
        return {key: value(r, depth - 1) for key in r.sample(KEYS, r.randint(0, 3))}
    return [value(r, depth - 1) for _ in range(r.randint(0, 3))]


def _assertion(r: random.Random) -> dict[str, Any]:
    """A keyword without subschemas."""
    return r.choice(
        [
            {"type": r.choice(TYPES)},
            {"enum": [value(r, 1) for _ in range(r.randint(1, 3))]},
            {"const": value(r, 1)},
            {"required": r.sample(KEYS, r.randint(1, 2))},
            {"propertyNames": r.choice(NAMES)},
            {"minProperties": r.randint(0, 3)},
            {"maxProperties": r.randint(0, 3)},
            {"dependentRequired": {r.choice(KEYS): r.sample(KEYS, r.randint(1, 2))}},
            {"minItems": r.randint(0, 2)},
            {"maxItems": r.randint(0, 3)},
            {"uniqueItems": True},
            {r.choice(["minLength", "maxLength"]): r.randint(0, 2)},
            {
                r.choice(
                    ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"]
                ): r.choice([1, 2, 1.5])
            },
            {"pattern": r.choice(["^a", "b", "^$"])},
            {"$ref": r.choice(["#/$defs/x", "#/$defs/y"])},
        ]
    )


def _applicator(r: random.Random, depth: int) -> dict[str, Any]:
    """A keyword with subschemas."""

    def some(least: int, most: int) -> list[Any]:
        return [subschema(r, depth - 1) for _ in range(r.randint(least, most))]

    def keyed(keys: list[str], most: int) -> dict[str, Any]:
        return {key: subschema(r, depth - 1) for key in r.sample(keys, r.randint(1, most))}

    kind = r.randrange(13)
    if kind == 0:
        return {"properties": keyed(KEYS, 3)}
    if kind == 1:
        return {"additionalProperties": r.choice([False, False, subschema(r, depth - 1)])}
    if kind == 2:
        return {"patternProperties": keyed(["^a", "b$", "c", "^z$"], 2)}
    if kind == 3:
        return {"dependentSchemas": keyed(KEYS, 1)}
    if kind == 4:
        return {"items": subschema(r, depth - 1)}
    if kind == 5:
        return {"prefixItems": some(1, 2)}
    if kind == 6:
        bounds = {key: r.randint(0, 2) for key in ("minContains", "maxContains") if r.random() < 0.3}
        return {"contains": subschema(r, depth - 1), **bounds}
    if kind == 7:
        return {"not": subschema(r, depth - 1)}
    if kind == 8:
        branches = {key: subschema(r, depth - 1) for key in ("then", "else") if r.random() < 0.7}
        return {"if": subschema(r, depth - 1), **branches}
    if kind == 9:
        return {
            r.choice(["unevaluatedProperties", "unevaluatedItems"]): r.choice(
                [False, subschema(r, depth - 1)]
            )
        }
    return {r.choice(["allOf", "anyOf", "oneOf"]): some(1, 3)}


def subschema(r: random.Random, depth: int) -> Any:
    """A random schema nested at most so deep."""
    if depth == 0 or r.random() < 0.08:
        return r.choice(LEAVES)
    made: dict[str, Any] = {}
    for _ in range(r.choice([1, 1, 2, 2, 3])):
        made.update(_assertion(r) if r.random() < 0.5 else _applicator(r, depth))
    return made


def schema(r: random.Random) -> dict[str, Any]:
    """A random schema with two definitions that it may refer to."""
    made = subschema(r, 3)
    made = made if isinstance(made, dict) else {"allOf": [made]}
    return made | {"$defs": {"x": subschema(r, 1), "y": subschema(r, 2)}}


def documents(most: int) -> Iterator[str]:
    """Compact documents of up to ``most`` bytes over a few scalars and keys, shortest first."""
    scalars = ["null", "true", "false", *map(str, range(10)), "-1", "10", "1.5"]
    scalars += [json.dumps(s) for s in ("", "a", "b", "c", "z", "ab", " ", "!", "aa", "bbb")]
    keys = [json.dumps(k) for k in ("", "a", "b", "c", "z", "!", "ab")]
    by_length: dict[int, list[str]] = {}
    for length in range(1, most + 1):
        found = [s for s in scalars if len(s) == length]
        found += ["[]", "{}"] if length == 2 else []
        flat = [d for short in range(1, length) for d in by_length[short]]
        found += [f"[{v}]" for v in flat if len(v) == length - 2]
        found += [f"[{v},{w}]" for v, w in product(flat, flat) if len(v) + len(w) == length - 3]
        found += [f"{{{k}:{v}}}" for k, v in product(keys, flat) if len(k) + len(v) == length - 3]
        by_length[length] = found
        yield from found
