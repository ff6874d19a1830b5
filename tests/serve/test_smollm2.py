"""Acceptance 8: the SDK streams from SmolLM2, and a client that leaves costs at most one more token."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from openai import LengthFinishReasonError
from pydantic import BaseModel

from tests.serve.fakes import HTTP, PATIENCE, chat_body, request_bytes, until
from tests.serve.process import Served, served

MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"
CHAT = "/v1/chat/completions"
LONG = [{"role": "user", "content": "Count: " + " ".join(str(number) for number in range(450))}]
STORY = [{"role": "user", "content": "Tell me a long story about a lighthouse."}]

pytestmark = pytest.mark.models


@pytest.fixture(scope="module")
def server(real_model: Callable[[str], Path]) -> Iterator[Served]:
    with served("-m", str(real_model(MODEL)), "-c", "4096") as running:
        yield running


def connect(server: Served, body: dict[str, Any]) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)
    client.sendall(request_bytes(CHAT, body))
    return client


def more_tokens(server: Served, at_close: dict[str, Any]) -> int:
    """Tokens that were generated after the /health that was read when the socket had been closed."""
    after = server.idle()
    assert after["cancelled"] == at_close["cancelled"] + 1
    assert after["failed"] == 0
    return int(after["tokens_generated"] - at_close["tokens_generated"])


def test_the_sdk_streams_a_chat_completion(server: Served) -> None:
    with server.client() as client:
        options: Any = {
            "model": MODEL,
            "messages": [{"role": "user", "content": "What is the capital of France?"}],
        }
        chunks = list(
            client.chat.completions.create(
                **options, temperature=0, max_tokens=24, stream=True, stream_options={"include_usage": True}
            )
        )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert "Paris" in text
    assert chunks[-1].usage is not None
    assert len(chunks) > 5
    assert chunks[-2].choices[0].finish_reason == "stop"


@pytest.mark.parametrize("stream", [True, False])
def test_leaving_in_decoding(server: Served, stream: bool) -> None:
    before = server.idle()
    with connect(server, chat_body(messages=STORY, stream=stream, max_tokens=1000, seed=1)):
        until(lambda: server.health()["tokens_generated"] >= before["tokens_generated"] + 4, "it decodes")
        at_close = server.health()
    assert more_tokens(server, at_close) <= 1


@pytest.mark.parametrize("stream", [True, False])
def test_leaving_in_the_prompt(server: Served, stream: bool) -> None:
    server.idle()
    with connect(server, chat_body(messages=LONG, stream=stream, seed=1)):
        until(lambda: server.health()["phase"] == "prompt", "the prompt is evaluated")
        at_close = server.health()
    assert more_tokens(server, at_close) == 0
    assert server.health()["tokens_prompt"] == at_close["tokens_prompt"]


@pytest.mark.parametrize("stream", [True, False])
def test_leaving_in_the_queue(server: Served, stream: bool) -> None:
    server.idle()
    with connect(server, chat_body(messages=STORY, max_tokens=40, temperature=0)) as first:
        until(lambda: server.health()["active"] == 1, "the first runs")
        with connect(server, chat_body(messages=STORY, stream=stream, max_tokens=1000)):
            until(lambda: server.health()["queued"] == 1, "the second waits")
        until(lambda: server.health()["queued"] == 0, "the second leaves the queue")
        assert server.health()["active"] == 1
        at_close = server.health()
        with first.makefile("rb") as answer:
            head = iter(answer.readline, b"\r\n")
            length = next(
                int(line.split(b":")[1]) for line in head if line.lower().startswith(b"content-length")
            )
            list(head)
            usage = json.loads(answer.read(length))["usage"]
    assert usage["completion_tokens"] == 40
    after = server.idle()
    assert after["tokens_generated"] <= at_close["tokens_generated"] + 40
    assert after["cancelled"] == at_close["cancelled"]


def test_after_all_that_it_still_answers_the_same(server: Served) -> None:
    body = chat_body(messages=STORY, max_tokens=16, seed=4, logprobs=True, top_logprobs=5)
    first, second = (HTTP.post(server.url + CHAT, json=body).json()["choices"] for _ in range(2))
    assert first == second


WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the current weather for a city.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "units": {"type": "string", "enum": ["celsius", "fahrenheit"]},
            },
            "required": ["city", "units"],
            "additionalProperties": False,
        },
    },
}


def test_a_required_call_is_whole_at_every_budget(server: Served) -> None:
    """Every budget from one token to completion; what the model did not write is named."""
    body = chat_body(
        messages=[{"role": "user", "content": "What is the weather in Paris? Use fahrenheit."}],
        tools=[WEATHER],
        tool_choice="required",
        temperature=0,
    )
    filled = []
    for budget in range(1, 65):
        choice = HTTP.post(server.url + CHAT, json={**body, "max_tokens": budget}).json()["choices"][0]
        (call,) = choice["message"]["tool_calls"]
        jsonschema.validate(json.loads(call["function"]["arguments"]), WEATHER["function"]["parameters"])
        assert choice["message"]["content"] is None
        (note,) = choice["gaugeblock"]["tool_calls"]
        assert note["truncated"] == (choice["finish_reason"] == "length")
        if choice["finish_reason"] == "tool_calls":
            break
        filled.append(note["filled"])
    assert choice["finish_reason"] == "tool_calls"
    assert json.loads(call["function"]["arguments"])["city"] == "Paris"
    assert "/city" in filled[0]
    assert filled[-1] == []  # only the brackets were missing


class Part(BaseModel):
    name: str
    amount: int | None


class Recipe(BaseModel):
    title: str
    parts: list[Part]
    variant: Recipe | None


def test_the_sdk_parses_what_a_budget_allows(server: Served) -> None:
    """Acceptance 6 on a real model: nested, recursive and optional."""
    message: Any = [{"role": "user", "content": "Give a very short recipe for toast."}]
    ends = set()
    with server.client() as client:
        for budget in (1, 2, 3, 5, 8, 13, 21, 34, 600):
            options: Any = {"model": MODEL, "messages": message, "temperature": 0, "max_tokens": budget}
            try:
                parsed = client.chat.completions.parse(**options, response_format=Recipe).choices[0]
                assert isinstance(parsed.message.parsed, Recipe)
                ends.add("stop")
            except LengthFinishReasonError as error:
                content = error.completion.choices[0].message.content
                Recipe.model_validate_json(content or "")
                ends.add("length")
    assert "length" in ends
