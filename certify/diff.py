"""Compare the bodies of two reports: what changed, and what became worse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_OUTCOMES = {"pass": 0, "skip": 1, "error": 2, "fail": 3}
_VERDICTS = {"certified": 0, "experimental": 1, "outside-envelope": 2}
_ABSENT = object()


@dataclass(frozen=True)
class Change:
    """One leaf that differs. ``a`` and ``b`` are None where that report lacks it."""

    path: str
    a: Any
    b: Any
    worse: bool


def changes(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Change]:
    """Every leaf that differs between the bodies of two reports, in the order of ``a``, then ``b``."""
    left, right = dict(_leaves(a["body"], "")), dict(_leaves(b["body"], ""))
    paths = list(dict.fromkeys([*left, *right]))
    found = []
    for path in paths:
        before, after = left.get(path, _ABSENT), right.get(path, _ABSENT)
        if before != after or type(before) is not type(after):
            found.append(Change(path, _plain(before), _plain(after), _worse(path, before, after)))
    return found


def _plain(value: Any) -> Any:
    return None if value is _ABSENT else value


def _worse(path: str, before: Any, after: Any) -> bool:
    name = path.rpartition(".")[2]
    scale = {"outcome": _OUTCOMES, "verdict": _VERDICTS}.get(name)
    if scale is None:
        return False
    # A check or a model that disappeared is as bad as one that did not run.
    missing = max(scale.values()) - 1
    return scale.get(after, missing) > scale.get(before, missing)


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """(path, leaf); list items go by their id or name where they have one."""
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}[{item.get('id', item.get('name', index))}]")
    else:
        yield path, value
