"""``gaugeblock score``: how likely a model finds a text."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from engine.cli.console import CONSOLE
from engine.cli.options import Loading, json_option, loading_options, prompt_options, read_prompt
from engine.errors import UsageError
from engine.text import printable

if TYPE_CHECKING:
    from engine.session import Session

ROWS = 32


@click.command()
@loading_options
@prompt_options
@click.option("--no-special", is_flag=True, help="Text of control tokens stays text.")
@click.option("--per-token", is_flag=True, help="One line for each token.")
@json_option
def score(
    prompt: str | None, file: Path | None, no_special: bool, per_token: bool, as_json: bool, **rest: Any
) -> None:
    """Log-probabilities (nats) of a text's tokens, and its perplexity. The first token has none."""
    loading = Loading.take(rest)
    text = read_prompt(prompt, file)
    with loading.open() as model, loading.session(model) as session:
        ids = model.tokenize(text, special=not no_special, bos=True)
        if len(ids) < 2:
            raise UsageError(
                f"the text has {len(ids)} tokens: at least 2 are needed, as the first has no probability"
            )
        session.require_room(len(ids) - 1)
        values = logprobs(session, ids)
        total = -math.fsum(values)
        mean = total / len(values)
        if as_json:
            CONSOLE.document(
                "score/1",
                model=model.path.name,
                standing=model.standing.document(),
                config=vars(model.config),
                tokens=len(ids),
                scored=len(values),
                ids=ids,
                logprobs_nats=[None, *values],
                nll_total_nats=total,
                nll_mean_nats=mean,
                perplexity=math.exp(mean),
            )
            return
        for token, value in zip(ids[1:], values, strict=True) if per_token else ():
            CONSOLE.line(f"{token}\t{value:.6f}\t{printable(model.detokenize([token], special=True))}")
        CONSOLE.line(f"{len(values)} tokens scored, {mean:.6f} nats a token, perplexity {math.exp(mean):.4f}")


def logprobs(session: Session, ids: list[int]) -> list[float]:
    """Natural log-probability of each token after the first, given all before it."""
    from engine import native
    from engine.cli.interrupt import Interruptible

    values: list[float] = []
    with Interruptible(session):
        for first in range(0, len(ids) - 1, ROWS):
            part = ids[first : min(first + ROWS, len(ids) - 1)]
            for offset, row in enumerate(session.eval(part, want="all")):
                values.append(float(native.log_softmax(row)[ids[first + offset + 1]]))
    return values
