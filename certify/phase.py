"""Who was at work when a check died.

A crash or a time-out of our engine is a ``fail``; one of a reference, or of the harness, is an
``error``. The dead cannot say which, so the child notes in one byte of shared memory whose code it
is about to enter, and the parent reads it afterwards.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

HARNESS, SUBJECT, REFERENCE = "harness", "subject", "reference"
_CODES = {HARNESS: 0, SUBJECT: 1, REFERENCE: 2}


class Phase:
    """One byte, shared through the file behind ``fd`` (at least one byte long)."""

    def __init__(self, fd: int | None = None) -> None:
        self._map = mmap.mmap(-1 if fd is None else fd, 1)

    @property
    def name(self) -> str:
        """The party at work; the harness where the byte holds anything unknown."""
        code = self._map[0]
        return next((name for name, value in _CODES.items() if value == code), HARNESS)

    @contextmanager
    def enter(self, name: str) -> Iterator[None]:
        """Note ``name`` until the block is left."""
        before = self._map[0]
        self._map[0] = _CODES[name]
        try:
            yield
        finally:
            self._map[0] = before

    def close(self) -> None:
        self._map.close()


class PartyError(Exception):
    """An exception that came out of a guarded party's code; ``cause`` is the original."""

    def __init__(self, party: str, cause: Exception) -> None:
        super().__init__(f"{type(cause).__name__}: {cause}")
        self.party = party
        self.cause = cause


class Guarded:
    """A proxy that notes the phase around every call, and labels what is raised inside.

    Iterators that a call returns are guarded step by step.
    """

    def __init__(self, inner: Any, phase: Phase, party: str) -> None:
        self._inner, self._phase, self._party = inner, phase, party

    def __getattr__(self, name: str) -> Any:
        with self._guard():
            value = getattr(self._inner, name)
        return self._call(value) if callable(value) else value

    def _call(self, function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            with self._guard():
                result = function(*args, **kwargs)
            return self._iterate(result) if hasattr(result, "__next__") else result

        return call

    def _iterate(self, iterator: Any) -> Iterator[Any]:
        try:
            while True:
                with self._guard():
                    try:
                        item = next(iterator)
                    except StopIteration:
                        return
                yield item
        finally:
            if hasattr(iterator, "close"):
                with self._guard():
                    iterator.close()

    @contextmanager
    def _guard(self) -> Iterator[None]:
        with self._phase.enter(self._party):
            try:
                yield
            except PartyError:
                raise
            except Exception as error:
                raise PartyError(self._party, error) from error
