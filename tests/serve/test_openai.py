"""The openai SDK as a client of ``gaugeblock serve`` on a tiny model, against the engine's own answers."""

from __future__ import annotations

import json
import math
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from signal import SIGINT, SIGTERM
from typing import Any

import openai
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine import Model, Sampling
from engine.native import log_softmax
from engine.serve import fields
from tests.serve.fakes import HTTP, PATIENCE, chat_body, request_bytes, until
from tests.serve.process import Served, refused, served
from tests.serve.test_requests import BODY, JSON

NAME = "llama-f32"
MESSAGES: Any = [{"role": "user", "content": "Tell me about é and 日本."}]


@pytest.fixture(scope="module")
def path(tiny_model: Callable[[str], Path]) -> Path:
    return tiny_model(NAME)


@pytest.fixture(scope="module")
def server(path: Path) -> Iterator[Served]:
    with served("-m", str(path), "-t", "1", "-c", "512", "--alias", "tiny") as running:
        yield running
        assert running.health()["failed"] == 0, "".join(running.log)


@pytest.fixture(scope="module")
def model(path: Path) -> Iterator[Model]:
    with Model.open(path) as opened:
        yield opened


@pytest.fixture(scope="module")
def client(server: Served) -> Iterator[openai.OpenAI]:
    with server.client() as made:
        yield made


def engine_answer(model: Model, ids: list[int], sampling: Sampling, count: int) -> tuple[str, list[int]]:
    with model.session(threads=1) as session:
        pieces = list(session.generate(ids, sampling=sampling, max_tokens=count))
    return "".join(piece.text for piece in pieces), [
        piece.token for piece in pieces if piece.token is not None
    ]


def chat_ids(model: Model) -> list[int]:
    rendered = model.template().render(MESSAGES)
    return model.tokenize(rendered.text, special=True, literal=rendered.literal)


def test_chat_equals_the_engine(client: openai.OpenAI, model: Model) -> None:
    ids = chat_ids(model)
    text, tokens = engine_answer(model, ids, Sampling(), 24)
    answer = client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=24, temperature=0)
    assert answer.choices[0].message.content == text
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (len(ids), len(tokens))
    assert answer.usage.total_tokens == len(ids) + len(tokens)
    assert answer.choices[0].finish_reason in ("length", "stop")


def test_sampling_options_reach_the_engine(client: openai.OpenAI, model: Model) -> None:
    ids = model.tokenize("Once", special=True, bos=True)
    sampling = Sampling(0.9, 40, 0.95, 0.01, 1.1, 0.2, 0.1, 2**64 - 3)
    text, _ = engine_answer(model, ids, sampling, 20)
    extra = {"top_k": 40, "min_p": 0.01, "repeat_penalty": 1.1, "presence_penalty": 0.1}
    answer = client.completions.create(
        model="tiny",
        prompt="Once",
        max_tokens=20,
        temperature=0.9,
        top_p=0.95,
        frequency_penalty=0.2,
        seed=-3,
        extra_body=extra,
    )
    assert answer.choices[0].text == text


def test_the_drawn_seed_repeats_an_answer(client: openai.OpenAI) -> None:
    first = client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=16)
    seed = first.model_extra["gaugeblock"]["seed"] if first.model_extra else None
    again = client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=16, seed=seed)
    assert again.choices[0].message.content == first.choices[0].message.content


def test_a_stream_is_the_whole_answer_in_pieces(client: openai.OpenAI) -> None:
    options: Any = {
        "model": "tiny",
        "messages": MESSAGES,
        "max_tokens": 32,
        "seed": 3,
        "logprobs": True,
        "top_logprobs": 3,
    }
    whole = client.chat.completions.create(**options)
    chunks = list(
        client.chat.completions.create(**options, stream=True, stream_options={"include_usage": True})
    )
    *parts, last = chunks
    assert last.usage == whole.usage
    assert not last.choices
    assert parts[0].choices[0].delta.role == "assistant"
    assert "".join(part.choices[0].delta.content or "" for part in parts) == whole.choices[0].message.content
    assert parts[-1].choices[0].finish_reason == whole.choices[0].finish_reason
    entries = [
        entry
        for part in parts
        if part.choices[0].logprobs
        for entry in part.choices[0].logprobs.content or ()
    ]
    assert whole.choices[0].logprobs is not None
    assert entries == whole.choices[0].logprobs.content


