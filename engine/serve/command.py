"""The command ``gaugeblock serve``. FastAPI and uvicorn are imported when it runs, not before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from engine.cli.options import Loading, loading_options
from engine.errors import EngineError, UsageError
from engine.text import printable

MISSING = "{name} is missing: the server needs `pip install 'gaugeblock[serve]'`"


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """The command line."""

    loading: Loading
    host: str
    port: int
    alias: str | None
    queue: int

    @property
    def names(self) -> tuple[str, ...]:
        """What clients may call the model; the first is its id."""
        name = self.loading.path.name
        own = (name.removesuffix(".gguf"), name)
        given = own if self.alias is None else (self.alias, *own)
        return tuple(dict.fromkeys(printable(each) for each in given))


@click.command()
@loading_options
@click.option("--host", default="127.0.0.1", show_default=True, help="Loopback address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="0: a free one.")
@click.option("--alias", help="Name of the model for clients. [default: the file's name]")
@click.option(
    "--queue", type=click.IntRange(1, 4096), default=64, show_default=True, help="Requests that may wait."
)
def serve(host: str, port: int, alias: str | None, queue: int, **rest: Any) -> int:
    """Serve a model on the loopback interface with an OpenAI-compatible API."""
    options = ServeOptions(Loading.take(rest), host, port, alias, queue)
    try:
        from engine.serve import launch
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("engine"):
            raise
        raise EngineError(MISSING.format(name=error.name)) from None
    if alias == "":
        raise UsageError("--alias must not be empty")
    return launch.serve(options)
