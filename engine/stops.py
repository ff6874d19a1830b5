"""Text out of tokens: whole characters only, and never a part of a stop string."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from engine import arguments
from engine.errors import UsageError


class StopStrings:
    """Passes text on, but never a part of a stop string."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = arguments.strings(stops, "stop")
        if not all(self._stops):
            raise UsageError("a stop string must not be empty")
        self._held = ""

    def feed(self, text: str) -> tuple[str, bool]:
        """Take text; returns what may be shown, and whether a stop string has been completed."""
        buffer = self._held + text
        starts = [at for stop in self._stops if (at := buffer.find(stop)) >= 0]
        if starts:
            self._held = ""
            return buffer[: min(starts)], True
        keep = max((_overlap(buffer, stop) for stop in self._stops), default=0)
        cut = len(buffer) - keep
        self._held = buffer[cut:]
        return buffer[:cut], False

    def flush(self) -> str:
        """What was held back, now that nothing can complete it."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of ``text`` that is a proper beginning of ``stop``."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)


class TextStream:
    """Bytes of tokens in, text out: whole characters, nothing of a stop string."""

    def __init__(self, stop: Sequence[str] = ()) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._stops = StopStrings(stop)

    def feed(self, data: bytes) -> tuple[str, bool]:
        """Take a token's bytes; returns text and whether a stop string has been completed."""
        return self._stops.feed(self._decoder.decode(data))

    def finish(self) -> tuple[str, bool]:
        """The rest: an unfinished character becomes U+FFFD, held text is released."""
        text, stopped = self._stops.feed(self._decoder.decode(b"", final=True))
        return text + self._stops.flush(), stopped
