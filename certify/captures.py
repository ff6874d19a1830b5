"""Captures: a reference tokenizer's answers, kept so that the check can run without it.

A capture is bound to the model file (whose vocabulary it is), the corpus and the reference's
revision. ``python -m certify.captures MODEL CORPUS REFERENCE FOLDER`` writes one.
"""

from __future__ import annotations

import gzip
import hashlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine import canonical

SCHEMA = "gaugeblock.capture/1"
MAX_BYTES = 32 << 20


class CaptureError(Exception):
    """A capture file is broken; the text names it."""


@dataclass(frozen=True)
class Capture:
    """One reference's ids for every distinct string of a corpus, by mode (special parsing)."""

    reference: str
    provider: str
    package_version: str
    revision: str
    model_sha256: str
    corpus_sha256: str
    ids: Mapping[bool, Sequence[list[int]]]
    round_trips: Mapping[bool, Sequence[bool]] | None


def file_name(model_sha256: str, reference: str) -> str:
    """Where the capture of a reference for a model lies."""
    return f"{model_sha256[:16]}-{reference}.json.gz"


def find(folder: str | None, model_sha256: str, reference: str) -> Capture | None:
    """The capture for a model, or None; CaptureError where the file is broken or of another model."""
    if folder is None:
        return None
    path = Path(folder) / file_name(model_sha256, reference)
    if not path.is_file():
        return None
    try:
        with gzip.open(path) as file:
            data = canonical.loads(file.read(MAX_BYTES + 1), max_bytes=MAX_BYTES)
        capture = _from_json(data)
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise CaptureError(f"{path.name} is no {SCHEMA}: {error}") from None
    if capture.model_sha256 != model_sha256 or capture.reference != reference:
        raise CaptureError(f"{path.name} holds the capture of another model or reference")
    return capture


def _from_json(data: Mapping[str, Any]) -> Capture:
    if data["schema"] != SCHEMA:
        raise ValueError(f"its schema is {data['schema']!r}")
    fields = {key: value for key, value in data.items() if key not in ("schema", "special_off", "special_on")}
    off, on = data["special_off"], data["special_on"]
    trips = None
    if off["round_trips"] is not None:
        trips = {
            mode: [mark == "1" for mark in part["round_trips"]] for mode, part in ((False, off), (True, on))
        }
    return Capture(**fields, ids={False: off["ids"], True: on["ids"]}, round_trips=trips)


def write(folder: Path, capture: Capture) -> Path:
    """Write a capture; the same capture gives the same bytes."""

    def part(mode: bool) -> dict[str, Any]:
        trips = capture.round_trips
        marks = "".join("1" if kept else "0" for kept in trips[mode]) if trips else None
        return {"ids": [list(ids) for ids in capture.ids[mode]], "round_trips": marks}

    document = {
        "schema": SCHEMA,
        "reference": capture.reference,
        "provider": capture.provider,
        "package_version": capture.package_version,
        "revision": capture.revision,
        "model_sha256": capture.model_sha256,
        "corpus_sha256": capture.corpus_sha256,
        "special_off": part(False),
        "special_on": part(True),
    }
    path = folder / file_name(capture.model_sha256, capture.reference)
    temporary = path.with_suffix(".tmp")
    temporary.write_bytes(gzip.compress(canonical.dumps(document), 9, mtime=0))
    temporary.rename(path)
    return path


def take(reference: Any, name: str, model: Path, corpus: bytes) -> Capture:
    """Ask a live reference everything."""
    from certify.checks.tokenizer import distinct_strings

    strings = distinct_strings(corpus)
    ids = {mode: [list(reference.tokenize(text, special=mode)) for text in strings] for mode in (False, True)}
    trips = None
    if hasattr(reference, "detokenize"):
        trips = {
            mode: [
                reference.detokenize(found, special=True) == text.encode()
                for text, found in zip(strings, ids[mode], strict=True)
            ]
            for mode in (False, True)
        }
    with model.open("rb") as file:
        model_sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return Capture(
        name,
        reference.provider,
        reference.package_version,
        reference.revision,
        model_sha256,
        hashlib.sha256(corpus).hexdigest(),
        ids,
        trips,
    )


def main(arguments: Sequence[str]) -> None:
    """``MODEL CORPUS REFERENCE FOLDER``."""
    from certify.references.table import open_path

    model, corpus, name, folder = arguments
    reference = open_path(name, model)
    try:
        capture = take(reference, name, Path(model), Path(corpus).read_bytes())
    finally:
        reference.close()
    print(write(Path(folder), capture))


if __name__ == "__main__":
    main(sys.argv[1:])
