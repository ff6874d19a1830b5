"""Who is asked: our server, an endpoint that the manifest names, and peers beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from certify.endpoints import Answer, Endpoint, Turn, ask
from certify.phase import REFERENCE, SUBJECT, Phase
from certify.reasons import Reason
from certify.references import ReferenceUnavailable
from certify.servers import ServerError, ServerProcess
from certify.targets import Context, stop
from certify.types import Variant

LOOPBACK = r"^http://(127\.0\.0\.1|localhost|\[::1\]):[0-9]{1,5}(/v1)?/?$"
PARAMETERS: dict[str, Any] = {
    "endpoint": {
        "type": "string",
        "pattern": LOOPBACK,
        "description": "Ask this server instead of ours on the model file; the outcome is then its.",
    },
    "endpoint_model": {"type": "string", "description": "`model` of requests to that server."},
    "compare": {
        "type": "array",
        "items": {"type": "string", "pattern": LOOPBACK + "|^llama\\.cpp$"},
        "default": [],
        "description": "Peers that get the same requests: recorded, never judged.",
    },
    "request_timeout_s": {"type": "number", "exclusiveMinimum": 0, "maximum": 3600, "default": 120},
}
PATIENCE = 3
"""So many requests in a row without an answer, and a party is asked no more."""


@dataclass(frozen=True)
class Absence:
    """Why a party is asked no more. ``late``: its last answer did not come within the deadline."""

    detail: str
    late: bool


@dataclass
class Party:
    """One server. ``missed`` counts requests in a row that got no answer."""

    name: str
    reports: bool
    _ask: Callable[[Mapping[str, Any], bool], tuple[Answer, Turn]]
    missed: int = 0
    last: Answer | None = None

    def ask(self, body: Mapping[str, Any], *, stream: bool) -> tuple[Answer, Turn]:
        """One request; see ``certify.endpoints.ask``."""
        answer, turn = self._ask(body, stream)
        self.missed = self.missed + 1 if answer.status is None or answer.fault else 0
        self.last = answer
        return answer, turn

    @property
    def gone(self) -> Absence | None:
        """Why asking on would only take time; None while it answers."""
        if self.last is None or self.missed < PATIENCE:
            return None
        return Absence(str(self.last.fault), self.last.late)

    @property
    def key(self) -> str:
        """The name as a part of a measurement's."""
        return "".join(c if c.isalnum() else "_" for c in self.name.removeprefix("http://")).strip("_")


@contextmanager
def subject(ctx: Context) -> Iterator[Party]:
    """The server that is judged. Ours lives as long as the block; its death is a failure of ours."""
    url = ctx.parameters.get("endpoint")
    if url is not None:
        with _present(ctx, str(url)) as party:
            yield party
        return
    with ctx.phase.enter(SUBJECT):
        server = ServerProcess(ctx.target.serve_command(ctx.setting))
    try:
        yield Party("ours", True, _asker(ctx, server.url, SUBJECT, None, server.check))
    except ServerError as error:
        raise stop("fail", Reason.CRASHED, str(error)) from None
    finally:
        server.close()


@contextmanager
def _present(ctx: Context, url: str) -> Iterator[Party]:
    model = ctx.parameters.get("endpoint_model")
    endpoint = Endpoint(url, timeout_s=ctx.parameters["request_timeout_s"], model=model)
    if not endpoint.listens():
        raise stop("error", Reason.ENDPOINT_ABSENT, f"nothing listens at {url}")
    yield Party(url, False, _asker(ctx, url, SUBJECT, model, lambda: None))


@contextmanager
def peer(ctx: Context, name: str) -> Iterator[Party | None]:
    """A server beside; None where it is not to be had."""
    if name.startswith("http"):
        alive = Endpoint(name, timeout_s=5).listens()
        yield Party(name, False, _asker(ctx, name, REFERENCE, None, lambda: None)) if alive else None
        return
    try:
        reference = ctx.server_reference(name)
    except Exception as error:
        if isinstance(getattr(error, "cause", error), ReferenceUnavailable):
            yield None
            return
        raise
    yield Party(name, False, _asker(ctx, reference.url, REFERENCE, None, reference.check))


def recorded(name: str, party: Party | None) -> Variant:
    """The variant of a peer: its answers are in the figures; one that was absent or went away is no pass."""
    if party is None or party.gone:
        return Variant(f"peer={name}", "skip", Reason.REFERENCE_MISSING)
    return Variant(f"peer={name}", "pass")


def _asker(
    ctx: Context, url: str, who: str, model: str | None, check: Callable[[], None]
) -> Callable[[Mapping[str, Any], bool], tuple[Answer, Turn]]:
    """A function that asks with the phase noted, and looks at the process where no answer comes."""
    endpoint = Endpoint(url, timeout_s=ctx.parameters["request_timeout_s"], model=model)
    phase: Phase = ctx.phase

    def once(body: Mapping[str, Any], stream: bool) -> tuple[Answer, Turn]:
        with phase.enter(who):
            answer, turn = ask(endpoint, body, stream=stream)
        if answer.status is None or answer.fault:
            check()
        return answer, turn

    return once
