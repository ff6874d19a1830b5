"""``gaugeblock info``: what a model file holds, and how it stands with the gate. Loads no weights."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from engine.cli.console import CONSOLE
from engine.cli.options import config_options, json_option, log_format_option, mmap_option, model_option
from engine.errors import EngineError, RefusedError
from engine.text import printable

if TYPE_CHECKING:
    from engine.envelope import Standing
    from engine.model import Header

SHOWN = 8


@click.command()
@model_option
@config_options
@mmap_option
@click.option("--tensors", "all_tensors", is_flag=True, help="List every tensor.")
@click.option("--hash", "with_hash", is_flag=True, help="Compute the file's SHA-256.")
@json_option
@log_format_option
def info(
    path: Path,
    context: int,
    activations: str,
    kv: str,
    no_mmap: bool,
    all_tensors: bool,
    with_hash: bool,
    as_json: bool,
) -> None:
    """Show metadata, tensor types, tokenizer, templates, and the standing of a model file."""
    from engine.model import Header, RuntimeConfig

    with Header.open(path, mmap=not no_mmap) as header:
        found = describe(header, all_tensors)
        standing = stand(header, RuntimeConfig(activations, kv, context))
        found["sha256"] = header.sha256() if with_hash else None
        found["standing"] = standing.document()
        if as_json:
            CONSOLE.document("info/1", **found)
        else:
            show(found, standing)


def describe(header: Header, all_tensors: bool) -> dict[str, Any]:
    """Everything but the standing, as JSON-like data; long arrays by their count and first values."""
    types: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for tensor in header.tensors:
        types[tensor.type] += 1
        sizes[tensor.type] += tensor.bytes
    return {
        "file": header.path.name,
        "bytes": header.size_bytes,
        "gguf_version": header.version,
        "architecture": header.metadata.get("general.architecture"),
        "metadata": {key: _short(header.metadata[key]) for key in header.metadata},
        "tensor_types": {name: {"count": types[name], "bytes": sizes[name]} for name in sorted(types)},
        "tensors": [vars(tensor) | {"dims": list(tensor.dims)} for tensor in header.tensors]
        if all_tensors
        else None,
        "tensor_count": len(header.tensors),
        "tokenizer": _tokenizer(header),
        "templates": _templates(header),
    }


def _short(value: Any) -> Any:
    if isinstance(value, list) and len(value) > SHOWN:
        return {"count": len(value), "first": value[:SHOWN]}
    return value


def _tokenizer(header: Header) -> dict[str, Any]:
    try:
        return vars(header.vocab.info)
    except EngineError as error:
        return {"refused": str(error)}


def _templates(header: Header) -> list[str]:
    try:
        return sorted(header.template().sources)
    except EngineError:
        return []


def stand(header: Header, config: Any) -> Standing:
    """The gate's answer under the default policy; a refusal is an answer too."""
    try:
        return header.resolve(config)
    except RefusedError as error:
        return error.standing


def show(found: dict[str, Any], standing: Standing) -> None:
    """Print for people; every foreign text on one line, escaped."""
    CONSOLE.line(f"{printable(found['file'])}: GGUF v{found['gguf_version']}, {found['bytes']} bytes")
    CONSOLE.line(f"standing: {standing.state}: {standing.detail}")
    if found["sha256"]:
        CONSOLE.line(f"sha256: {found['sha256']}")
    kinds = ", ".join(
        f"{name} × {value['count']} ({value['bytes']} bytes)" for name, value in found["tensor_types"].items()
    )
    CONSOLE.line(f"tensors: {found['tensor_count']}: {kinds}")
    tokenizer = ", ".join(f"{key} {printable(value)}" for key, value in found["tokenizer"].items())
    CONSOLE.line(f"tokenizer: {tokenizer}")
    CONSOLE.line(f"chat templates: {', '.join(printable(name) for name in found['templates']) or 'none'}")
    CONSOLE.line("metadata:")
    for key, value in found["metadata"].items():
        CONSOLE.line(f"  {printable(key)} = {_cell(value)}")
    for tensor in found["tensors"] or ():
        dims = "×".join(map(str, tensor["dims"]))
        where = f"at {tensor['offset']}, {tensor['bytes']} bytes"
        CONSOLE.line(f"  {printable(tensor['name'])}: {printable(tensor['type'])} [{dims}] {where}")


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return f"[{value['count']}] {printable(value['first'])} …"
    return printable(value, 120)
