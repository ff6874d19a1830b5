"""Sets of words, lengths and their products against Python's sets."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.constrain import languages as lib

Make = Callable[..., lib.Languages]
WORDS = st.sets(st.text(alphabet='abé"\x01\t😀￿', max_size=4), min_size=1, max_size=12)


@settings(max_examples=150)
@given(WORDS, WORDS, st.integers(0, 3), st.integers(0, 3))
def test_products_are_those_of_sets(languages: Make, a: set[str], b: set[str], low: int, more: int) -> None:
    made = languages()
    left, right = made.words(sorted(a)), made.words([*sorted(b), *b])
    for result, expected in ((left | right, a | b), (left & right, a & b), (left - right, a - b)):
        assert result.enumerate(100) == sorted(expected, key=lambda word: (len(word), word))
        assert result.count() == len(expected)
        assert result == (made.words(list(expected)) if expected else made.empty())
    assert left.distance() == min(map(lib.json_bytes, a))
    length = made.length(low, low + more)
    assert set((left & length).enumerate(100)) == {word for word in a if low <= len(word) <= low + more}
    assert ((left & length) | (length - left)) == length


@settings(max_examples=60)
@given(WORDS, WORDS)
def test_complements_obey_de_morgan(languages: Make, a: set[str], b: set[str]) -> None:
    made = languages()
    left, right = made.words(list(a)), made.words(list(b))
    assert ~~left == left
    assert ~(left | right) == (~left & ~right)
    assert ~(left - right) == (~left | right)
    assert (left & ~left) == made.empty()
    assert (left | ~left) == made.all()
    assert (~left).count() == lib.INFINITE


def test_states_are_numbered_by_use_and_no_two_are_alike(languages: Make) -> None:
    made = languages()
    a = made.words(["car", "cat", "cars", "cats", "bar", "bat"])
    assert len(a.states()) == 7
    assert [edge[:2] for edge in a.edges(a.start)] == [(ord("b"), ord("b")), (ord("c"), ord("c"))]


def test_lengths_stay_two_numbers(languages: Make) -> None:
    made = languages()
    huge = made.length(3, 2**31 - 1)
    assert huge.distance() == 3
    assert huge.accepts(2**31 - 1)
    assert huge.step(2**31 - 1, ord("a")) == lib.DEAD
    assert huge.step(0, 0xD800) == lib.DEAD
    assert huge.edges(0) == [(0, 0xD7FF, 1), (0xE000, 0x10FFFF, 1)]
    assert (made.length(0, 5) | made.length(6, 9)) == made.length(0, 9)
    assert (made.all() - made.length(0, 4)) == made.length(5)
    assert made.length(4, 3) == made.empty()
    assert made.regex(r"^[^]{2,}$") == made.length(2)
    assert made.regex("") == made.all()
    assert made.length(0, 1).count() == 1 + 0x110000 - 2048
    assert made.length(1_000_000, 1_000_001).count() == lib.INFINITE - 1


def test_a_product_with_a_length_is_explored_as_far_as_it_goes(languages: Make) -> None:
    made = languages()
    short = made.regex("^a{1,3}$") & made.length(2, 2**31 - 1)
    assert short.enumerate(5) == ["aa", "aaa"]
    assert (made.regex("^a*$") & made.length(3, 3)).enumerate(5) == ["aaa"]


def test_a_large_enum(languages: Make) -> None:
    rng = random.Random(1)
    words = sorted({"".join(rng.choices("abcdefghij-é", k=rng.randint(3, 14))) for _ in range(10_000)})
    made = languages()
    enum = made.words(rng.sample(words, len(words)))
    assert enum.count() == len(words)
    assert sorted(enum.enumerate(20_000)) == words
    assert enum.enumerate(len(words) - 1) == []
    assert made.pool.steps < 2_000_000


def test_malformed_words_and_limits_are_refused(languages: Make) -> None:
    for data in (b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe3\x81", b"\x80"):
        with pytest.raises(lib.Refused, match="UTF-8") as caught:
            languages().words([data])
        assert caught.value.status == lib.EFORMAT
    with pytest.raises(lib.Refused, match="minimum length of 1000001"):
        languages().length(1_000_001)
    made = languages()
    letters, long = made.regex("^[ab]*$"), made.length(0, 10**6)
    with pytest.raises(lib.Refused, match="200000 states"):
        _ = letters & long
    with pytest.raises(lib.Refused, match="steps"):
        languages(max_steps=50).words(["a" * 100])
    with pytest.raises(lib.Refused, match="bytes"):
        languages(max_bytes=200_000).regex("^[a-z]{1,60000}$")
