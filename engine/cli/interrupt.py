"""Ctrl-C reaches a step that is running in the C core.

Python runs a signal's handler only between its own instructions. While the C core computes, the
signal is written to a pipe at once (``signal.set_wakeup_fd``), and a thread that reads the pipe
cancels the session; the step then returns, and KeyboardInterrupt is raised as usual.
"""

from __future__ import annotations

import os
import signal
import threading
from types import TracebackType

from engine.errors import CancelledError
from engine.session import Session


class Interruptible:
    """A block in which Ctrl-C stops the session's step and raises KeyboardInterrupt."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __enter__(self) -> Interruptible:
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._previous = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()
        return self

    def _watch(self) -> None:
        while number := os.read(self._read, 1):
            if number[0] == signal.SIGINT:
                self._session.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.set_wakeup_fd(self._previous)
        os.close(self._write)
        self._watcher.join()
        os.close(self._read)
        self._session.cancel(False)
        if kind is not None and issubclass(kind, CancelledError):
            raise KeyboardInterrupt from None
