"""The routes, and the way of a request through them: body, fields, model, queue, answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp

from engine.errors import EngineError
from engine.serve.answers import Answer, as_api_error, error_response
from engine.serve.body import Reader
from engine.serve.chat import ChatShape
from engine.serve.completions import CompletionShape
from engine.serve.errors import ApiError
from engine.serve.guard import LoopbackOnly
from engine.serve.log import RequestLog, note
from engine.serve.requests import (
    ChatRequest,
    CompletionRequest,
    chat_request,
    check_model,
    completion_request,
)
from engine.serve.scheduler import Job, Scheduler
from engine.serve.shape import Head, Shape
from engine.text import printable

if TYPE_CHECKING:
    from engine.serve.generation import Backend, Plan


class Service:
    """The endpoints. ``names`` are what clients may call the model, the first is its id."""

    def __init__(
        self, backend: Backend, scheduler: Scheduler, names: tuple[str, ...], fingerprint: str
    ) -> None:
        self._backend = backend
        self._scheduler = scheduler
        self._names = names
        self._fingerprint = fingerprint
        self._created = int(time.time())
        self._reader = Reader()

    async def chat(self, request: Request) -> Response:
        """POST /v1/chat/completions."""
        body = await self._reader.read_object(request)
        parsed = chat_request(body)
        head = self._head("chatcmpl", parsed)
        return await self._answer(parsed, self._backend.prepare_chat, lambda plan: _chat_shape(head, plan))

    async def completions(self, request: Request) -> Response:
        """POST /v1/completions."""
        body = await self._reader.read_object(request)
        parsed = completion_request(body)
        head = self._head("cmpl", parsed)
        return await self._answer(
            parsed, self._backend.prepare_completion, lambda plan: CompletionShape(head, len(plan.prompts))
        )

    async def models(self) -> Response:
        """GET /v1/models."""
        return JSONResponse({"object": "list", "data": [self._model(name) for name in self._names]})

    async def model(self, name: str) -> Response:
        """GET /v1/models/NAME."""
        check_model(name, self._names)
        return JSONResponse(self._model(name))

    async def health(self) -> Response:
        """GET /health."""
        scheduler, counters = self._scheduler, self._scheduler.counters
        return JSONResponse(
            {
                "schema": "gaugeblock.health/1",
                "status": "draining" if scheduler.draining else "ok",
                "model": self._names[0],
                "standing": self._backend.model.standing.state,
                "active": scheduler.active,
                "phase": self._backend.phase,
                "queued": scheduler.queued,
                "queue_limit": scheduler.limit,
                "requests_total": counters.requests_total,
                "completed": counters.completed,
                "cancelled": counters.cancelled,
                "failed": counters.failed,
                "rejected": counters.rejected,
                "tokens_prompt": self._backend.tokens_prompt,
                "tokens_generated": self._backend.tokens_generated,
            }
        )

    def _model(self, name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": self._created, "owned_by": "gaugeblock"}

    def _head(self, prefix: str, parsed: ChatRequest | CompletionRequest) -> Head:
        check_model(parsed.options.model, self._names)
        return Head(prefix, parsed.options.model or self._names[0], self._fingerprint, parsed.options)

    async def _answer(
        self, parsed: Any, prepare: Callable[[Any], Plan], shape: Callable[[Plan], Shape]
    ) -> Response:
        """Take a place in the queue, prepare the prompt beside the running generation, line up."""
        job = self._scheduler.reserve(asyncio.get_running_loop())
        try:
            plan = await asyncio.to_thread(prepare, parsed)
            answer = Answer(self._scheduler, job, shape(plan), stream=parsed.options.stream)
        except BaseException:
            self._scheduler.withdraw(job)
            raise
        self._scheduler.submit(job, self._work(plan))
        return answer

    def _work(self, plan: Plan) -> Callable[[Job], None]:
        return lambda job: self._backend.run(plan, job)


def _chat_shape(head: Head, plan: Plan) -> ChatShape:
    steering = plan.steering
    if steering is None:
        return ChatShape(head)
    return ChatShape(head, tools=steering.tools, short_ids=steering.short_ids)


def build_app(service: Service) -> ASGIApp:
    """The ASGI application, with its log around it."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    app.add_api_route("/health", service.health, methods=["GET"])
    app.add_api_route("/v1/models", service.models, methods=["GET"])
    app.add_api_route("/v1/models/{name:path}", service.model, methods=["GET"])
    app.add_api_route("/v1/chat/completions", service.chat, methods=["POST"])
    app.add_api_route("/v1/completions", service.completions, methods=["POST"])
    app.add_middleware(LoopbackOnly)
    app.add_exception_handler(ApiError, _on_error)
    app.add_exception_handler(EngineError, _on_error)
    app.add_exception_handler(ClientDisconnect, _on_error)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(Exception, _on_error)
    return RequestLog(app)


async def _on_error(request: Request, error: Exception) -> Response:
    if isinstance(error, ClientDisconnect):
        note("left")
        return Response(status_code=400)  # nobody reads it
    return error_response(as_api_error(error))


async def _on_http(request: Request, error: Exception) -> Response:
    """Unknown routes and methods."""
    if not isinstance(error, HTTPException):
        raise error
    method, path = printable(request.method, 20), printable(request.url.path)
    code = {404: "unknown_route", 405: "method_not_allowed"}.get(error.status_code, "http_error")
    text = {404: f"there is no {path} here", 405: f"{path} does not take {method}"}
    message = text.get(error.status_code, printable(error.detail))
    return error_response(ApiError(error.status_code, message, code=code, headers=dict(error.headers or {})))
