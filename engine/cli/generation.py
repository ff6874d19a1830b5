"""Generation as the commands need it: interruptible, shown as it comes, summed up at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from engine.cli.interrupt import Interruptible
from engine.cli.options import Choosing
from engine.generate import Piece
from engine.model import Model
from engine.session import Session
from engine.text import plural, printable

if TYPE_CHECKING:
    from engine.constrain import Constraint


@dataclass
class Result:
    """What a generation gave; counts in tokens."""

    prompt: list[int]
    pieces: list[Piece] = field(default_factory=list)
    constrained: bool = False
    choices: bool = False

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)

    @property
    def tokens(self) -> list[int]:
        return [piece.token for piece in self.pieces if piece.token is not None]

    @property
    def finish(self) -> str | None:
        return self.pieces[-1].finish if self.pieces else None

    def summary(self) -> str:
        """One sentence for people."""
        ends = {
            "stop": "the model ended",
            "stop-string": "a stop string ended it",
            "length": "the token limit (-n) ended it",
            "context": "the context (-c) is full",
        }
        counts = f"{plural(len(self.prompt), 'prompt token')}, {len(self.tokens)} generated"
        filled = self.pieces[-1].filled if self.pieces else ()
        places = ", ".join(printable(pointer) or "the whole" for pointer in filled)
        closer = f"; not the model's to their end: {places}" if filled else ""
        return f"{counts}; {ends.get(self.finish or '', 'interrupted')}{closer}"


def collect(
    session: Session,
    ids: Sequence[int],
    choosing: Choosing,
    *,
    logprobs: int | None = None,
    show: Callable[[str], None] | None = None,
    evaluated: int = 0,
    constraint: Constraint | None = None,
    choices: bool = False,
) -> Result:
    """Generate to the end; ``show`` gets each text. ``evaluated`` ids are in the session already."""
    result = Result(list(ids), constrained=constraint is not None, choices=choices)
    pieces = session.generate(
        ids[evaluated:],
        sampling=choosing.sampling(),
        max_tokens=choosing.max_tokens,
        stop=choosing.stop,
        logprobs=logprobs,
        constraint=constraint,
        choices=choices,
    )
    with Interruptible(session):
        for piece in pieces:
            result.pieces.append(piece)
            if show is not None:
                show(piece.text)
    return result


def generation_document(model: Model, result: Result) -> dict[str, Any]:
    """The fields of a generation in ``--json``."""
    document: dict[str, Any] = {
        "model": model.path.name,
        "standing": model.standing.document(),
        "config": vars(model.config),
        "prompt_tokens": len(result.prompt),
        "generated_tokens": len(result.tokens),
        "finish": result.finish,
        "text": result.text,
        "prompt_ids": result.prompt,
        "ids": result.tokens,
    }
    if result.constrained:
        last = result.pieces[-1]
        document |= {"truncated": last.truncated, "reason": last.reason, "filled": list(last.filled)}
    if result.choices:
        document["choice_logprobs"] = [
            choice.document() for piece in result.pieces for choice in piece.choices
        ]
    if any(piece.logprob is not None for piece in result.pieces):
        document["logprobs_nats"] = [
            {"id": piece.token, "logprob_nats": piece.logprob, "top": [list(pair) for pair in piece.top]}
            for piece in result.pieces
        ]
    return document
