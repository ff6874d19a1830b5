"""Bodies become typed requests, or a refusal that names the field; never another exception."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.serve import fields
from engine.serve.body import parse_object
from engine.serve.errors import ApiError
from engine.serve.requests import chat_request, check_model, completion_request

USER = {"role": "user", "content": "hi"}


def chat_param(body: dict[str, Any]) -> str | None:
    with pytest.raises(ApiError) as caught:
        chat_request(body)
    return caught.value.param


def prompt_param(prompt: Any) -> str | None:
    with pytest.raises(ApiError) as caught:
        completion_request({"prompt": prompt})
    return caught.value.param


def test_defaults_are_those_of_the_openai_api() -> None:
    options = chat_request({"messages": [USER]}).options
    assert (options.temperature, options.top_p, options.top_k, options.min_p) == (1.0, 1.0, 0, 0.0)
    assert (options.presence_penalty, options.frequency_penalty, options.repeat_penalty) == (0.0, 0.0, 1.0)
    assert (options.max_tokens, options.stop, options.logprobs, options.stream) == (None, (), None, False)
    assert completion_request({"prompt": "x"}).options.max_tokens == 16


def test_drawn_seeds_differ_and_given_seeds_are_kept_modulo_two_to_the_64() -> None:
    assert len({chat_request({"messages": [USER]}).options.seed for _ in range(4)}) == 4
    assert chat_request({"messages": [USER], "seed": 7}).options.seed == 7
    assert chat_request({"messages": [USER], "seed": -1}).options.seed == 2**64 - 1
    assert chat_request({"messages": [USER], "seed": 0}).options.seed == 0


def test_roles_and_parts() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    request = chat_request(
        {"messages": [{"role": "developer", "content": "d"}, {"role": "user", "content": parts}]}
    )
    assert request.messages == [{"role": "system", "content": "d"}, {"role": "user", "content": "ab"}]


def test_an_answer_of_the_sdk_can_be_sent_back() -> None:
    empty: dict[str, Any] = {"refusal": None, "tool_calls": None, "annotations": [], "audio": None}
    answer = {"role": "assistant", "content": "a", **empty}
    assert chat_request({"messages": [USER, answer]}).messages[1] == {"role": "assistant", "content": "a"}


def test_an_answer_without_text_can_be_sent_back() -> None:
    answer = {"role": "assistant", "content": None, "refusal": None, "tool_calls": None}
    assert chat_request({"messages": [USER, answer]}).messages[1] == {"role": "assistant", "content": ""}


BAD_MESSAGES: list[tuple[Any, str]] = [
    ([], "messages"),
    ("hi", "messages"),
    (["hi"], "messages[0]"),
    ([{"content": "x"}], "messages[0].role"),
    ([{"role": "function", "content": "x", "name": "f"}], "messages[0].role"),
    ([{"role": "tool", "content": "x"}], "messages[0].tool_call_id"),
    ([{"role": "tool", "content": "x", "tool_call_id": "1"}], "messages[0].tool_call_id"),
    ([{**USER, "tool_calls": [{"id": "1"}]}], "messages[0].tool_calls"),
    ([{"role": ["user"], "content": "x"}], "messages[0].role"),
    ([USER, {"role": "user"}], "messages[1].content"),
    ([{"role": "user", "content": None}], "messages[0].content"),
    ([{"role": "user", "content": []}], "messages[0].content"),
    ([{"role": "user", "content": ["x"]}], "messages[0].content[0]"),
    ([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}], "messages[0].content[0].type"),
    ([{"role": "user", "content": [{"type": "text", "text": 1}]}], "messages[0].content[0].text"),
    ([{"role": "user", "content": [{"type": "text", "text": "x", "y": 1}]}], "messages[0].content[0].y"),
    ([{"role": "assistant", "content": "", "tool_calls": [{}]}], "messages[0].tool_calls[0].function"),
    ([{"role": "assistant", "content": "", "tool_calls": {}}], "messages[0].tool_calls"),
    ([{"role": "tool", "content": "", "tool_call_id": 5, "name": "f"}], "messages[0].tool_call_id"),
    ([{**USER, "weight": 1}], "messages[0].weight"),
    ([{**USER, "name": 1}], "messages[0].name"),
]


@pytest.mark.parametrize(("messages", "param"), BAD_MESSAGES)
def test_bad_messages_are_named(messages: Any, param: str) -> None:
    assert chat_param({"messages": messages}) == param


def test_an_empty_list_is_a_wrong_value_and_not_a_wrong_type() -> None:
    for parse, name in ((chat_request, "messages"), (completion_request, "prompt")):
        with pytest.raises(ApiError) as caught:
            parse({name: []})
        assert (caught.value.code, caught.value.param) == ("invalid_value", name)
        with pytest.raises(ApiError) as caught:
            parse({name: 5})
        assert (caught.value.code, caught.value.param) == ("invalid_type", name)


def test_fields_that_need_each_other() -> None:
    assert chat_param({"messages": [USER], "top_logprobs": 3}) == "top_logprobs"
    assert chat_param({"messages": [USER], "stream_options": {"include_usage": True}}) == "stream_options"
    assert chat_param({"messages": [USER], "max_tokens": 3, "max_completion_tokens": 4}) == "max_tokens"
    both = chat_request({"messages": [USER], "max_tokens": 3, "max_completion_tokens": 3})
    assert both.options.max_tokens == 3
    assert chat_request({"messages": [USER], "logprobs": True}).options.logprobs == 0
    assert (
        chat_request({"messages": [USER], "logprobs": False, "top_logprobs": None}).options.logprobs is None
    )


@pytest.mark.parametrize(
    ("prompt", "parsed"),
    [("a", ["a"]), ([1, 2], [[1, 2]]), (["a", "b"], ["a", "b"]), ([[1], [2, 3]], [[1], [2, 3]])],
)
def test_prompts(prompt: Any, parsed: Any) -> None:
    assert completion_request({"prompt": prompt}).prompts == parsed


@pytest.mark.parametrize(
    ("prompt", "param"),
    [
        ([], "prompt"),
        ({}, "prompt"),
        ([1, "a"], "prompt[0]"),
        ([True], "prompt[0]"),
        ([["a"]], "prompt[0]"),
        (["a"] * (fields.MAX_PROMPTS + 1), "prompt"),
    ],
)
def test_bad_prompts_are_named(prompt: Any, param: str) -> None:
    assert prompt_param(prompt) == param


def test_unknown_models_are_404() -> None:
    check_model(None, ("m",))
    check_model("m", ("m",))
    with pytest.raises(ApiError) as caught:
        check_model("gpt-4o", ("m",))
    assert (caught.value.status, caught.value.code) == (404, "model_not_found")


NOT_STRICT = [
    b"",
    b"[]",
    b'"x"',
    b"null",
    b"{",
    b'{"a":1,"a":2}',
    b'{"a":NaN}',
    b'{"a":-Infinity}',
    b'{"a":1e999}',
    b"\xff{}",
    b'{"a":"\\ud800"}',
    b"\xef\xbb\xbf{}",
    b'{"a":' + b"[" * 100 + b"]" * 100 + b"}",
    b"{}{}",
    b'{"a":' + b"9" * 5000 + b"}",
    "{}".encode("utf-16"),
    b"{'a':1}",
    b'{"a":01}',
    b'{"a":"\x00"}',
]


@pytest.mark.parametrize("raw", NOT_STRICT)
def test_bodies_that_are_not_strict_objects(raw: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        parse_object(raw)
    assert (caught.value.status, caught.value.code) == (400, "invalid_json")
    assert len(caught.value.message) < 400


SCALAR = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
JSON = st.recursive(
    SCALAR,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)
NAMES = sorted({row.name for rows in fields.LISTS.values() for row in rows})
ROLE = st.sampled_from(["user", "system", "assistant", "tool"]) | JSON
MESSAGE = st.fixed_dictionaries({}, optional={"role": ROLE, "content": JSON, "name": JSON})
BODY = st.dictionaries(st.sampled_from(NAMES), JSON, max_size=5) | st.fixed_dictionaries(
    {"messages": st.lists(MESSAGE)}
)


def refusal_of(read: Any, given: Any) -> ApiError | None:
    try:
        read(given)
    except ApiError as error:
        return error
    return None


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(BODY, st.sampled_from([chat_request, completion_request]))
def test_any_body_is_a_request_or_a_refusal(body: dict[str, Any], read: Any) -> None:
    error = refusal_of(read, body)
    if error is not None:
        assert error.status == 400
        assert set(error.body()["error"]) == {"message", "type", "param", "code"}


@given(st.binary(max_size=64) | JSON.map(lambda value: repr(value).encode("utf-8", "surrogatepass")))
def test_any_bytes_are_an_object_or_a_refusal(raw: bytes) -> None:
    error = refusal_of(parse_object, raw)
    assert error is None or error.status == 400


TOOL = {"type": "function", "function": {"name": "f"}}


@pytest.mark.parametrize(
    ("entry", "param"),
    [
        ({"type": "custom", "function": {"name": "f"}}, "type"),
        ({"function": {"name": "f"}}, "type"),
        ({**TOOL, "strict": True}, "strict"),
        ({"type": "function", "function": {"name": "f", "x": 1}}, "function.x"),
        ({"type": "function", "function": {"name": "g"}}, "function.name"),
    ],
    ids=str,
)
def test_an_allowed_tool_is_a_function_of_the_request(entry: Any, param: str) -> None:
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [entry]}}
    found = chat_param({"messages": [USER], "tools": [TOOL], "tool_choice": choice})
    assert found == f"tool_choice.allowed_tools.tools[0].{param}"


class Name(str):
    """Counts comparisons."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Name.compared += 1
        return super().__eq__(other)

    __hash__ = str.__hash__


def test_names_of_many_tools_are_not_compared_with_each_other() -> None:
    tools = [{"type": "function", "function": {"name": Name(f"f{i}")}} for i in range(2000)]
    chosen = {"mode": "required", "tools": tools}
    choice = {"type": "allowed_tools", "allowed_tools": chosen}
    request = chat_request({"messages": [USER], "tools": tools, "tool_choice": choice})
    assert request.tools is not None
    assert len(request.tools.callable) == 2000
    assert Name.compared < 20_000
