"""What steers a generation: which tokens may come, which must, and what text they become.

``Plain`` steers nothing. Constrained generations are steered by ``engine.script.Script``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from engine.native import Vocab
from engine.stops import TextStream

Mask = npt.NDArray[np.uint32]
Channel = Literal["content", "reasoning", "name", "arguments"]


@dataclass(frozen=True)
class Part:
    """Text of one channel that will not change any more; ``call`` is the number of its tool call.

    A call's name comes whole and once; its arguments follow in pieces that join to one JSON object.
    """

    channel: Channel
    text: str
    call: int = 0


@dataclass(frozen=True)
class CallEnding:
    """How one tool call ended.

    ``filled`` are JSON pointers into its arguments: values that the closer wrote or completed.
    ``name_filled``: the closer chose the tool among several.
    """

    truncated: bool = False
    filled: tuple[str, ...] = ()
    name_filled: bool = False


@dataclass(frozen=True)
class Ending:
    """How a document ended. ``truncated``: not where the model would have ended it."""

    truncated: bool = False
    filled: tuple[str, ...] = ()
    calls: tuple[CallEnding, ...] = ()


@dataclass(frozen=True)
class Taken:
    """What a token gave; ``finish`` is set where it ended the generation."""

    parts: tuple[Part, ...] = ()
    finish: Literal["stop", "stop-string"] | None = None


class Guide(Protocol):
    """Steers one generation; one object serves one."""

    def forced(self) -> list[int]:
        """The tokens that come next whatever the model wants; empty where there is a choice."""

    def mask(self) -> Mask | None:
        """One bit for each token that may come next; None: all may. Valid until the next call."""

    def take(self, token: int) -> Taken:
        """Go on by a token that was forced or is in the mask."""

    def cut(self) -> Taken:
        """The generation ends here (budget, context, deadline): complete what was begun."""

    @property
    def ending(self) -> Ending | None:
        """How it ended, once it has; None for plain text."""


class Plain:
    """Everything is allowed; text is all there is."""

    ending = None

    def __init__(self, vocab: Vocab, stop: Sequence[str]) -> None:
        self._vocab = vocab
        self._stream = TextStream(stop)

    def forced(self) -> list[int]:
        """Nothing is."""
        return []

    def mask(self) -> None:
        """Everything is allowed."""

    def take(self, token: int) -> Taken:
        """An end token releases what was held back."""
        if self._vocab.is_end(token):
            text, stopped = self._stream.finish()
            return Taken((Part("content", text),), "stop-string" if stopped else "stop")
        text, stopped = self._stream.feed(self._vocab.token_bytes(token))
        return Taken((Part("content", text),), "stop-string" if stopped else None)

    def cut(self) -> Taken:
        """Half a character becomes U+FFFD; that can complete a stop string."""
        text, stopped = self._stream.finish()
        return Taken((Part("content", text),), "stop-string" if stopped else None)
