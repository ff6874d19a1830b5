"""``gaugeblock fetch``: bring the model files of a manifest to this machine, by hash."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from engine.cli.console import CONSOLE, escape
from engine.cli.options import json_option, log_format_option
from engine.errors import UsageError
from engine.text import printable

if TYPE_CHECKING:
    from engine.sources import Artifact


@click.command()
@click.option("--manifest", type=click.Path(path_type=Path), required=True, help="It pins the files.")
@click.option("--model", "models", multiple=True, metavar="ID", help="Only this model. Repeatable.")
@click.option(
    "--models-root",
    "root",
    type=click.Path(path_type=Path),
    default=Path("models"),
    show_default=True,
    help="The folder that receives the files.",
)
@click.option("--offline", is_flag=True, help="Only check what is there.")
@json_option
@log_format_option
def fetch(manifest: Path, models: tuple[str, ...], root: Path, offline: bool, as_json: bool) -> None:
    """Fetch every file that a manifest pins; a file that is there with its hash is left alone."""
    from engine.fetch import fetch as obtain

    found = []
    for model_id, artifact in chosen(manifest, models):
        path = obtain(artifact, root, offline=offline, progress=Progress())
        found.append(
            {"model": model_id, "name": path.name, "sha256": artifact.sha256, "bytes": artifact.bytes}
        )
        if not as_json:
            CONSOLE.line(str(path))
    if as_json:
        CONSOLE.document("fetch/1", manifest=manifest.name, artifacts=found)


def chosen(path: Path, models: tuple[str, ...]) -> list[tuple[str, Artifact]]:
    """Model id and artifact of everything that is wanted of a manifest."""
    from certify.manifest import ManifestError, load

    try:
        manifest = load(path)
    except ManifestError as error:
        raise UsageError(escape(str(error))) from None
    known = {model.id for model in manifest.models}
    for name in models:
        if name not in known:
            listed = ", ".join(sorted(known))
            raise UsageError(
                f"{printable(path.name)} has no model '{printable(name)}', only {printable(listed)}"
            )
    return [
        (model.id, artifact)
        for model in manifest.models
        if not models or model.id in models
        for artifact in model.artifacts
    ]


class Progress:
    """Says how far a download is: once in ten seconds, and when it is complete."""

    EVERY_S = 10.0

    def __init__(self) -> None:
        self._next = time.monotonic() + (1.0 if sys.stderr.isatty() else self.EVERY_S)

    def __call__(self, name: str, done: int, total: int) -> None:
        now = time.monotonic()
        if now < self._next and done < total:
            return
        self._next = now + self.EVERY_S
        CONSOLE.log(
            "progress", f"{printable(name)}: {done} of {total} bytes", done_bytes=done, total_bytes=total
        )
