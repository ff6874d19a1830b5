"""Refusals of the server, in the shape of the OpenAI API.

Every error body is ``{"error": {"message", "type", "param", "code"}}``; ``type`` is
``invalid_request_error`` below 500 and ``server_error`` from there on.
"""

from __future__ import annotations

from typing import Any


class ApiError(Exception):
    """A refusal with its HTTP status; ``param`` names the field, where there is one."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str,
        param: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.headers = headers or {}

    def body(self) -> dict[str, Any]:
        """The JSON document of this error."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


def invalid(param: str, message: str, code: str = "invalid_value") -> ApiError:
    """400 for one field: the message starts with its name."""
    return ApiError(400, f"{param}: {message}", code=code, param=param)


def busy(message: str, code: str) -> ApiError:
    """503 that asks the client to come again."""
    return ApiError(503, message, code=code, headers={"Retry-After": "5"})


def internal() -> ApiError:
    """500 without particulars; those are in the log."""
    return ApiError(500, "the server failed on this request; its log says why", code="internal_error")


def shorten(value: object, limit: int = 60) -> str:
    """A value of a client as it may stand in a message: ASCII, one line, cut."""
    text = ascii(value) if not isinstance(value, int) or abs(value) < 10**30 else "a huge number"
    return text if len(text) <= limit else text[: limit - 1] + "…"
