"""Evidence of choice over HTTP: buffered and streamed alike, beside tools, and refused by name."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serve.fakes import HTTP, chat_body
from tests.serve.process import Served, served
from tests.serve.test_constrained import NOW, WEATHER

CHAT, RAW = "/v1/chat/completions", "/v1/completions"
SCHEMA = {
    "type": "object",
    "properties": {"kind": {"enum": ["länge", "längst", "breite"]}, "ok": {"type": "boolean"}},
    "required": ["kind"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}


@pytest.fixture(scope="module")
def server(tiny_model: Callable[[str], Path]) -> Iterator[Served]:
    with served("-m", str(tiny_model("llama-f32")), "-t", "1", "-c", "2048", "--alias", "tiny") as running:
        yield running
        assert running.health()["failed"] == 0, "".join(running.log)


def post(server: Served, path: str, body: dict[str, Any], status: int = 200) -> Any:
    response = HTTP.post(server.url + path, json={"seed": 3, "max_tokens": 80, **body})
    assert response.status_code == status, response.text
    if not body.get("stream"):
        return response.json()
    events = [
        line.removeprefix("data: ") for line in response.text.split("\n\n") if line.startswith("data: ")
    ]
    assert events.pop() == "[DONE]"
    return [json.loads(event) for event in events]


def body_of(path: str, **more: Any) -> dict[str, Any]:
    return chat_body(**more) if path == CHAT else {"prompt": "the ", **more}


@pytest.mark.parametrize("path", [CHAT, RAW])
def test_buffered_and_streamed(server: Served, path: str) -> None:
    asked = body_of(path, response_format=FORMAT, choice_logprobs=True, choice_logprobs_probe=12)
    choice = post(server, path, asked)["choices"][0]
    found = choice["choice_logprobs"]
    assert found[0]["pointer"] == "/kind"
    assert {one["value"] for one in found[0]["alternatives"]} == {"länge", "längst", "breite"}
    for record in found:
        assert record["chosen"] in {one["text"] for one in record["alternatives"]}
        assert record["evaluations"] <= 12
        assert math.isclose(sum(one["prob"] for one in record["alternatives"]), 1)
    chunks = [chunk["choices"][0] for chunk in post(server, path, asked | {"stream": True})]
    assert [one for chunk in chunks for one in chunk.get("choice_logprobs", [])] == found
    plain = post(server, path, {**asked, "choice_logprobs": False, "choice_logprobs_probe": None})
    without = {name: value for name, value in choice.items() if name != "choice_logprobs"}
    assert plain["choices"][0] == without


def test_several_prompts_keep_their_records_apart(server: Served) -> None:
    asked = {"prompt": ["the ", "a"], "guided_choice": ["the", "then", "é"], "choice_logprobs": True}
    choices = post(server, RAW, asked)["choices"]
    assert [len(choice["choice_logprobs"]) for choice in choices] == [1, 1]
    for choice in choices:
        assert choice["choice_logprobs"][0]["chosen"] == choice["text"]
        assert choice["choice_logprobs"][0]["kind"] == "text"


def test_names_and_arguments_of_tools(server: Served) -> None:
    asked = chat_body(tools=[WEATHER, NOW], tool_choice="required", choice_logprobs=True, temperature=1.5)
    kinds = set()
    for seed in range(6):
        choice = post(server, CHAT, asked | {"seed": seed, "max_tokens": 300})["choices"][0]
        calls = choice["message"]["tool_calls"]
        for record in choice["choice_logprobs"]:
            call = calls[record["tool_call"]]["function"]
            kinds.add((record["kind"], record["pointer"]))
            if record["kind"] == "name":
                assert {one["value"] for one in record["alternatives"]} == {"get_weather", "now"}
                assert record["chosen"] == call["name"]
            if record["pointer"] == "/units":
                assert json.loads(record["chosen"]) == json.loads(call["arguments"])["units"]
    assert ("name", "") in kinds
    assert ("value", "/units") in kinds


@pytest.mark.parametrize("path", [CHAT, RAW])
@pytest.mark.parametrize(
    ("more", "param", "code"),
    [
        ({"choice_logprobs": True}, "choice_logprobs", None),
        ({"choice_logprobs": True, "response_format": {"type": "text"}}, "choice_logprobs", None),
        ({"choice_logprobs": 1, "response_format": FORMAT}, "choice_logprobs", "invalid_type"),
        ({"choice_logprobs_probe": 8, "response_format": FORMAT}, "choice_logprobs_probe", None),
        (
            {"choice_logprobs": True, "choice_logprobs_probe": 0, "response_format": FORMAT},
            "choice_logprobs_probe",
            "out_of_range",
        ),
        (
            {"choice_logprobs": True, "choice_logprobs_probe": 257, "response_format": FORMAT},
            "choice_logprobs_probe",
            "out_of_range",
        ),
        (
            {"choice_logprobs": True, "choice_logprobs_probe": 1.5, "response_format": FORMAT},
            "choice_logprobs_probe",
            "invalid_type",
        ),
    ],
)
def test_refusals_name_the_field(
    server: Served, path: str, more: dict[str, Any], param: str, code: str | None
) -> None:
    error = post(server, path, body_of(path, **more), 400)["error"]
    assert error["param"] == param
    assert code is None or error["code"] == code
