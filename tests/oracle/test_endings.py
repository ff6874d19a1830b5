"""The judges of endings notice every way in which an ending can be wrong."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine import constrain
from tests.oracle import documents, endings, schema_suite

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1},
        "größe": {"type": "integer", "minimum": 10, "maximum": 99},
        "tags": {"type": "array", "items": {"enum": ["a", "über"]}, "minItems": 1},
    },
    "required": ["name", "größe", "tags"],
    "additionalProperties": False,
}
CASES: list[dict[str, Any]] = [
    {
        "file": "person.json",
        "schema": PERSON,
        "tests": [
            {"valid": True, "data": {"tags": ["über"], "name": "Zoë 🙂", "größe": 42}},
            {"valid": False, "data": {}},
        ],
    },
    {"file": "flag.json", "schema": {"type": ["boolean", "null"]}, "tests": [{"valid": True, "data": False}]},
    {"file": "never.json", "schema": {"$ref": "http://example.org/none"}, "tests": []},
]


def written(folder: Path) -> Path:
    path = folder / "cases.jsonl"
    path.write_text("".join(json.dumps(case) + "\n" for case in CASES))
    return path


def run(folder: Path, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, dict[str, Any]]:
    """The command on the three cases; two of them are cut everywhere."""
    out = folder / "out.jsonl"
    options = ["--schemas", "2", "--documents", "3", "--cuts", "5", "--jobs", "1", "--out", str(out), *more]
    code = endings.main([str(written(folder)), *options])
    return code, json.loads(capsys.readouterr().out)


def test_endings_hold_everywhere_and_a_second_run_repeats_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = run(tmp_path, capsys)
    assert code == 0
    assert (found["schemas"], found["held"], found["refused"]) == (3, 2, 1)
    assert found["full"]["instances"] == 2
    assert found["full"]["walks"] == 6
    assert found["full"]["cuts"] > 100
    assert found["full"]["brute_forced"] > 0
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    (tmp_path / "out.jsonl").write_text("\n".join(lines[:2]) + "\n" + '{"file": "cut sho')
    assert run(tmp_path, capsys) == (0, {**found, "full": found["full"] | {}})
    (tmp_path / "out.jsonl").write_text(lines[0].replace("options", "other") + "\n")
    with pytest.raises(json.JSONDecodeError):  # it says so, and prints no summary
        run(tmp_path, capsys)


def change(monkeypatch: pytest.MonkeyPatch, ending: Callable[[constrain.Closing], constrain.Closing]) -> None:
    """Every matcher closes as ``ending`` says."""
    honest = constrain.Matcher.close
    monkeypatch.setattr(constrain.Matcher, "close", lambda self: ending(honest(self)))


def of(data: Callable[[bytes], bytes]) -> Callable[[constrain.Closing], constrain.Closing]:
    return lambda closing: dataclasses.replace(closing, data=data(closing.data))


FAULTS: dict[str, tuple[Callable[[constrain.Closing], constrain.Closing], str]] = {
    "unparseable": (of(lambda data: data[:-1]), "JSONDecodeError"),
    "longer": (of(lambda data: data + b" "), "the document goes on for"),
    "breaks the schema": (of(lambda data: data.replace(b":10", b":9")), "minimum"),
    "hides what it filled": (lambda closing: dataclasses.replace(closing, filled=()), "filled"),
    "names what is not there": (
        lambda closing: dataclasses.replace(closing, filled=(*closing.filled, "/x")),
        "no such value",
    ),
    "half a character": (of(lambda data: b"\xc3" + data), "UnicodeDecodeError"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_noticed(
    fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ending, words = FAULTS[fault]
    change(monkeypatch, ending)
    code, found = run(tmp_path, capsys)
    assert code == 1
    assert found["failed"] >= 1
    records = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()[1:]]
    assert any(words in text for record in records for text in record.get("failures", ()))


def test_an_ending_that_is_not_shortest_is_found_by_brute_force(monkeypatch: pytest.MonkeyPatch) -> None:
    examiner = endings.Examiner({"type": "integer"}, "x")
    constraint = constrain.compile("json_schema", {"type": "integer"}, endings.FREE)
    change(monkeypatch, lambda closing: constrain.Closing(b"00", closing.filled))
    examiner.brute(constraint, b"-1", "x")
    assert "shorter than 2 bytes" in examiner.found.failures[0]


class Halves:
    """A header whose tokens are two bytes each."""

    vocab: Halves

    def __init__(self, document: bytes) -> None:
        self.table = sorted({document[i : i + 2] for i in range(0, len(document), 2)})
        self.vocab = self

    def tokenize(self, document: bytes, *, special: bool) -> list[int]:
        return [self.table.index(document[i : i + 2]) for i in range(0, len(document), 2)]

    def detokenize_bytes(self, ids: list[int], *, special: bool) -> bytes:
        return b"".join(self.table[i] for i in ids)

    def token_bytes(self, token: int) -> bytes:
        return self.table[token]


def test_tokens_that_end_otherwise_than_their_bytes_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    document = json.dumps(CASES[0]["tests"][0]["data"], ensure_ascii=False).encode()
    header: Any = Halves(document)
    tokens = constrain.Tokens.from_bytes(header.table, [])
    constraint = constrain.compile("json_schema", PERSON, endings.FREE)
    examiner = endings.Examiner(PERSON, "x")
    ends = examiner.cut_everywhere(constraint, document, "x")
    examiner.by_tokens(constraint, document, header, tokens, "x", ends)
    assert examiner.found.failures == []
    assert examiner.found.counts["token_cuts"] == (len(document) + 1) // 2
    for fault in ({"data": b"}"}, {"filled": ("/name",)}):
        honest = constrain.Matcher.close
        with monkeypatch.context() as patch:
            patch.setattr(
                constrain.Matcher, "close", lambda self, h=honest, f=fault: dataclasses.replace(h(self), **f)
            )
            examiner.by_tokens(constraint, document, header, tokens, "x", ends)
        assert "tokens end otherwise than bytes" in examiner.found.failures.pop()
        examiner.found.failures.clear()


def test_every_cut_that_makes_a_known_text_answers_for_what_it_filled() -> None:
    examiner = endings.Examiner({"type": "array", "items": {"type": "integer"}}, "x")
    constraint = constrain.compile("json_schema", examiner.schema, endings.FREE)
    matcher, cuts = constrain.Matcher(constraint, None), endings.Cuts(b"[1,2]")
    matcher.commit_bytes(b"[1,2")
    examiner.hold(matcher, b"[1,2", constrain.Closing(b"]", ()), cuts, 1, "x")
    assert examiner.found.failures == []
    for filled, words in {("/2",): "no such value", ("",): "inside a value", ("/1", "/1"): "twice"}.items():
        examiner.hold(matcher, b"[1,2", constrain.Closing(b"]", filled), cuts, 1, "x")
        assert words in examiner.found.failures.pop()
    other = endings.Cuts(b"[3,2]")
    examiner.hold(matcher, b"[1,2", constrain.Closing(b"]", ()), other, 1, "x")
    assert "did not write" in examiner.found.failures.pop()


def test_one_schema_alone_is_cut_as_among_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = run(tmp_path, capsys, "--only", "flag.json")
    assert (code, found["schemas"], found["full"]["instances"], found["full"]["walks"]) == (0, 1, 1, 3)
    assert endings.main([str(written(tmp_path)), "--only", "gone.json"]) == 2
    assert "has no gone.json" in capsys.readouterr().err


def test_a_schema_whose_process_dies_or_hangs_is_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def examine(case: dict[str, Any], *given: Any, **more: Any) -> dict[str, Any]:
        if case["file"] == "flag.json":
            os._exit(3)
        if case["file"] == "never.json":
            time.sleep(600)
        return {"state": "held"}

    monkeypatch.setattr(endings, "examine", examine)
    code, found = run(tmp_path, capsys, "--limit-s", "5")
    assert (code, found["crash"], found["timeout"], found["held"]) == (1, 1, 1, 1)


def test_strata_are_the_features_of_a_schema() -> None:
    assert documents.features(PERSON) >= {
        "minLength",
        "non-ascii",
        "enum",
        "minItems",
        "additionalProperties",
    }
    assert documents.features(True) == {"other"}
    assert endings.draw(CASES, 2) == {"person.json", "flag.json"}


def test_python_s_reading_of_a_pattern_alone_refuses_nothing() -> None:
    pytest.importorskip("regress", reason="the [test] extra is not installed")
    judge = documents.Judge({"type": "string", "pattern": r"^\p{Lu}\/$"})
    assert judge.fault("Ä/") is None
    assert judge.excused == 1
    assert "does not match" in str(judge.fault("ä/"))
    plain = documents.Judge({"type": "string", "pattern": "^a$"})
    assert plain.fault("a") is None
    assert plain.excused == 0


def test_a_multiple_is_judged_as_the_decimal_number_that_it_is() -> None:
    judge = documents.Judge({"multipleOf": 0.01})
    assert judge.fault(75.1) is None
    assert judge.excused == 1
    assert "is not a multiple" in str(judge.fault(75.105))


# ---- The draft's own suite ---------------------------------------------------------------------------


def test_the_suite_is_judged_by_file_and_numbers_keep_their_text() -> None:
    schema = {"type": "number", "maximum": schema_suite.Number("1e2")}
    big = schema_suite.Number("1" + "0" * 400)
    tests = [
        {"description": "small", "data": schema_suite.Number("100.0"), "valid": True},
        {"description": "huge", "data": big, "valid": False},
        {"description": "a lie", "data": big, "valid": True},
    ]
    group = {"description": "bounds", "schema": schema, "tests": tests}
    remote = {"description": "remote", "schema": {"$ref": "http://localhost:1234/x.json"}, "tests": tests}
    found = schema_suite.judge("maximum", [group, remote])
    assert (found.groups, found.compiled, found.tests, found.right) == (2, 1, 3, 2)
    assert found.wrong == ["maximum: bounds: a lie: rejected"]
    assert sum(found.refused.values()) == 1
    assert "| maximum | 2 | 1 |" in "\n".join(schema_suite.table([found]))


def test_another_archive_than_the_pinned_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "jsonschema-4.26.0.tar.gz").write_bytes(b"other")
    with pytest.raises(schema_suite.SuiteError, match="the pin is"):
        schema_suite.fetch(tmp_path)
    assert schema_suite.main(["--cache", str(tmp_path)]) == 2


def test_the_page_has_the_place_of_the_table() -> None:
    text = schema_suite.PAGE.read_text(encoding="utf-8")
    assert schema_suite.page([schema_suite.Keyword("x")], text).count("| x | 0 |") == 1
    with pytest.raises(schema_suite.SuiteError, match="lacks"):
        schema_suite.page([], "nothing")
