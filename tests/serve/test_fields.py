"""The three lists of request fields: what they say is what the server does, and what the page prints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.serve import fields
from engine.serve.errors import ApiError

PAGE = Path(__file__).parents[2] / "docs" / "serve.md"


def refusal(body: dict[str, Any], surface: str = fields.CHAT) -> ApiError:
    with pytest.raises(ApiError) as caught:
        fields.parse(body, surface)
    assert caught.value.status == 400
    return caught.value


def test_page_prints_the_lists() -> None:
    page = PAGE.read_text(encoding="utf-8")
    printed = page.split("tests/serve/test_fields.py -->\n")[1].split("<!-- end of fields -->")[0]
    assert printed == fields.tables()


@pytest.mark.parametrize("surface", fields.BOTH)
def test_no_field_stands_on_two_lists(surface: str) -> None:
    names = [row.name for rows in fields.LISTS.values() for row in rows if surface in row.surfaces]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("surface", fields.BOTH)
@pytest.mark.parametrize(
    "name", ["nonsense", "max_output_tokens", "images", "reasoning_effort", "Temperature", ""]
)
def test_other_fields_are_named(surface: str, name: str) -> None:
    error = refusal({name: None}, surface)
    assert (error.code, error.param) == ("unknown_field", name)


def test_endpoints_do_not_share_each_others_fields() -> None:
    error = refusal({"prompt": "x"}, fields.CHAT)
    assert error.code == "unknown_field"
    assert error.message == "prompt: this field belongs to /v1/completions, not to /v1/chat/completions"
    error = refusal({"messages": []}, fields.COMPLETIONS)
    assert error.code == "unknown_field"
    assert error.message == "messages: this field belongs to /v1/chat/completions, not to /v1/completions"
    assert refusal({"mesages": []}, fields.CHAT).message == "mesages: this field is not known here"


@pytest.mark.parametrize(
    "row", [*fields.IMPLEMENTED, *fields.IGNORED, *fields.NEUTRAL], ids=lambda row: row.name
)
def test_null_is_absent(row: fields.Field) -> None:
    assert fields.parse({row.name: None}, row.surfaces[0]) == {}


NEUTRAL: dict[str, list[Any]] = {
    "n": [1],
    "best_of": [1],
    "logit_bias": [{}],
    "suffix": [""],
    "tools": [[]],
    "tool_choice": ["none", "auto"],
    "functions": [[]],
    "function_call": ["none", "auto"],
    "response_format": [{"type": "text"}],
    "modalities": [["text"]],
    "verbosity": ["medium"],
}
LOADED: dict[str, list[Any]] = {
    "n": [0, 2, True, "1"],
    "best_of": [2],
    "logit_bias": [{"50256": -100}],
    "suffix": [")"],
    "tools": [[{"type": "function"}]],
    "tool_choice": ["required", {"type": "function"}],
    "functions": [[{"name": "f"}]],
    "function_call": [{"name": "f"}],
    "response_format": [{"type": "json_object"}, {"type": "text", "strict": True}, "text"],
    "modalities": [["text", "audio"], ["audio"], []],
    "verbosity": ["low", "high"],
}


@pytest.mark.parametrize("row", fields.NEUTRAL, ids=lambda row: row.name)
def test_neutral_fields_take_their_neutral_value_only(row: fields.Field) -> None:
    for surface in row.surfaces:
        for value in NEUTRAL[row.name]:
            assert fields.parse({row.name: value}, surface) == {}
        for value in LOADED[row.name]:
            assert refusal({row.name: value}, surface).param == row.name


IGNORED: dict[str, tuple[Any, Any]] = {
    "user": ("u", 7),
    "safety_identifier": ("s", {}),
    "metadata": ({"a": "b"}, "a=b"),
    "store": (False, True),
    "service_tier": ("flex", 1),
    "prompt_cache_key": ("k", []),
    "prompt_cache_retention": ("24h", 24),
    "parallel_tool_calls": (True, "yes"),
}


@pytest.mark.parametrize("row", fields.IGNORED, ids=lambda row: row.name)
def test_ignored_fields_do_nothing_but_have_a_type(row: fields.Field) -> None:
    good, bad = IGNORED[row.name]
    for surface in row.surfaces:
        assert fields.parse({row.name: good}, surface) == {}
        assert refusal({row.name: bad}, surface).param == row.name


BAD: list[tuple[str, str, Any, str]] = [
    (fields.CHAT, "model", 3, "invalid_type"),
    (fields.CHAT, "stream", "true", "invalid_type"),
    (fields.CHAT, "stream", 1, "invalid_type"),
    (fields.CHAT, "stream_options", True, "invalid_type"),
    (fields.CHAT, "stream_options", {"include_usage": 1}, "invalid_type"),
    (fields.CHAT, "stream_options", {"other": 1}, "unknown_field"),
    (fields.CHAT, "stream_options", {"include_obfuscation": True}, "unsupported_value"),
    (fields.CHAT, "max_tokens", 0, "out_of_range"),
    (fields.CHAT, "max_tokens", 1.0, "invalid_type"),
    (fields.CHAT, "max_tokens", True, "invalid_type"),
    (fields.CHAT, "max_completion_tokens", 2**31, "out_of_range"),
    (fields.CHAT, "temperature", -0.001, "out_of_range"),
    (fields.CHAT, "temperature", 2.001, "out_of_range"),
    (fields.CHAT, "temperature", 10**400, "out_of_range"),
    (fields.CHAT, "temperature", "1", "invalid_type"),
    (fields.CHAT, "top_p", 1.5, "out_of_range"),
    (fields.CHAT, "top_k", -1, "out_of_range"),
    (fields.CHAT, "min_p", -1, "out_of_range"),
    (fields.CHAT, "presence_penalty", 2.5, "out_of_range"),
    (fields.CHAT, "frequency_penalty", -2.5, "out_of_range"),
    (fields.CHAT, "repeat_penalty", 0.009, "out_of_range"),
    (fields.CHAT, "seed", 2**64, "out_of_range"),
    (fields.CHAT, "seed", 1.5, "invalid_type"),
    (fields.CHAT, "stop", ["a"] * 5, "out_of_range"),
    (fields.CHAT, "stop", {"a": 1}, "invalid_type"),
    (fields.CHAT, "logprobs", 5, "invalid_type"),
    (fields.CHAT, "top_logprobs", 21, "out_of_range"),
    (fields.COMPLETIONS, "logprobs", True, "invalid_type"),
    (fields.COMPLETIONS, "logprobs", 21, "out_of_range"),
    (fields.COMPLETIONS, "max_tokens", -1, "out_of_range"),
    (fields.COMPLETIONS, "echo", 1, "invalid_type"),
]


@pytest.mark.parametrize(("surface", "name", "value", "code"), BAD)
def test_wrong_types_and_ranges_name_the_field(surface: str, name: str, value: Any, code: str) -> None:
    error = refusal({name: value}, surface)
    assert error.code == code
    assert error.param is not None
    assert error.param.startswith(name)
    assert error.message.startswith(error.param)


@pytest.mark.parametrize(("value", "param"), [("", "stop"), (["a", ""], "stop[1]"), ([1], "stop[0]")])
def test_bad_stop_strings_are_named(value: Any, param: str) -> None:
    assert refusal({"stop": value}).param == param


def test_edges_are_taken() -> None:
    body = {
        "temperature": 0,
        "top_p": 0,
        "min_p": 1,
        "seed": 2**64 - 1,
        "stop": ["a"] * 4,
        "top_logprobs": 20,
    }
    assert fields.parse(body, fields.CHAT) == {**body, "stop": ("a",) * 4}


def test_messages_quote_little_of_a_huge_value() -> None:
    assert len(refusal({"x" * 10_000: 1}).message) < 300
    assert len(refusal({"temperature": 10**10_000}).message) < 300
