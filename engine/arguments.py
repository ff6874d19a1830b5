"""Arguments of the Python interface: what has the wrong type is a UsageError that names the argument."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from engine.errors import UsageError


def kind(value: object) -> str:
    """How a message calls the type of a value."""
    return type(value).__name__


def integer(value: Any, what: str, low: int = -(2**31), high: int = 2**31 - 1) -> int:
    """An integer (of numpy, too) of [low, high]."""
    try:
        number = int(value.__index__())
    except (AttributeError, TypeError):
        raise UsageError(f"{what} must be an integer, not {kind(value)}") from None
    if not low <= number <= high:
        raise UsageError(f"{what} is out of range: {number}")
    return number


def listed(values: Iterable[Any], what: str) -> list[Any]:
    """The items of a list, an array or the like."""
    try:
        return list(values)
    except TypeError:
        raise UsageError(f"{what} must be a list, not {kind(values)}") from None


def octets(value: Any, what: str) -> bytes:
    """Bytes, or what holds bytes."""
    if not isinstance(value, bytes | bytearray | memoryview):
        raise UsageError(f"{what} must be bytes, not {kind(value)}")
    return bytes(value)


def spans(values: Iterable[Any], what: str) -> list[tuple[int, int]]:
    """Pairs of byte offsets; that they ascend and lie within the text is the core's to check."""
    found = []
    for index, item in enumerate(listed(values, what)):
        pair = listed(item, f"{what}[{index}]")
        if len(pair) != 2:
            raise UsageError(f"{what}[{index}] must be a pair of byte offsets, not {len(pair)} items")
        begin, end = (integer(offset, f"{what}[{index}]", 0, 2**63 - 1) for offset in pair)
        found.append((begin, end))
    return found


def strings(values: Iterable[Any], what: str) -> tuple[str, ...]:
    """Strings, and not one string alone."""
    if isinstance(values, str):
        raise UsageError(f"{what} must be a list of strings, not one string")
    items = listed(values, what)
    for item in items:
        if not isinstance(item, str):
            raise UsageError(f"{what} must hold strings, not {kind(item)}")
    return tuple(items)
