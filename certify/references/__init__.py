"""References: implementations that are not ours, asked for tokens and logits.

A reference is something to compare with, never something to trust blindly: its actual revision is
recorded, its own noise (the *floor*) is measured, and its crash is an ``error`` of the run, not a
``fail`` of our engine.

::

    ReferenceFailure
    ├── ReferenceUnavailable   the package is not installed, or does not suit this file
    ├── ReferenceCrashed       its process died or stopped answering
    └── ReferenceRefused       it answered, and said no
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]


class ReferenceFailure(Exception):
    """Base of the hierarchy."""


class ReferenceUnavailable(ReferenceFailure):
    """The package is absent, or cannot serve this file; the text says what to install."""


class ReferenceCrashed(ReferenceFailure):
    """The process of the reference died, or did not answer in time."""


class ReferenceRefused(ReferenceFailure):
    """The reference answered and refused: an unreadable model, an id out of range."""


@dataclass(frozen=True)
class EvalOptions:
    """How a reference evaluates. Each field can change its logits, which is why the floor exists.

    ``flash_attention`` None is the implementation's own choice; ``batch`` is both the logical and
    the physical batch in tokens; ``cold`` forgets whatever prefix an earlier call left behind.
    """

    flash_attention: bool | None = None
    batch: int = 64
    kv: Literal["f16", "f32"] = "f16"
    cold: bool = True


@runtime_checkable
class TokenizerReference(Protocol):
    """What the ``tokenizer`` check needs of a reference."""

    name: str
    provider: str
    package_version: str
    revision: str

    def tokenize(self, text: str | bytes, *, special: bool) -> list[int]:
        """Ids of ``text``, nothing added before or after; ``special``: spelled control tokens count."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class Reference(TokenizerReference, Protocol):
    """A whole reference engine."""

    cpu_features: tuple[str, ...]

    def rows(
        self, ids: Sequence[int], positions: Sequence[int] | None = None, options: EvalOptions | None = None
    ) -> Iterator[tuple[int, FloatArray]]:
        """Stream ``(position, float32 [vocab])``, ascending; row p predicts the token at p + 1."""
        ...

    def logits(
        self, ids: Sequence[int], positions: Sequence[int] | None = None, options: EvalOptions | None = None
    ) -> FloatArray:
        """All rows at once, float32 [positions, vocab]."""
        ...

    def detokenize(self, ids: Sequence[int], *, special: bool = False) -> bytes:
        """The bytes of ``ids``."""
        ...

    def greedy_rows(
        self, ids: Sequence[int], n: int, *, stop: bool = False
    ) -> Iterator[tuple[int, FloatArray]]:
        """Stream ``(pick, row)`` of a greedy generation: each row is what the pick came from."""
        ...

    def greedy(self, ids: Sequence[int], n: int, *, stop: bool = False) -> list[int]:
        """The ``n`` greedy ids after ``ids``; with ``stop``, nothing follows an end token."""
        ...


@runtime_checkable
class SpeedReference(Protocol):
    """What the ``performance`` check needs of a peer."""

    name: str
    provider: str
    package_version: str
    revision: str
    cpu_features: tuple[str, ...]

    def seconds(
        self, before: Sequence[int], ids: Sequence[int], *, together: bool, flash: str, threads: int
    ) -> float:
        """Seconds to evaluate ``ids`` behind ``before``, all at once or one by one, logits of the last.

        ``before`` is evaluated outside the time. ``flash`` is auto, on or off.
        """
        ...

    def start_command(self, prompt: str, threads: int, context_tokens: int) -> list[str] | None:
        """A process that loads the model through the peer's Python binding and prints one token."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class ServerReference(Protocol):
    """A server of the OpenAI API, compared with ours."""

    name: str
    provider: str
    package_version: str
    revision: str
    cpu_features: tuple[str, ...]
    url: str

    def check(self) -> None:
        """Raises ReferenceCrashed where it has died."""
        ...

    def close(self) -> None: ...
