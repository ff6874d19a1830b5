"""The schema compiler against jsonschema: random schemas and values, and shortest documents by search."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from engine import constrain
from tests.engine.constrain import schemas
from tests.engine.constrain.programs import Compiler, Program, compiling, load

VALUES = 30  # looked at under each schema
REFUSED_BY_NAME = (
    "uniqueItems",
    "contains",
    "multiply",
    "refers to itself",
    "lead in a circle",
    "alternatives at one",
)


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compiler]:
    with compiling(tmp_path_factory.mktemp("dump"), formats=False) as made:
        yield made


@pytest.fixture(scope="module")
def small() -> list[str]:
    """All small documents, shortest first."""
    return list(schemas.documents(6))


def valid(validator: jsonschema.protocols.Validator, value: Any) -> bool | None:
    """jsonschema's verdict; None where it does not end."""
    try:
        return validator.is_valid(value)
    except RecursionError:
        return None
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # what rpds makes of a RecursionError
            raise
        return None


def check(compiler: Compiler, seed: int) -> Program | None:
    """One random schema; its program, None where it was refused by name."""
    r = random.Random(seed)
    schema = schemas.schema(r)
    validator = jsonschema.Draft202012Validator(schema)
    status, text = compiler(schema)
    values = [schemas.value(r) for _ in range(VALUES)]
    verdicts = [valid(validator, v) for v in values]
    if status != 0:
        if "no finite document" in text:
            assert not any(verdicts), f"seed {seed}: {text}: {json.dumps(schema)}"
        else:
            assert any(name in text for name in REFUSED_BY_NAME), f"seed {seed}: {text}"
        return None
    program = Program(text)
    for value, verdict in zip(values, verdicts, strict=True):
        if verdict is not None:
            assert program.admits(load(json.dumps(value))) == verdict, (
                f"seed {seed}: {value} {json.dumps(schema)}"
            )
    return program


def shortest(program: Program, small: list[str], seed: int) -> bool:
    """No small document is shorter than the cost says; whether one of that length was found."""
    for text in small:
        if program.admits(load(text)):
            assert program.cost <= len(text), f"seed {seed}: cost {program.cost}, but {text}"
            return program.cost == len(text)
    return False


@pytest.mark.parametrize("seeds", [range(0, 150)])
def test_random_schemas_admit_what_jsonschema_does(
    compiler: Compiler, small: list[str], seeds: range
) -> None:
    made = [(seed, program) for seed in seeds if (program := check(compiler, seed)) is not None]
    assert len(made) > len(seeds) // 2
    met = sum(shortest(program, small, seed) for seed, program in made)
    assert met > len(made) * 0.9


@pytest.mark.slow
@pytest.mark.parametrize("start", range(1000, 11000, 1000))
def test_many_random_schemas(compiler: Compiler, small: list[str], start: int) -> None:
    for seed in range(start, start + 1000):
        program = check(compiler, seed)
        if program is not None and seed % 4 == 0:
            shortest(program, small, seed)


DRAFT_4 = "http://json-schema.org/draft-04/schema#"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"
CASES: list[tuple[object, list[object], list[object]]] = [
    ({"$schema": DRAFT_4, "minimum": 1, "exclusiveMinimum": True}, [2, 1.5], [1, 0]),
    ({"$schema": DRAFT_4, "type": "integer"}, [1], [1.5]),
    ({"$schema": DRAFT_4, "const": 1}, [1, 2], []),
    (
        {
            "$schema": DRAFT_7,
            "$ref": "#/definitions/a",
            "type": "null",
            "definitions": {"a": {"type": "string"}},
        },
        ["x"],
        [None],
    ),
    ({"$ref": "#/$defs/a", "maxLength": 1, "$defs": {"a": {"type": "string"}}}, ["x"], ["xy", 1]),
    ({"items": [{"type": "null"}], "additionalItems": False}, [[], [None]], [[1], [None, 1]]),
    (
        {"dependencies": {"a": ["b"], "c": {"required": ["d"]}}},
        [{"b": 1}, {"a": 1, "b": 2}],
        [{"a": 1}, {"c": 1}],
    ),
    ({"enum": [1, {"a": [1.0]}]}, [1, 1.0, {"a": [1]}], [2, {"a": [2]}, {"a": [1], "b": 1}]),
    ({"$id": "http://x/a/", "$ref": "b", "$defs": {"b": {"$id": "b", "const": 1}}}, [1], [2]),
    ({"$ref": "#n~1%25", "$defs": {"n": {"$anchor": "n~1%", "const": 1}}}, [1], [2]),
    ({"$ref": "#/$defs/a~1b~0%22", "$defs": {'a/b~"': {"const": 1}}}, [1], [2]),
    ({"unknown": {"a": {"const": 1}}, "$ref": "#/unknown/a"}, [1], [2]),
    (
        {
            "unevaluatedProperties": False,
            "anyOf": [{"unevaluatedProperties": {"required": ["ab"]}}, {"type": "object"}],
        },
        [{"b": 1}, {"b": {"ab": 1}}],
        [{"b": {}}],
    ),
    ({"$dynamicRef": "#n", "$defs": {"n": {"$dynamicAnchor": "n", "const": 1}}}, [1], [2]),
]


@pytest.mark.parametrize(("schema", "inside", "outside"), CASES)
def test_drafts_and_references(
    compiler: Compiler, schema: object, inside: list[object], outside: list[object]
) -> None:
    status, text = compiler(schema)
    assert status == 0, text
    program = Program(text)
    assert [v for v in inside if not program.admits(load(json.dumps(v)))] == []
    assert [v for v in outside if program.admits(load(json.dumps(v)))] == []


def test_what_is_not_known_is_noted(tmp_path: Path) -> None:
    with compiling(tmp_path, formats=True) as compiler:
        status, text = compiler({"properties": {"a": {"format": "colour"}}})
    assert status == 0
    assert Program(text).notes == [
        {
            "pointer": "/properties/a",
            "keyword": "format",
            "note": 'the format "colour" is not known: an annotation',
        }
    ]


def test_what_needs_most_memory_is_refused_below_half_a_gibibyte() -> None:
    heavy = {"type": "string", "pattern": r"\p{L}{1,200}", "maxLength": 4096}
    with pytest.raises(constrain.ConstraintError, match="bytes to compile") as caught:
        constrain.Constraint("json_schema", json.dumps(heavy).encode())
    found = re.search(r"more than ([0-9]+) bytes", str(caught.value))
    assert found is not None
    assert int(found[1]) <= 480 << 20  # what the process has besides fits beside it


def test_many_different_objects_are_refused_as_what_they_are() -> None:
    schema = {"type": "array", "uniqueItems": True, "minItems": 60, "items": {"type": "object"}}
    with pytest.raises(constrain.ConstraintError, match='keyword "uniqueItems"'):
        constrain.Constraint("json_schema", json.dumps(schema).encode())
