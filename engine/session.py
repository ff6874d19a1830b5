"""Session: sequences of evaluated positions of one model, and what can be asked of them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Literal

from engine import arguments, native
from engine.errors import CancelledError, ContextOverflow, UsageError
from engine.evidence import Choices
from engine.generate import Piece, Sampling, generate
from engine.native import Entry, Floats

if TYPE_CHECKING:
    from engine.generate import Constraining
    from engine.model import Model

__all__ = ["Entry", "Session"]


class Session:
    """Evaluates tokens and generates. Made by ``Model.session``.

    Calls from several threads take turns; ``cancel`` alone may be made beside a running one. The
    logits of a token do not depend on how tokens are grouped into calls, on ``batch``, ``threads``
    or other sequences.
    """

    def __init__(self, model: Model, weights: native.Weights, options: native.ContextOptions) -> None:
        self.model = model
        self.options = options
        self._vocab = weights.info.vocab
        self._width = weights.info.width
        self._context = native.Context.new(weights, options)
        self._lock = threading.RLock()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the session's memory; a call that is running in another thread ends first."""
        self._context.close()

    @property
    def context_tokens(self) -> int:
        """Positions that each sequence may hold."""
        return self.options.context_tokens

    @property
    def kv_bytes(self) -> int:
        """Bytes of KV memory in use now."""
        return self._context.kv_bytes

    def step(self, entries: Sequence[Entry]) -> Floats:
        """Evaluate entries of any mix of sequences.

        Returns float32 [rows, vocab] logits (or [rows, width] hidden states), one row for each entry
        that wants something, in their order. On any error every sequence keeps its length.
        """
        entries = [self._checked(entry) for entry in arguments.listed(entries, "entries")]
        wants = {entry.want for entry in entries} - {"none"}
        if len(wants) > 1:
            raise UsageError("one step returns logits or hidden states, not both: split it")
        row = self._width if wants == {"hidden"} else self._vocab
        rows = sum(entry.want != "none" for entry in entries)
        with self._lock, _Cancellable(self._context):
            return self._context.step(entries, row, rows)

    def _checked(self, entry: Entry) -> Entry:
        if not isinstance(entry, Entry):
            raise UsageError(f"entries must hold Entry objects, not {arguments.kind(entry)}")
        native.choice(native.WANTS, entry.want, "want")
        if entry.embedding is not None:
            native.check_embedding(entry.embedding, self._width)
        return entry

    def eval(
        self, ids: Sequence[int], *, seq: int = 0, want: Literal["last", "all", "none"] = "last"
    ) -> Floats:
        """Append tokens to a sequence; returns float32 [rows, vocab] logits, rows 1, len(ids) or 0."""
        if want not in ("last", "all", "none"):
            raise UsageError(f"want must be last, all or none, not '{want}'")
        ids = arguments.listed(ids, "ids")
        if len(ids) == 0:
            raise UsageError("there is nothing to evaluate: the prompt is empty")
        with self._lock, _Cancellable(self._context):
            held = self.require_room(len(ids), seq)
            return self._context.step_tokens(ids, seq, held, want, self._vocab)

    def require_room(self, count: int, seq: int = 0) -> int:
        """How many positions the sequence holds; ContextOverflow where ``count`` more do not fit."""
        held = self._context.length(seq)
        if held + count > self.context_tokens:
            after = f" after the {held} that it holds" if held else ""
            raise ContextOverflow(
                f"{count} tokens do not fit into the context of {self.context_tokens} positions{after}"
            )
        return held

    def length(self, seq: int = 0) -> int:
        """Positions that a sequence holds."""
        return self._context.length(seq)

    def truncate(self, length: int, seq: int = 0) -> None:
        """Forget the positions from ``length`` on."""
        with self._lock:
            self._context.truncate(seq, length)

    def fork(self, src: int, dst: int) -> None:
        """Make ``dst`` a copy of ``src``; memory is shared until one of them grows."""
        with self._lock:
            self._context.fork(src, dst)

    def snapshot(self, seq: int = 0) -> bytes:
        """A sequence's state, for ``restore`` in a session of the same model and options."""
        with self._lock:
            return self._context.snapshot(seq)

    def restore(self, state: bytes, seq: int = 0) -> None:
        """Put a sequence into a state that ``snapshot`` gave."""
        with self._lock:
            self._context.restore(seq, arguments.octets(state, "state"))

    def cancel(self, on: bool = True) -> None:
        """From any thread: the running step, or else the next one, raises CancelledError.

        That step is undone, and the request is then spent. ``on=False`` takes it back.
        """
        self._context.cancel(on)

    def generate(
        self,
        ids: Sequence[int],
        *,
        sampling: Sampling = Sampling(),
        max_tokens: int | None = None,
        stop: Sequence[str] = (),
        logprobs: int | None = None,
        seq: int = 0,
        constraint: Constraining | None = None,
        deadline: float | None = None,
        choices: Choices | bool | None = None,
    ) -> Iterator[Piece]:
        """Append ``ids`` to a sequence, then yield one Piece for each generated token.

        Work is done only while a piece is asked for. The last piece, and it alone, has ``finish``
        set; see ``Piece``. ``logprobs`` adds each token's log-probability and that many best ones.

        ``constraint`` (of ``engine.constrain``; a matcher may stand inside a document that the prompt
        began) keeps the text to a document and ends it legally wherever it is cut: docs/constraints.md.
        ``deadline``, an instant of ``time.monotonic()``, ends a generation like a budget. ``choices``
        (``engine.evidence``) adds records of what each alternative had, wherever the constraint left
        finitely many; the session then needs an empty sequence beside ``seq``, and nothing else changes.
        """
        return generate(
            self,
            ids,
            sampling=sampling,
            max_tokens=max_tokens,
            stop=stop,
            logprobs=logprobs,
            seq=seq,
            constraint=constraint,
            deadline=deadline,
            choices=choices,
        )


class _Cancellable:
    """Spends a cancellation once it has stopped a step."""

    def __init__(self, context: native.Context) -> None:
        self._context = context

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and issubclass(kind, CancelledError):
            with contextlib.suppress(UsageError):  # closed meanwhile: nothing is left to stop
                self._context.cancel(False)
