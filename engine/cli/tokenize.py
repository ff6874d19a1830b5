"""``gaugeblock tokenize``: the token ids of a text. Reads no weights, so the gate is not asked."""

from __future__ import annotations

from pathlib import Path

import click

from engine.cli.console import CONSOLE
from engine.cli.options import (
    json_option,
    log_format_option,
    mmap_option,
    model_option,
    prompt_options,
    read_prompt,
)
from engine.text import printable


@click.command()
@model_option
@prompt_options
@click.option("--no-special", is_flag=True, help="Text of control tokens stays text.")
@click.option("--no-bos", is_flag=True, help="Add no BOS or EOS, whatever the metadata says.")
@click.option("--ids", is_flag=True, help="Print the ids alone, on one line.")
@mmap_option
@json_option
@log_format_option
def tokenize(
    path: Path,
    prompt: str | None,
    file: Path | None,
    no_special: bool,
    no_bos: bool,
    ids: bool,
    no_mmap: bool,
    as_json: bool,
) -> None:
    """Show the token ids of a text, as ``run`` would see it."""
    text = read_prompt(prompt, file)
    from engine.model import Header

    with Header.open(path, mmap=not no_mmap) as header:
        tokens = header.tokenize(text, special=not no_special, bos=not no_bos)
        if as_json:
            data = [header.vocab.token_bytes(token, special=True) for token in tokens]
            texts = [piece.decode("utf-8", "replace") for piece in data]
            pieces = [piece.hex() for piece in data]
            CONSOLE.document("tokenize/1", model=path.name, ids=tokens, texts=texts, bytes_hex=pieces)
        elif ids:
            CONSOLE.line(" ".join(map(str, tokens)))
        else:
            for token in tokens:
                CONSOLE.line(f"{token}\t{printable(header.vocab.token_text(token), None)}")
