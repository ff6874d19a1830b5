"""Puts the parts together: socket, model behind its gate, session, queue, routes, server."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Any

from engine.contracts import contracts
from engine.errors import EngineError, UsageError
from engine.evidence import ROUND
from engine.model import Model
from engine.serve.app import Service, build_app
from engine.serve.generation import Backend
from engine.serve.guard import is_loopback
from engine.serve.log import configure
from engine.serve.scheduler import Scheduler
from engine.serve.server import bind, run, url
from engine.text import printable

if TYPE_CHECKING:
    from engine.serve.command import ServeOptions


def serve(options: ServeOptions) -> int:
    """Bind first (a taken port fails at once), then load the model, then serve; returns the exit code."""
    configure()
    loading = options.loading
    with (
        _listen(options.host, options.port) as listener,
        loading.open() as model,
        loading.session(model, sequences=1 + ROUND) as session,
    ):
        backend = Backend(model, session)
        scheduler = Scheduler(backend.interrupt, limit=options.queue)
        fingerprint = "-".join([*contracts().values(), model.config.activations, model.config.kv])
        app = build_app(Service(backend, scheduler, options.names, fingerprint))
        return run(app, listener, scheduler, _ready(options, listener, model))


def _listen(host: str, port: int) -> socket.socket:
    if not is_loopback(host):
        raise UsageError(
            f"--host {printable(host)} is refused: this server has no authentication and listens on "
            "loopback addresses only (127.0.0.1, ::1, localhost)"
        )
    try:
        return bind(host, port)
    except OSError as error:
        raise EngineError(
            f"cannot listen on {host} port {port}: {error.strerror}; try another --port"
        ) from None


def _ready(options: ServeOptions, listener: socket.socket, model: Model) -> dict[str, Any]:
    """The ready line."""
    return {
        "schema": "gaugeblock.serve_ready/1",
        "event": "ready",
        "url": url(listener),
        "port": listener.getsockname()[1],
        "model": options.names[0],
        "standing": model.standing.state,
        "pid": os.getpid(),
    }
