"""``gaugeblock logits``: the digest of a prompt's logits, the logits themselves, or the best tokens."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from engine.cli.console import CONSOLE
from engine.cli.options import Loading, json_option, loading_options, prompt_options, read_prompt
from engine.errors import UsageError
from engine.streams import replaceable
from engine.text import printable

if TYPE_CHECKING:
    from engine.model import Model
    from engine.native import Floats
    from engine.session import Session

ROWS = 32
BEST = 5


@click.command()
@loading_options
@prompt_options
@click.option("--ids", "id_list", metavar="ID,ID,…", help="The prompt as token ids.")
@click.option("--positions", default="all", show_default=True, metavar="all|last|N,N,…", help="Rows to take.")
@click.option("--no-special", is_flag=True, help="Text of control tokens in the prompt stays text.")
@click.option("--digest", "digest_only", is_flag=True, help="Print the gblogits/1 digest alone.")
@click.option("--npy", type=click.Path(path_type=Path), help="Write float32 [rows, vocab] to this file.")
@json_option
def logits(
    prompt: str | None,
    file: Path | None,
    id_list: str | None,
    positions: str,
    no_special: bool,
    digest_only: bool,
    npy: Path | None,
    as_json: bool,
    **rest: Any,
) -> None:
    """Evaluate a prompt and print what its logits are."""
    loading = Loading.take(rest)
    text = None if id_list is not None and prompt is None and file is None else read_prompt(prompt, file)
    if id_list is not None and text is not None:
        raise UsageError("give the prompt with --ids or as a text, not both")
    given = numbers(id_list, "--ids") if id_list is not None else []
    if positions not in ("all", "last"):
        numbers(positions, "--positions")
    with loading.open() as model, loading.session(model) as session:
        ids = given if text is None else model.tokenize(text, special=not no_special, bos=True)
        wanted = choose(positions, len(ids))
        best = None if digest_only or as_json else BEST
        sha256 = evaluate(model, session, ids, wanted, npy=npy, best=best)
        if as_json:
            CONSOLE.document("logits/1", **_document(model, ids, wanted, sha256))
        elif digest_only:
            CONSOLE.line(sha256)
        else:
            CONSOLE.line(f"gblogits/1 {sha256}")


def numbers(text: str, option: str) -> list[int]:
    """A comma-separated list of decimal numbers: digits alone, none of Python's other spellings."""
    if not re.fullmatch(r" *[0-9]{1,10} *(, *[0-9]{1,10} *)*", text):
        raise UsageError(f"{option} takes numbers with commas between them, not '{printable(text)}'")
    return [int(part) for part in text.split(",")]


def choose(positions: str, count: int) -> list[int]:
    """The rows that --positions names: ascending, distinct, within the prompt."""
    if positions == "all":
        return list(range(count))
    if positions == "last":
        return [count - 1]
    wanted = numbers(positions, "--positions")
    if wanted != sorted(set(wanted)) or wanted[0] < 0 or wanted[-1] >= count:
        raise UsageError(f"--positions must ascend and lie in 0 … {count - 1}, the prompt's positions")
    return wanted


def evaluate(
    model: Model,
    session: Session,
    ids: list[int],
    wanted: list[int],
    *,
    npy: Path | None,
    best: int | None,
) -> str:
    """Evaluate, print the best tokens of each row where asked for, write the array; returns the digest."""
    from engine.digest import LogitsDigest

    config, vocab = model.config, model.info.vocab
    digest = LogitsDigest(len(wanted), vocab, activations=config.activations, kv=config.kv)
    with _ArrayFile(npy, len(wanted), vocab) as array:
        done = 0
        for rows in _rows(session, ids, set(wanted)):
            digest.update(rows)
            array.write(rows)
            for row in rows if best else ():
                _print_best(model, wanted[done], row, best or 0)
                done += 1
    return digest.hexdigest()


def _rows(session: Session, ids: list[int], wanted: set[int]) -> Iterator[Floats]:
    """The wanted rows, a few at a time."""
    from engine.cli.interrupt import Interruptible
    from engine.session import Entry

    if not ids:
        raise UsageError("the prompt is empty")
    session.require_room(len(ids))
    with Interruptible(session):
        for first in range(0, len(ids), ROWS):
            part = range(first, min(first + ROWS, len(ids)))
            yield session.step([Entry(ids[i], i, want="logits" if i in wanted else "none") for i in part])


def _print_best(model: Model, position: int, row: Floats, count: int) -> None:
    from engine import native

    values = native.log_softmax(row)
    shown = "  ".join(
        f"{index} '{printable(model.detokenize([index], special=True))}' {values[index]:.4f}"
        for index in native.top(values, count)
    )
    CONSOLE.line(f"{position}\t{shown}")


def _document(model: Model, ids: list[int], wanted: list[int], sha256: str) -> dict[str, Any]:
    from engine import native
    from engine.digest import ALGORITHM

    build = native.build()
    return {
        "model": model.path.name,
        "standing": model.standing.document(),
        "algorithm": ALGORITHM,
        "sha256": sha256,
        "numerics": build.numerics,
        "kernel_set": build.kernel_set,
        "config": vars(model.config),
        "vocab": model.info.vocab,
        "prompt_ids": ids,
        "positions": wanted,
    }


class _ArrayFile:
    """A .npy file that appears under its name once it is complete; or nothing."""

    def __init__(self, path: Path | None, rows: int, vocab: int) -> None:
        self._path, self._shape = path, (rows, vocab)

    def __enter__(self) -> _ArrayFile:
        if self._path is None:
            return self
        import numpy as np

        if not replaceable(self._path):
            raise UsageError(f"--npy {printable(self._path)} is not a regular file")
        fd, name = tempfile.mkstemp(dir=self._path.parent, prefix=f".{self._path.name}.")
        self._temporary = Path(name)
        self._stream = os.fdopen(fd, "wb")
        header = {"descr": "<f4", "fortran_order": False, "shape": self._shape}
        np.lib.format.write_array_header_1_0(self._stream, header)
        return self

    def write(self, rows: Floats) -> None:
        if self._path is not None:
            self._stream.write(rows.astype("<f4", copy=False).tobytes())

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        if self._path is None:
            return
        self._stream.close()
        if kind is None:
            umask = os.umask(0)
            os.umask(umask)
            self._temporary.chmod(0o666 & ~umask)
            self._temporary.replace(self._path)
        else:
            self._temporary.unlink(missing_ok=True)
