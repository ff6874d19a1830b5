"""A backend without a model, for what a real one cannot be made to do on cue; and raw clients."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import httpx

from engine.errors import CancelledError
from engine.serve import server
from engine.serve.app import Service, build_app
from engine.serve.events import Finished, Started, Text
from engine.serve.scheduler import Job, Scheduler

PATIENCE = 60.0
# One client for all tests (making one takes longer than most of them); connections are not kept.
HTTP = httpx.Client(timeout=PATIENCE, verify=False, limits=httpx.Limits(max_keepalive_connections=0))


@dataclass
class FakeBackend:
    """Each prompt and each token is one step; a step waits for ``go`` unless ``free``."""

    tokens: int = 3
    free: bool = True
    fail_at: int | None = None  # token before which run() breaks; -1 is before the prompt
    phase: str = "idle"
    tokens_prompt: int = 0
    tokens_generated: int = 0
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    stop: bool = False
    model: Any = field(
        default_factory=lambda: SimpleNamespace(standing=SimpleNamespace(state="unclassified"))
    )

    def prepare_chat(self, request: Any) -> Any:
        return SimpleNamespace(prompts=[request], steering=None)

    prepare_completion = prepare_chat

    def interrupt(self, on: bool) -> None:
        self.stop = on

    def run(self, plan: Any, job: Job) -> None:
        if self.fail_at == -1:
            raise RuntimeError("a secret of the log")
        job.emit(Started())
        self.phase = "prompt"
        try:
            self._step()
            self.tokens_prompt += 5
            self.phase = "decode"
            for number in range(self.tokens):
                if self.fail_at == number:
                    raise RuntimeError("a secret of the log")
                self._step()
                self.tokens_generated += 1
                job.emit(Text(0, f"t{number} "))
            job.emit(Finished(0, "stop", 5, self.tokens))
        finally:
            self.phase = "idle"

    def _step(self) -> None:
        while not (self.free or self.go.acquire(timeout=0.01)):
            if self.stop:
                raise CancelledError("interrupted")


@dataclass
class Running:
    """A server in a thread of this process."""

    port: int
    backend: Any
    scheduler: Scheduler
    server: server.Server

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)


@contextlib.contextmanager
def serving(backend: Any, *, queue: int = 64) -> Iterator[Running]:
    """Serve a backend with the real uvicorn, protocol, guard and scheduler."""
    scheduler = Scheduler(backend.interrupt, limit=queue)
    listener = server.bind("127.0.0.1", 0)
    ready = threading.Event()
    config = server.configuration(build_app(Service(backend, scheduler, ("tiny",), "test")))
    running = server.Server(config, scheduler, ready.set)
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]})
    port = listener.getsockname()[1]
    thread.start()
    assert ready.wait(PATIENCE)
    try:
        yield Running(port, backend, scheduler, running)
    finally:
        running.handle_exit(15, None)
        running.handle_exit(15, None)
        thread.join(PATIENCE)
        assert not thread.is_alive()


def request_bytes(path: str, body: Any, *, headers: str = "", method: str = "POST") -> bytes:
    """One HTTP request with a JSON body."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{headers}"
    return f"{head}Content-Length: {len(raw)}\r\n\r\n".encode() + raw


def chat_body(**more: Any) -> dict[str, Any]:
    """A small chat request."""
    return {"messages": [{"role": "user", "content": "hi"}], **more}


def read_all(client: socket.socket) -> bytes:
    """Everything until the server closes."""
    parts = []
    while part := client.recv(65536):
        parts.append(part)
    return b"".join(parts)


def until(condition: Callable[[], bool], what: str) -> None:
    """Poll, generously."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.01)
