"""``gaugeblock run``: continue a raw prompt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from engine.cli.console import CONSOLE
from engine.cli.options import (
    Choosing,
    Constraining,
    Loading,
    constraint_options,
    json_option,
    loading_options,
    prompt_options,
    read_prompt,
    sampling_options,
)
from engine.errors import UsageError
from engine.evidence import ROUND


@click.command()
@loading_options
@prompt_options
@sampling_options
@constraint_options
@click.option("--no-special", is_flag=True, help="Text of control tokens in the prompt stays text.")
@click.option("--logprobs", type=click.IntRange(0, 100), help="With --json: log-probabilities.")
@click.option(
    "--choice-logprobs",
    is_flag=True,
    help="With --json and a constraint: what each alternative had where finitely many stood.",
)
@json_option
def run(
    prompt: str | None,
    file: Path | None,
    no_special: bool,
    logprobs: int | None,
    choice_logprobs: bool,
    as_json: bool,
    **rest: Any,
) -> None:
    """Continue a raw prompt: no chat template; BOS follows the model's metadata."""
    loading, choosing = Loading.take(rest), Choosing.take(rest)
    constraint = Constraining.take(rest)
    if logprobs is not None and not as_json:
        raise UsageError("--logprobs has no effect without --json")
    if choice_logprobs and (not as_json or constraint is None):
        raise UsageError("--choice-logprobs has no effect without --json and a constraint")
    text = read_prompt(prompt, file)
    from engine.cli.generation import collect, generation_document

    sequences = 1 + ROUND if choice_logprobs else 1
    with loading.open() as model, loading.session(model, sequences) as session:
        ids = model.tokenize(text, special=not no_special, bos=True)
        shown = None if as_json else CONSOLE.text
        wanted = logprobs if as_json else None
        result = collect(
            session,
            ids,
            choosing,
            logprobs=wanted,
            show=shown,
            constraint=constraint,
            choices=choice_logprobs,
        )
        if as_json:
            CONSOLE.document("run/1", **generation_document(model, result))
        else:
            CONSOLE.text("\n")
            CONSOLE.log("finish", result.summary(), finish=result.finish)
