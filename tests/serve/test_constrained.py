"""The openai SDK's structured outputs and tool calls against the server, on a tiny model."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import jsonschema
import openai
import pytest
from openai.lib.streaming.chat import ContentDoneEvent, FunctionToolCallArgumentsDoneEvent
from pydantic import BaseModel, Field

from engine import Model
from tests.serve.fakes import HTTP
from tests.serve.process import Served, served

MESSAGES: Any = [{"role": "user", "content": "Tell me about é and 日本."}]


class Address(BaseModel):
    street: str = Field(max_length=12)
    zip: str | None


class Node(BaseModel):
    """Recursive, and optional: any depth is legal."""

    label: Literal["länge", "breite"]
    child: Node | None
    marks: list[Annotated[int, Field(ge=0, le=99)]] = Field(max_length=2)


class Person(BaseModel):
    name: str = Field(max_length=12)
    address: Address
    tree: Node | None
    nick: str | None = Field(max_length=4)
    age: int | None = Field(ge=0, le=120)


SHAPES: list[type[BaseModel]] = [Address, Node, Person]
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the current weather for a city.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "maxLength": 20},
                "units": {"type": "string", "enum": ["celsius", "fahrenheit"]},
            },
            "required": ["city", "units"],
            "additionalProperties": False,
        },
    },
}
TREE: Any = {
    "type": "function",
    "function": {"name": "plant", "strict": True, "parameters": Node.model_json_schema()},
}
NOW: Any = {"type": "function", "function": {"name": "now"}}
SCHEMAS = {
    "get_weather": WEATHER["function"]["parameters"],
    "plant": Node.model_json_schema(),
    "now": {"type": "object", "maxProperties": 0},
}


@pytest.fixture(scope="module", params=["llama-f32", "gemma3-f32"])
def server(tiny_model: Callable[[str], Path], request: pytest.FixtureRequest) -> Iterator[Served]:
    path = tiny_model(request.param)
    with served("-m", str(path), "-t", "1", "-c", "3072", "--alias", "tiny") as running:
        yield running
        assert running.health()["failed"] == 0, "".join(running.log)


@pytest.fixture(scope="module")
def client(server: Served) -> Iterator[openai.OpenAI]:
    with server.client() as made:
        yield made


@pytest.mark.parametrize("shape", SHAPES)
def test_parse_gives_an_object_or_the_sdks_own_error_with_a_document(
    client: openai.OpenAI, shape: type[BaseModel]
) -> None:
    """Acceptance 6: whatever the budget, what came parses and validates."""
    ends = set()
    for budget in (1, 2, 3, 5, 8, 13, 21, 34, 55, 600):
        for seed in range(1, 7 if budget == 600 else 3):
            options: Any = {"model": "tiny", "messages": MESSAGES, "max_tokens": budget, "seed": seed}
            try:
                answer = client.chat.completions.parse(**options, response_format=shape)
                choice = answer.choices[0]
                assert isinstance(choice.message.parsed, shape)
            except openai.LengthFinishReasonError as error:
                choice = error.completion.choices[0]  # type: ignore[assignment]
            ends.add(choice.finish_reason)
            extension = choice.model_extra["gaugeblock"] if choice.model_extra else None
            assert extension["truncated"] == (choice.finish_reason == "length")
            if choice.message.content:
                shape.model_validate_json(choice.message.content)
    assert ends == {"stop", "length"}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_streaming_helper_gives_what_parse_gives(client: openai.OpenAI, shape: type[BaseModel]) -> None:
    for budget, seed in ((300, 1), (300, 2), (9, 1), (25, 2)):
        options: Any = {"model": "tiny", "messages": MESSAGES, "max_tokens": budget, "seed": seed}
        plain = client.chat.completions.create(
            **options,
            response_format={
                "type": "json_schema",
                "json_schema": {"name": "x", "schema": _strict(shape), "strict": True},
            },
        ).choices[0]
        try:
            with client.chat.completions.stream(**options, response_format=shape) as stream:
                done = [event for event in stream if isinstance(event, ContentDoneEvent)]
                final = stream.get_final_completion().choices[0]
        except openai.LengthFinishReasonError as error:
            choice = error.completion.choices[0]
            assert choice.message.content == plain.message.content
            assert plain.finish_reason == "length"
            continue
        assert isinstance(done[0].parsed, shape)
        assert final.message.content == plain.message.content
        assert final.finish_reason == plain.finish_reason == "stop"


def _strict(shape: type[BaseModel]) -> Any:
    from openai.lib._pydantic import to_strict_json_schema

    return to_strict_json_schema(shape)


def answer_of(client: openai.OpenAI, **options: Any) -> Any:
    """The buffered answer, after a look at the stream of the same request: both hold the same."""
    given: Any = {"model": "tiny", "messages": MESSAGES, "seed": 1, **options}
    whole = client.chat.completions.create(**given)
    usage = {"include_usage": True}
    chunks = list(client.chat.completions.create(**given, stream=True, stream_options=usage))
    *parts, last = chunks
    assert last.usage == whole.usage
    choice, message = whole.choices[0], whole.choices[0].message
    deltas = [part.choices[0].delta for part in parts]
    assert "".join(delta.content or "" for delta in deltas) == (message.content or "")
    calls: list[list[str]] = []
    for call in (call for delta in deltas for call in delta.tool_calls or ()):
        if call.index == len(calls):
            assert call.id
            assert call.type == "function"
            calls.append([call.function.name, ""])
        calls[call.index][1] += call.function.arguments or ""
    assert calls == [[call.function.name, call.function.arguments] for call in message.tool_calls or ()]
    end = parts[-1].choices[0]
    assert end.finish_reason == choice.finish_reason
    assert end.model_extra == {"gaugeblock": choice.model_extra["gaugeblock"]}
    return choice


def check_calls(choice: Any, allowed: set[str]) -> None:
    notes = choice.model_extra["gaugeblock"].get("tool_calls", [])
    calls = choice.message.tool_calls or []
    assert [note["index"] for note in notes] == list(range(len(calls)))
    for call, note in zip(calls, notes, strict=True):
        assert call.function.name in allowed
        jsonschema.validate(json.loads(call.function.arguments), SCHEMAS[call.function.name])
        assert note["truncated"] or note["filled"] == []


@pytest.mark.parametrize("parallel", [None, True])
def test_a_required_call_is_whole_at_every_budget(client: openai.OpenAI, parallel: bool | None) -> None:
    ends = set()
    for budget in (*range(1, 24, 2), 40, 200):
        choice = answer_of(
            client,
            tools=[WEATHER, TREE, NOW],
            tool_choice="required",
            max_tokens=budget,
            **({} if parallel is None else {"parallel_tool_calls": parallel}),
        )
        assert choice.message.content is None
        assert choice.message.tool_calls
        check_calls(choice, set(SCHEMAS))
        ends.add(choice.finish_reason)
    assert "length" in ends


def test_choices_of_tools(client: openai.OpenAI) -> None:
    tools = [WEATHER, TREE, NOW]
    named = {"type": "function", "function": {"name": "now"}}
    choice = answer_of(client, tools=tools, tool_choice=named, max_tokens=60)
    assert [call.function.name for call in choice.message.tool_calls] == ["now"]
    assert choice.message.tool_calls[0].function.arguments == "{}"
    assert choice.finish_reason == "tool_calls"
    rows = [{"type": "function", "function": {"name": name}} for name in ("now", "plant")]
    for mode in ("required", "auto"):
        allowed = {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": rows}}
        for seed in range(6):
            choice = answer_of(client, tools=tools, tool_choice=allowed, max_tokens=50, seed=seed)
            check_calls(choice, {"now", "plant"})
            assert choice.message.tool_calls or mode == "auto"
    plain = client.chat.completions.create(
        model="tiny", messages=MESSAGES, tools=tools, tool_choice="none", max_tokens=9, seed=1
    )
    same = client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=9, seed=1)
    assert plain.choices[0].message.content == same.choices[0].message.content
    assert plain.choices[0].message.tool_calls is None


def test_the_streaming_helper_parses_arguments(client: openai.OpenAI) -> None:
    tool = openai.pydantic_function_tool(Node, name="plant")
    whole = 0
    for seed in range(6):
        options: Any = {"tools": [tool], "tool_choice": "required", "max_tokens": 400, "seed": seed}
        try:
            with client.chat.completions.stream(model="tiny", messages=MESSAGES, **options) as stream:
                done = [event for event in stream if isinstance(event, FunctionToolCallArgumentsDoneEvent)]
                final = stream.get_final_completion()
        except openai.LengthFinishReasonError as error:
            for call in error.completion.choices[0].message.tool_calls or ():
                Node.model_validate_json(call.function.arguments)
            continue
        assert final.choices[0].finish_reason == "tool_calls"
        assert isinstance(done[0].parsed_arguments, Node)
        whole += 1
    assert whole


def test_many_tools_and_their_history(client: openai.OpenAI) -> None:
    tools = [
        {"type": "function", "function": {"name": f"tool-{index}", "parameters": SCHEMAS["get_weather"]}}
        for index in range(5)
    ]
    choice = answer_of(client, tools=tools, tool_choice="required", max_tokens=30)
    call = choice.message.tool_calls[0]
    result = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
    history = [*MESSAGES, choice.message.model_dump(exclude={"parsed"}), result]
    for more in ({"tools": tools}, {}):
        answer = client.chat.completions.create(
            model="tiny",
            messages=history,
            max_tokens=4,
            seed=1,
            **more,  # type: ignore[arg-type]
        )
        assert answer.choices[0].finish_reason in ("stop", "length", "tool_calls")


@pytest.mark.parametrize(
    "change",
    [
        {"response_format": {"type": "json_object"}},
        {"extra_body": {"guided_choice": ["länge", "längst"]}},
        {"extra_body": {"guided_regex": "[a-c]{2}(é|日本)+"}},
        {"extra_body": {"grammar": 'root ::= "a" root "b" | "é"'}},
        {"extra_body": {"guided_grammar": 'start: "a" start "b" | "é"'}},
        {"extra_body": {"structured_outputs": {"json": {"type": "integer"}}}},
        {"extra_body": {"guided_json": {"enum": [1, "zwölf"]}}},
        {
            "response_format": {"type": "json_object"},
            "extra_body": {"constraint_options": {"whitespace": "free"}},
        },
    ],
    ids=str,
)
def test_spellings_of_constraints_on_both_endpoints(client: openai.OpenAI, change: dict[str, Any]) -> None:
    for budget in (1, 4, 60):
        choice = answer_of(client, max_tokens=budget, **change)
        assert choice.model_extra["gaugeblock"]["truncated"] == (choice.finish_reason == "length")
        extra = {**change.get("extra_body", {})}
        if "response_format" in change:
            extra["response_format"] = change["response_format"]
        raw = client.completions.create(model="tiny", prompt="a", max_tokens=budget, seed=1, extra_body=extra)
        assert raw.choices[0].model_extra is not None
        assert set(raw.choices[0].model_extra["gaugeblock"]) == {"truncated", "reason", "filled"}
        for text in (choice.message.content, raw.choices[0].text):
            if "response_format" in change and text.strip():
                assert isinstance(json.loads(text), dict)


def test_a_timeout_and_a_stop_string_end_a_document(client: openai.OpenAI) -> None:
    options: Any = {"response_format": {"type": "json_object"}, "max_tokens": 100}
    choice = answer_of(client, **options, extra_body={"timeout": 0})
    assert choice.model_extra["gaugeblock"] == {"truncated": True, "reason": "deadline", "filled": []}
    assert (choice.finish_reason, choice.message.content) == ("length", "")
    choice = answer_of(client, **options, stop=['"'])
    assert isinstance(json.loads(choice.message.content), dict)
    assert choice.finish_reason == "stop"
    assert choice.model_extra["gaugeblock"]["reason"] in ("stop", None)


HIDDEN = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "$ref": "#/definitions/text",
    "definitions": {"text": {"type": "string"}},
}
REFUSALS: list[tuple[dict[str, Any], str, str]] = [
    (
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "x", "schema": {"type": "nope"}},
            }
        },
        "response_format.json_schema.schema",
        "unsupported_constraint",
    ),
    ({"guided_regex": "a("}, "guided_regex", "unsupported_constraint"),
    ({"grammar": "root ::= other"}, "grammar", "unsupported_constraint"),
    ({"guided_choice": ["a"], "guided_regex": "a"}, "guided_choice", "invalid_value"),
    ({"tools": [{"type": "custom"}]}, "tools[0].type", "unsupported_value"),
    ({"tools": [WEATHER, WEATHER]}, "tools[1].function.name", "invalid_value"),
    ({"tool_choice": "required"}, "tool_choice", "invalid_value"),
    (
        {"tools": [NOW], "tool_choice": {"type": "function", "function": {"name": "x"}}},
        "tool_choice.function.name",
        "invalid_value",
    ),
    (
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"properties": 1}}}]},
        "tools[0].function.parameters",
        "unsupported_constraint",
    ),
    (
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "string"}}}]},
        "tools[0].function.parameters.type",
        "unsupported_value",
    ),
    (
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": HIDDEN}}]},
        "tools[0].function.parameters.$ref",
        "unsupported_value",
    ),
    ({"tools": [NOW], "response_format": {"type": "json_object"}}, "response_format", "unsupported_value"),
    ({"constraint_options": {"order": "none"}}, "constraint_options.order", "unsupported_value"),
    ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs.'messages'", "invalid_value"),
]


@pytest.mark.parametrize(("change", "param", "code"), REFUSALS, ids=str)
def test_refusals_name_the_field(server: Served, change: dict[str, Any], param: str, code: str) -> None:
    response = HTTP.post(
        f"{server.url}/v1/chat/completions", json={"messages": MESSAGES, "max_tokens": 1, **change}
    )
    assert response.status_code == 400
    assert (response.json()["error"]["param"], response.json()["error"]["code"]) == (param, code)


def test_content_logprobs_are_those_of_the_document(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="tiny", messages=MESSAGES, seed=4, max_tokens=12, logprobs=True, top_logprobs=1,
        response_format={"type": "json_object"},
    ).choices[0]  # fmt: skip
    assert answer.logprobs is not None
    joined = b"".join(bytes(entry.bytes or ()) for entry in answer.logprobs.content or ())
    assert (answer.message.content or "").encode().startswith(joined.decode("utf-8", "ignore").encode())


def test_the_same_answer_whatever_waits_beside(
    client: openai.OpenAI, tiny_model: Callable[[str], Path]
) -> None:
    with Model.open(tiny_model("llama-f32")) as model:
        assert model.template().source()
    first, second = (
        answer_of(client, tools=[WEATHER], tool_choice="required", max_tokens=30) for _ in range(2)
    )
    assert first.message.tool_calls[0].function == second.message.tool_calls[0].function
