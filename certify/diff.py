"""Compare the bodies of two reports: what changed, and what became worse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

_OUTCOMES = {"pass": 0, "skip": 1, "error": 2, "fail": 3}
_VERDICTS = {"certified": 0, "experimental": 1, "outside-envelope": 2}
_ABSENT = object()
Leaf = tuple[Any, tuple[str, ...]]
"""A value, and the paths of the list items that it lies in, outermost first."""


@dataclass(frozen=True)
class Change:
    """One leaf that differs, or one ``item`` of a list (a model, a check) that one report lacks.

    ``only`` names the report ("a", "b") that has the path; there the other side is None, which is
    also what a null is.
    """

    path: str
    a: Any
    b: Any
    worse: bool
    only: Literal["a", "b"] | None = None
    item: bool = False


def changes(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Change]:
    """Every difference between the bodies of two reports, in the order of ``a``, then ``b``."""
    left, right = dict(_leaves(a["body"], "", ())), dict(_leaves(b["body"], "", ()))
    items = [{item for _, inside in side.values() for item in inside} for side in (left, right)]
    found: dict[str, Change] = {}
    for path in dict.fromkeys([*left, *right]):
        if path in left and path in right:
            before, after = left[path][0], right[path][0]
            if before != after or type(before) is not type(after):
                found[path] = Change(path, before, after, _worse(path, before, after))
        elif path in left:
            _one_sided(found, path, left[path], "a", items[1])
        else:
            _one_sided(found, path, right[path], "b", items[0])
    return list(found.values())


def _one_sided(
    found: dict[str, Change], path: str, leaf: Leaf, only: Literal["a", "b"], others: set[str]
) -> None:
    """Note a leaf that one report lacks, by the outermost list item that is lacking with it."""
    value, inside = leaf
    if value == [] and any(other.startswith(f"{path}[") for other in others):
        return  # the other report has items there, which are said one by one
    before, after = (value, _ABSENT) if only == "a" else (_ABSENT, value)
    worse = _worse(path, before, after)
    whole = next((item for item in inside if item not in others), None)
    if whole is None:
        a, b = (value, None) if only == "a" else (None, value)
        found[path] = Change(path, a, b, worse, only)
        return
    earlier = whole in found and found[whole].worse
    found[whole] = Change(whole, None, None, worse or earlier, only, item=True)


def _worse(path: str, before: Any, after: Any) -> bool:
    name = path.rpartition(".")[2]
    scale = {"outcome": _OUTCOMES, "verdict": _VERDICTS}.get(name)
    if scale is None:
        return False
    # A check or a model that disappeared is as bad as one that did not run.
    missing = max(scale.values()) - 1
    return scale.get(after, missing) > scale.get(before, missing)


def _leaves(value: Any, path: str, inside: tuple[str, ...]) -> Iterator[tuple[str, Leaf]]:
    """(path, leaf); list items go by their id or name where they have one."""
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}" if path else key, inside)
    elif isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
        for index, item in enumerate(value):
            name = f"{path}[{item.get('id', item.get('name', index))}]"
            yield from _leaves(item, name, (*inside, name))
    else:
        yield path, (value, inside)
