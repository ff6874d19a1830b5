"""The HTTP side on a real socket, with a backend that does what it is told."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from engine.cli.console import CONSOLE
from engine.serve import answers, body, server
from tests.serve.fakes import HTTP, FakeBackend, Running, chat_body, read_all, request_bytes, serving, until

CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def shared() -> Iterator[Running]:
    with serving(FakeBackend()) as running:
        yield running


def post(running: Running, path: str = CHAT, **more: Any) -> httpx.Response:
    return HTTP.post(running.url + path, **more)


def code(response: httpx.Response) -> tuple[int, str]:
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == ("invalid_request_error" if response.status_code < 500 else "server_error")
    return response.status_code, error["code"]


def test_whole_answer(shared: Running) -> None:
    answer = post(shared, json=chat_body(seed=5)).json()
    assert answer["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "t0 t1 t2 ", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]
    assert answer["usage"] == {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
    assert answer["gaugeblock"] == {"seed": 5}
    assert answer["object"] == "chat.completion"


def test_stream_in_order(shared: Running) -> None:
    response = post(shared, json=chat_body(stream=True, stream_options={"include_usage": True}))
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    lines = response.text.split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks[:-1]]
    assert deltas == [
        {"role": "assistant", "content": ""},
        {"content": "t0 "},
        {"content": "t1 "},
        {"content": "t2 "},
        {},
    ]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks[:-1]] == [None] * 4 + ["stop"]
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["total_tokens"] == 8
    assert all(chunk["usage"] is None for chunk in chunks[:-1])


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/docs", 404),
        ("GET", "/openapi.json", 404),
        ("POST", "/v1/embeddings", 404),
        ("GET", "/v1/models/absent", 404),
        ("GET", CHAT, 405),
        ("POST", "/health", 405),
        ("OPTIONS", CHAT, 405),
        ("DELETE", "/v1/models/tiny", 405),
        ("GET", "/health/", 404),
    ],
)
def test_unknown_routes_and_methods(shared: Running, method: str, path: str, status: int) -> None:
    response = HTTP.request(method, shared.url + path)
    assert code(response)[0] == status


def test_models(shared: Running) -> None:
    listed = HTTP.get(shared.url + "/v1/models").json()
    assert [row["id"] for row in listed["data"]] == ["tiny"]
    assert HTTP.get(shared.url + "/v1/models/tiny").json() == listed["data"][0]


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"Host": "evil.example"}, (403, "forbidden_host")),
        ({"Host": "localhost.evil.example:80"}, (403, "forbidden_host")),
        ({"Origin": "http://evil.example"}, (403, "forbidden_origin")),
        ({"Origin": "null"}, (403, "forbidden_origin")),
        ({"Content-Type": "text/plain"}, (415, "unsupported_media_type")),
        ({"Content-Type": "application/json; charset=latin-1"}, (415, "unsupported_media_type")),
        ({"Content-Encoding": "gzip"}, (415, "unsupported_media_type")),
    ],
)
def test_hostile_headers(shared: Running, headers: dict[str, str], expected: tuple[int, str]) -> None:
    sent = {"Content-Type": "application/json", **headers}
    assert code(post(shared, content=json.dumps(chat_body()), headers=sent)) == expected


def test_origin_is_checked_on_every_route(shared: Running) -> None:
    for path in ("/health", "/v1/models", "/nonsense"):
        response = HTTP.get(shared.url + path, headers={"Origin": "http://evil.example"})
        assert code(response) == (403, "forbidden_origin")
        assert "access-control-allow-origin" not in response.headers


def test_bodies(shared: Running) -> None:
    def send(content: bytes) -> tuple[int, str]:
        return code(post(shared, content=content, headers={"Content-Type": "application/json"}))

    assert send(b"") == (400, "invalid_json")
    assert send(b"[]") == (400, "invalid_json")
    assert send(b"[" * 100_000) == (400, "invalid_json")
    assert send(b'{"messages": [], "messages": []}') == (400, "invalid_json")
    assert send(b'{"x": 1}') == (400, "unknown_field")
    assert send(json.dumps(chat_body(model="gpt-4o")).encode()) == (404, "model_not_found")
    assert send(b" " * (body.MAX_BYTES + 1)) == (413, "body_too_large")


def test_a_chunked_body_is_counted(shared: Running) -> None:
    def parts() -> Iterator[bytes]:
        for _ in range(9 * 16):
            yield b" " * 65536

    response = post(shared, content=parts(), headers={"Content-Type": "application/json"})
    assert code(response) == (413, "body_too_large")
    small = post(
        shared, content=iter([json.dumps(chat_body()).encode()]), headers={"Content-Type": "application/json"}
    )
    assert small.status_code == 200


def test_an_endless_body_is_cut(shared: Running) -> None:
    head = request_bytes(CHAT, b"", headers="Transfer-Encoding: chunked\r\n")
    with shared.connect() as client:
        client.sendall(head.replace(b"Content-Length: 0\r\n", b""))
        sent = 0
        with contextlib.suppress(OSError):
            while sent < 200:
                client.sendall(b"100000\r\n" + b" " * 0x100000 + b"\r\n")
                sent += 1
    assert sent < 200


@pytest.mark.parametrize(
    "raw",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"a" * 100_000,
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * server.MAX_HEADER_BYTES + b"\r\n\r\n",
        b"GET /health?" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
)
def test_what_is_not_http_is_400(shared: Running, raw: bytes) -> None:
    with shared.connect() as client:
        client.sendall(raw)
        answer = read_all(client)
    assert answer.startswith(b"HTTP/1.1 400")
    assert json.loads(answer.split(b"\r\n\r\n")[1])["error"]["code"] == "invalid_http"


def test_headers_up_to_the_limit_are_taken(shared: Running) -> None:
    start = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX: "
    fill = b"a" * (server.MAX_HEADER_BYTES - len(start) - 4)
    for size, status in ((0, b"200"), (1, b"400")):
        with shared.connect() as client:
            client.sendall(start + fill + b"a" * size + b"\r\n\r\n")
            assert read_all(client).startswith(b"HTTP/1.1 " + status)


@pytest.mark.parametrize("form", ["text", "json"])
def test_every_request_but_a_health_check_has_one_line(
    form: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CONSOLE, "log_format", form)
    with serving(FakeBackend()) as running:
        answers_ = [
            post(running, json=chat_body()),
            HTTP.get(running.url + "/v1/models"),
            HTTP.get(running.url + "/health"),
            HTTP.get(running.url + "/health", headers={"Host": "evil.example"}),
            HTTP.get(running.url + "/v1/models", headers={"Origin": "null"}),
            HTTP.get(running.url + "/no%20status=200"),
            HTTP.get(running.url + CHAT),
            post(running, json={"messages": []}),
            post(running, json=chat_body(stream=True)),
        ]
        with running.connect() as client:
            client.sendall(b"nonsense\r\n\r\n")
            read_all(client)
    lines = [line for line in capsys.readouterr().err.splitlines() if "time" in line]
    del answers_[2]
    assert len(lines) == len(answers_) + 1
    for line, answer in zip(lines, answers_, strict=False):
        assert answer.headers["x-request-id"] in line
        assert f"{answer.status_code}" in line
        assert "duration_ms" in line
    if form == "json":
        found = [json.loads(line) for line in lines]
        assert [(entry["event"], entry["status"], entry.get("code")) for entry in found] == [
            ("answered", 200, None),
            ("answered", 200, None),
            ("refused", 403, "forbidden_host"),
            ("refused", 403, "forbidden_origin"),
            ("refused", 404, "unknown_route"),
            ("refused", 405, "method_not_allowed"),
            ("refused", 400, "invalid_value"),
            ("answered", 200, None),
            ("refused", 400, "invalid_http"),
        ]
        assert found[4]["path"] == "/no%20status=200"
        assert found[0]["completion_tokens"] == 3
    else:
        assert lines[2].startswith("gaugeblock: refused time=20")


def test_a_client_that_sends_no_request_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEADER_SECONDS", 0.2)
    monkeypatch.setattr(body, "MAX_SECONDS", 0.2)
    with serving(FakeBackend()) as running:
        with running.connect() as silent:
            assert read_all(silent) == b""
        with running.connect() as slow:
            slow.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: local")
            assert read_all(slow) == b""
        with running.connect() as slow:
            slow.sendall(request_bytes(CHAT, b"{}").replace(b"Content-Length: 2", b"Content-Length: 3"))
            assert read_all(slow).startswith(b"HTTP/1.1 408")
        assert HTTP.get(running.url + "/health").json()["active"] == 0


def test_a_full_queue_is_503() -> None:
    with serving(FakeBackend(free=False)) as running, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(running.connect()) for _ in range(65)]
        for client in clients:
            client.sendall(request_bytes(CHAT, chat_body()))
        until(
            lambda: running.scheduler.queued == 64 and running.scheduler.active == 1, "64 wait and one runs"
        )
        refused = post(running, json=chat_body())
        assert code(refused) == (503, "queue_full")
        assert int(refused.headers["retry-after"]) > 0
        for client in clients:
            client.close()
        until(lambda: running.scheduler.counters.cancelled == 65, "all are cancelled")
        running.backend.free = True
        assert post(running, json=chat_body()).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("leave", ["close", "half"])
def test_a_client_that_leaves_in_the_queue(stream: bool, leave: str) -> None:
    with serving(FakeBackend(free=False)) as running, running.connect() as first, running.connect() as second:
        first.sendall(request_bytes(CHAT, chat_body()))
        until(lambda: running.backend.phase == "prompt", "the first runs")
        second.sendall(request_bytes(CHAT, chat_body(stream=stream)))
        until(lambda: running.scheduler.queued == 1, "the second waits")
        depart(second, leave)
        until(lambda: running.scheduler.queued == 0, "the second leaves the queue")
        running.backend.free = True
        assert first.recv(1000).startswith(b"HTTP/1.1 200")
    assert running.scheduler.counters.completed == 1
    assert running.scheduler.counters.cancelled == 1
    assert running.backend.tokens_generated == 3


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("leave", ["close", "half", "reset"])
@pytest.mark.parametrize("decoded", [0, 2])
def test_a_client_that_leaves_while_it_is_served(stream: bool, leave: str, decoded: int) -> None:
    with serving(FakeBackend(tokens=1000, free=False)) as running, running.connect() as client:
        client.sendall(request_bytes(CHAT, chat_body(stream=stream)))
        for _ in range(decoded + (decoded > 0)):
            running.backend.go.release()
        wanted = "decode" if decoded else "prompt"
        until(lambda: (running.backend.phase, running.backend.tokens_generated) == (wanted, decoded), wanted)
        depart(client, leave)
        until(lambda: running.scheduler.active == 0, "the generation stops")
        assert running.backend.tokens_generated == decoded
        assert running.scheduler.counters.cancelled == 1
        running.backend.free = True
        assert post(running, json=chat_body()).status_code == 200


def depart(client: socket.socket, how: str) -> None:
    if how == "half":
        client.shutdown(socket.SHUT_WR)
        return
    if how == "reset":
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    client.close()


def test_a_pipelined_request_closes_the_connection() -> None:
    with serving(FakeBackend(free=False)) as running, running.connect() as client:
        client.sendall(request_bytes(CHAT, chat_body()))
        until(lambda: running.backend.phase == "prompt", "it runs")
        client.sendall(request_bytes(CHAT, chat_body()))
        assert read_all(client) == b""
        until(lambda: running.scheduler.active == 0, "the generation stops")
        assert running.scheduler.counters.requests_total == 1


def test_connections_are_kept_alive(shared: Running) -> None:
    with httpx.Client(base_url=shared.url) as client:
        for _ in range(3):
            assert client.post(CHAT, json=chat_body()).status_code == 200
        assert client.post(CHAT, json=chat_body(stream=True)).text.endswith("data: [DONE]\n\n")
        assert client.get("/health").json()["active"] == 0


def test_an_error_before_the_headers_has_a_status(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(FakeBackend(fail_at=-1)) as running:
        for stream in (False, True):
            response = post(running, json=chat_body(stream=stream))
            assert code(response) == (500, "internal_error")
            assert "secret" not in response.text
        assert HTTP.get(running.url + "/health").json()["failed"] == 2
    log = capsys.readouterr().err
    assert log.count("gaugeblock: failed time=") == 2
    assert "a secret of the log" in log
    assert f" request={response.headers['x-request-id']}\n" in log


def test_an_error_after_the_headers_ends_the_stream_with_its_event(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with serving(FakeBackend(fail_at=2)) as running:
        text = post(running, json=chat_body(stream=True)).text
        events = text.split("\n\n")
        assert events[-1] == ""
        name, data = events[-2].split("\n")
        assert name == "event: error"
        assert json.loads(data.removeprefix("data: "))["error"]["code"] == "internal_error"
        assert "[DONE]" not in text
        assert "t1 " in text
        assert "secret" not in text
        assert code(post(running, json=chat_body())) == (500, "internal_error")
    ends = [line for line in capsys.readouterr().err.splitlines() if line.startswith("gaugeblock: failed")]
    assert ["status=200" in line for line in ends] == [True, False]


def test_a_stream_that_waits_is_kept_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "KEEP_ALIVE_SECONDS", 0.02)
    with serving(FakeBackend(free=False)) as running, running.connect() as client:
        client.sendall(request_bytes(CHAT, chat_body(stream=True), headers="Connection: close\r\n"))
        seen = b""
        while b": keep-alive\n\n" not in seen:
            seen += client.recv(65536)
        running.backend.free = True
        assert b"data: [DONE]\n\n" in read_all(client)


def test_draining_lets_the_running_answer_end_and_refuses_the_rest() -> None:
    with serving(FakeBackend(free=False)) as running, running.connect() as first, running.connect() as second:
        first.sendall(request_bytes(CHAT, chat_body()))
        until(lambda: running.backend.phase == "prompt", "the first runs")
        second.sendall(request_bytes(CHAT, chat_body()))
        until(lambda: running.scheduler.queued == 1, "the second waits")
        running.server.handle_exit(15, None)
        refused = read_all(second)
        assert refused.startswith(b"HTTP/1.1 503")
        assert b"server_stopping" in refused
        running.backend.free = True
        answer = read_all(first)
        assert answer.startswith(b"HTTP/1.1 200")
        assert b"t2 " in answer


def test_a_second_signal_interrupts_the_running_answer() -> None:
    with serving(FakeBackend(free=False)) as running, running.connect() as client:
        client.sendall(request_bytes(CHAT, chat_body(stream=True)))
        running.backend.go.release()
        running.backend.go.release()
        until(lambda: running.backend.tokens_generated == 1, "it runs")
        running.server.handle_exit(15, None)
        running.server.handle_exit(15, None)
        text = read_all(client).decode()
        assert "event: error" in text
        assert "server_stopping" in text
        assert "[DONE]" not in text
