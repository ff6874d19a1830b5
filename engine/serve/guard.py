"""Refuses whatever did not come from this machine: Host and Origin must be loopback names.

A web page of another site reaches a loopback port by DNS rebinding (a foreign Host) or by a
cross-site request (a foreign Origin); both get 403 before any route or body is looked at.
"""

from __future__ import annotations

import ipaddress
import re

from starlette.types import ASGIApp, Receive, Scope, Send

from engine.serve.answers import error_response
from engine.serve.body import CLOSE, drain
from engine.serve.errors import ApiError

_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+)(?::[0-9]{1,5})?")


def is_loopback(name: str) -> bool:
    """True for ``localhost`` and for addresses of 127.0.0.0/8 and ::1 (brackets allowed)."""
    if name.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(name.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False


def _loopback_authority(value: str) -> bool:
    match = _AUTHORITY.fullmatch(value)
    return match is not None and is_loopback(match[1])


def problem(headers: list[tuple[bytes, bytes]]) -> ApiError | None:
    """What is wrong with the Host and Origin of a request, if anything."""
    hosts = [value.decode("latin-1") for name, value in headers if name == b"host"]
    if len(hosts) != 1 or not _loopback_authority(hosts[0]):
        return ApiError(403, "Host must be a loopback name", code="forbidden_host", headers=CLOSE)
    origins = [value.decode("latin-1") for name, value in headers if name == b"origin"]
    for origin in origins:
        scheme, separator, authority = origin.partition("://")
        if scheme not in ("http", "https") or not separator or not _loopback_authority(authority):
            return ApiError(403, "Origin must be a loopback origin", code="forbidden_origin", headers=CLOSE)
    if len(origins) > 1:
        return ApiError(403, "Origin is given twice", code="forbidden_origin", headers=CLOSE)
    return None


class LoopbackOnly:
    """ASGI middleware around ``problem``."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = problem(scope["headers"]) if scope["type"] == "http" else None
        if refusal is None:
            await self.app(scope, receive, send)
            return
        await drain(receive, 64 * 1024, 1.0)
        await error_response(refusal)(scope, receive, send)