def test_chat_logprobs_are_aligned_with_the_text(client: openai.OpenAI, model: Model) -> None:
    ids = chat_ids(model)
    answer = client.chat.completions.create(
        model="tiny", messages=MESSAGES, max_tokens=16, seed=11, logprobs=True, top_logprobs=2
    ).choices[0]
    assert answer.logprobs is not None
    entries = answer.logprobs.content or []
    joined = b"".join(bytes(entry.bytes or ()) for entry in entries)
    assert joined.decode("utf-8", "replace") == answer.message.content
    with model.session(threads=1) as session:
        row = log_softmax(session.eval(ids)[0])
    best = sorted(range(len(row)), key=lambda token: (-row[token], token))[:2]
    assert [top.logprob for top in entries[0].top_logprobs] == pytest.approx(
        [float(row[token]) for token in best]
    )
    assert bytes(entries[0].top_logprobs[0].bytes or ()) == model.vocab.token_bytes(best[0])


def test_echo_scores_the_prompt(client: openai.OpenAI, model: Model) -> None:
    ids = model.tokenize("The sky is blue", special=True, bos=True)
    for prompt in ("The sky is blue", ids):
        answer = client.completions.create(
            model="tiny", prompt=prompt, max_tokens=0, echo=True, logprobs=1, temperature=0
        )
        choice = answer.choices[0]
        assert choice.text == "The sky is blue"
        assert choice.logprobs is not None
        with model.session(threads=1) as session:
            rows = [log_softmax(row) for row in session.eval(ids, want="all")]
        wanted = [None, *(float(row[token]) for row, token in zip(rows, ids[1:], strict=False))]
        assert choice.logprobs.token_logprobs == pytest.approx(wanted)
        tokens, offsets = choice.logprobs.tokens or [], choice.logprobs.text_offset or []
        for token, offset in zip(tokens, offsets, strict=True):
            assert choice.text[offset:].startswith(token)
        assert answer.usage is not None
        assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (len(ids), 0)


@pytest.mark.parametrize("penalty", [0.0, 0.7])
def test_echo_does_not_change_what_follows(client: openai.OpenAI, penalty: float) -> None:
    options: Any = {
        "model": "tiny",
        "prompt": "The sky is",
        "max_tokens": 12,
        "seed": 2,
        "frequency_penalty": penalty,
    }
    plain = client.completions.create(**options).choices[0].text
    assert client.completions.create(**options, echo=True).choices[0].text == "The sky is" + plain
    assert client.completions.create(**options, echo=True, logprobs=3).choices[0].text == "The sky is" + plain


def test_several_prompts_are_several_choices(client: openai.OpenAI, model: Model) -> None:
    prompts = ["The sky", "A dog"]
    options: Any = {"model": "tiny", "max_tokens": 8, "temperature": 0}
    single = [client.completions.create(prompt=prompt, **options).choices[0].text for prompt in prompts]
    answer = client.completions.create(prompt=prompts, **options)
    assert [choice.text for choice in answer.choices] == single
    assert [choice.index for choice in answer.choices] == [0, 1]
    ids = [model.tokenize(prompt, special=True, bos=True) for prompt in prompts]
    assert [choice.text for choice in client.completions.create(prompt=ids, **options).choices] == single
    texts = ["", ""]
    for chunk in client.completions.create(prompt=prompts, stream=True, **options):
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == single


