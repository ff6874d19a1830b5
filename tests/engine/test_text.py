"""Foreign text on a terminal."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.text import plural, printable


@given(st.text(), st.integers(0, 50))
def test_nothing_can_move_a_cursor_or_reorder_text(text: str, limit: int) -> None:
    shown = printable(text, limit)
    assert "\n" not in shown
    assert "\x1b" not in shown
    assert all(char.isprintable() or char.isspace() for char in shown)
    assert not any("\u202a" <= char <= "\u202e" or "\u2066" <= char <= "\u2069" for char in shown)


def test_what_it_looks_like() -> None:
    assert printable("a\tb\x1b[2J\u202e\U000e0001\ud800é") == "a\\x09b\\x1b[2J\\u202e\\U000e0001\\ud800é"
    assert printable("abcdef", 3) == "abc… (6 characters)"
    assert printable(None) == "None"


def test_one_thing_is_not_several() -> None:
    assert [plural(count, "token") for count in (0, 1, 2)] == ["0 tokens", "1 token", "2 tokens"]
