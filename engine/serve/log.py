"""Lines on stderr, through the console of the command line; prompts and answers are never logged."""

from __future__ import annotations

import logging
import traceback
from typing import Any

from engine.cli.console import CONSOLE
from engine.text import printable


class _ToConsole(logging.Handler):
    """What uvicorn and asyncio have to say, from errors up."""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        trace = "" if error is None else "\n" + "".join(traceback.format_exception(error))
        CONSOLE.error(record.name, record.getMessage() + trace)


def configure() -> None:
    """Send the errors of uvicorn and asyncio to the console."""
    handler = _ToConsole(logging.ERROR)
    for name in ("uvicorn", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(logging.ERROR)


def log(event: str, **values: Any) -> None:
    """One line for one event."""
    words = " ".join(f"{name}={printable(value)}" for name, value in values.items())
    CONSOLE.log(event, f"{event} {words}", **values)


def log_exception(error: BaseException) -> None:
    """An error that is no request's fault: with its trace."""
    CONSOLE.error("internal-error", "".join(traceback.format_exception(error)))