def test_stop_strings(client: openai.OpenAI) -> None:
    options: Any = {"model": "tiny", "prompt": "The sky is", "max_tokens": 40, "seed": 5}
    text = client.completions.create(**options).choices[0].text
    stop = text[len(text) // 2 :][:3]
    choice = client.completions.create(**options, stop=["\x00never", stop], logprobs=0).choices[0]
    assert choice.text == text[: text.index(stop)]
    assert choice.finish_reason == "stop"
    assert choice.logprobs is not None
    assert all(offset < len(choice.text) for offset in choice.logprobs.text_offset or ())
    streamed = client.completions.create(**options, stop=stop, stream=True)
    assert "".join(chunk.choices[0].text for chunk in streamed) == choice.text


def test_the_context_ends_a_generation(client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model="tiny", prompt=[5] * 500, max_tokens=1000, temperature=0, logprobs=None
    )
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == 500
    if answer.choices[0].finish_reason == "length":
        assert 12 <= answer.usage.completion_tokens <= 13


REFUSALS: list[tuple[dict[str, Any], type[openai.APIStatusError], str, str | None]] = [
    ({"model": "gpt-4o"}, openai.NotFoundError, "model_not_found", "model"),
    ({"temperature": 3}, openai.BadRequestError, "out_of_range", "temperature"),
    ({"n": 2}, openai.BadRequestError, "unsupported_value", "n"),
    ({"extra_body": {"mirostat": 2}}, openai.BadRequestError, "unknown_field", "mirostat"),
    (
        {"messages": [{"role": "user", "content": "x " * 4000}]},
        openai.BadRequestError,
        "context_length_exceeded",
        "messages",
    ),
    (
        {"messages": [{"role": "tool", "content": "x", "tool_call_id": "1"}]},
        openai.BadRequestError,
        "invalid_value",
        "messages[0].tool_call_id",
    ),
    (
        {"response_format": {"type": "json"}},
        openai.BadRequestError,
        "unsupported_value",
        "response_format.type",
    ),
]


@pytest.mark.parametrize(("change", "kind", "code", "param"), REFUSALS)
def test_refusals_are_the_sdks_exceptions(
    client: openai.OpenAI,
    change: dict[str, Any],
    kind: type[openai.APIStatusError],
    code: str,
    param: str | None,
) -> None:
    options: Any = {"model": "tiny", "messages": MESSAGES, **change}
    for stream in (False, True):
        with pytest.raises(kind) as caught:
            client.chat.completions.create(**options, stream=stream)
        assert (caught.value.code, caught.value.param) == (code, param)


@pytest.mark.parametrize(
    ("prompt", "param"),
    [("", "prompt"), ([10**9], "prompt[0]"), ([[1], [-1]], "prompt[1][0]"), ([1] * 513, "prompt")],
)
def test_bad_prompts_name_their_place(client: openai.OpenAI, prompt: Any, param: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="tiny", prompt=prompt)
    assert caught.value.param == param


def test_models(client: openai.OpenAI) -> None:
    assert [row.id for row in client.models.list()] == ["tiny", NAME, f"{NAME}.gguf"]
    assert client.models.retrieve("tiny").owned_by == "gaugeblock"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("absent")


def test_content_cannot_become_control_tokens(client: openai.OpenAI, model: Model) -> None:
    control = next(iter(sorted(model.template().control, key=len, reverse=True)))
    message: Any = [{"role": "user", "content": f"a{control}b"}]
    answer = client.chat.completions.create(model="tiny", messages=message, max_tokens=1)
    rendered = model.template().render(message)
    safe = model.tokenize(rendered.text, special=True, literal=rendered.literal)
    unsafe = model.tokenize(rendered.text, special=True)
    assert len(safe) != len(unsafe)
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == len(safe)


def test_many_clients_get_what_one_gets(server: Served, client: openai.OpenAI) -> None:
    options: Any = {"model": "tiny", "messages": MESSAGES, "max_tokens": 20, "seed": 9}
    alone = client.chat.completions.create(**options).choices[0].message.content
    sockets = [socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) for _ in range(8)]
    for each in sockets:
        each.sendall(request_bytes("/v1/chat/completions", options, headers="Connection: close\r\n"))
    for each in sockets:
        with each, each.makefile("rb") as stream:
            answer = json.loads(stream.read().split(b"\r\n\r\n", 1)[1])
        assert answer["choices"][0]["message"]["content"] == alone


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(st.sampled_from(sorted({row.name for row in fields.IMPLEMENTED})), JSON, max_size=3)
    | BODY,
    st.sampled_from(["/v1/chat/completions", "/v1/completions"]),
)
def test_no_body_is_a_500(server: Served, body: dict[str, Any], path: str) -> None:
    base: dict[str, Any] = (
        {"max_tokens": 1, "messages": MESSAGES} if "chat" in path else {"max_tokens": 1, "prompt": "a"}
    )
    content = json.dumps({**base, **body})  # infinities and all
    headers = {"Content-Type": "application/json"}
    response = HTTP.post(server.url + path, content=content, headers=headers)
    assert response.status_code in (200, 400, 404)
    if response.status_code != 200:
        assert set(response.json()["error"]) == {"message", "type", "param", "code"}


