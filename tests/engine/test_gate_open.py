"""What was hashed is what is used: a file that changes while it is opened is refused."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine import Model, native
from engine.errors import FileError


@pytest.mark.parametrize("mmap", [True, False])
def test_a_file_that_changes_after_it_was_read_is_refused(
    tmp_path: Path, tiny_model: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, mmap: bool
) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(tiny_model("llama-q4_0").read_bytes())
    real = native.File.open

    def changing(fd: int, **more: Any) -> native.File:
        file = real(fd, **more)
        with path.open("r+b") as stream:
            stream.seek(-1, os.SEEK_END)
            stream.write(b"\x55")
        os.utime(path, ns=(0, 0))
        return file

    monkeypatch.setattr(native.File, "open", changing)
    with pytest.raises(FileError, match="changed while it was opened"):
        Model.open(path, mmap=mmap)


def test_a_file_that_is_replaced_under_its_name_is_used_as_it_was_opened(
    tmp_path: Path, tiny_model: Callable[[str], Path]
) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(tiny_model("llama-q4_0").read_bytes())
    with Model.open(path) as model:
        before = model.sha256()
        other = tmp_path / "other"
        other.write_bytes(tiny_model("llama-q8_0").read_bytes())
        other.replace(path)
        assert model.tokenize("The")
        assert model.sha256() == before