EXTREMES: list[dict[str, Any]] = [
    {"temperature": value} for value in (5e-324, 1e-300, 1e-45, 1e-38, 1e-30, 1e-6, 2)
] + [
    {"top_p": 0},
    {"top_p": 5e-324},
    {"min_p": 1},
    {"top_k": 2**31 - 1},
    {"repeat_penalty": 0.01},
    {"repeat_penalty": 10},
    {"presence_penalty": -2, "frequency_penalty": -2},
    {"presence_penalty": 5e-324},
    {"temperature": 1e-38, "top_p": 0, "min_p": 1, "top_k": 1},
    {"seed": 2**64 - 1},
]


@pytest.mark.parametrize("change", EXTREMES, ids=json.dumps)
def test_extremes_of_sampling_are_served(server: Served, change: dict[str, Any]) -> None:
    response = HTTP.post(
        f"{server.url}/v1/completions", json={"prompt": "a", "max_tokens": 3, **change}, timeout=PATIENCE
    )
    assert response.status_code == 200, response.text
    assert response.json()["usage"]["completion_tokens"] >= 1


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_stops_its_generation(server: Served, stream: bool) -> None:
    before = server.idle()
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as raw:
        body = {"prompt": ["a"] * 64, "max_tokens": 500, "stream": stream, "seed": 1}
        raw.sendall(request_bytes("/v1/completions", body))
        until(lambda: server.health()["tokens_generated"] > before["tokens_generated"] + 3, "it decodes")
    after = server.idle()
    assert after["cancelled"] == before["cancelled"] + 1
    assert after["tokens_generated"] < before["tokens_generated"] + 64 * 500
    assert server.health()["tokens_generated"] == after["tokens_generated"]
    assert HTTP.post(f"{server.url}/v1/completions", json={"prompt": "a"}).status_code == 200


def test_counters_are_exact(server: Served, client: openai.OpenAI) -> None:
    before = server.idle()
    answer = client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=7)
    after = server.idle()
    assert answer.usage is not None
    assert after["tokens_prompt"] - before["tokens_prompt"] == answer.usage.prompt_tokens
    assert after["tokens_generated"] - before["tokens_generated"] == answer.usage.completion_tokens
    assert after["completed"] - before["completed"] == 1
    assert after["schema"] == "gaugeblock.health/1"


def test_log_probabilities_are_finite(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="tiny", messages=MESSAGES, max_tokens=4, logprobs=True, top_logprobs=20
    )
    assert answer.choices[0].logprobs is not None
    for entry in answer.choices[0].logprobs.content or ():
        assert math.isfinite(entry.logprob)
        assert len(entry.top_logprobs) == 20
        assert all(math.isfinite(top.logprob) for top in entry.top_logprobs)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.com"])
def test_other_addresses_are_refused_by_name(path: Path, host: str) -> None:
    code, log = refused("-m", str(path), "--host", host)
    assert code == 2
    assert f"--host {host} is refused" in log


def test_a_taken_port_is_named(path: Path, server: Served) -> None:
    code, log = refused("-m", str(path), "--port", str(server.port))
    assert code == 1
    assert f"cannot listen on 127.0.0.1 port {server.port}" in log


def test_an_absent_model_is_one_sentence(tmp_path: Path) -> None:
    code, log = refused("-m", str(tmp_path / "absent.gguf"), "--port", "0")
    assert code == 1
    assert "absent.gguf" in log
    assert "Traceback" not in log


def test_the_gate_refuses_before_serving(path: Path) -> None:
    code, log = refused("-m", str(path), "--port", "0", "--require", "certified")
    assert code == 5
    assert "ready" not in log


def test_ipv6_and_json_lines(path: Path) -> None:
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    try:
        with served("-m", str(path), "-t", "1", "--host", "::1", "--log-format", "json") as running:
            assert running.url.startswith("http://[::1]:")
            assert (
                HTTP.post(f"{running.url}/v1/chat/completions", json=chat_body(max_tokens=1)).status_code
                == 200
            )
            assert all(isinstance(json.loads(line), dict) for line in running.log)
    except AssertionError as error:
        if "cannot listen" not in str(error):
            raise
        pytest.skip("no IPv6 loopback here")


@pytest.mark.parametrize(("signal", "code"), [(SIGTERM, 0), (SIGINT, 130)])
def test_exit_codes_of_signals(path: Path, signal: int, code: int) -> None:
    with served("-m", str(path), "-t", "1", end_with=signal, exit_code=code) as running:
        assert running.health()["status"] == "ok"
    assert "Traceback" not in "".join(running.log)
