"""Memory of a mapped model: once its weights are repacked, prompts bring no pages of the file back."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest

from engine import native
from engine.model import Model, RuntimeConfig
from fixtures import tiny

COUNT = 400  # ids from all over the vocabulary; more rows than an untied table keeps pages for


def mapped_kib(path: Path) -> int:
    """KiB of the maps of ``path`` in this process that are resident now."""
    total, inside = 0, False
    for line in Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            inside = words[-1] == str(path)
        elif inside and words[0] == "Rss:":
            total += int(words[1])
    return total


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/smaps")
@pytest.mark.parametrize("untied", [False, True])
def test_a_prompt_of_all_the_vocabulary_brings_no_pages_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, untied: bool
) -> None:
    if native.build().kernel_set == "ref":
        pytest.skip("the portable kernels read the file's bytes: nothing is repacked")
    wide = dataclasses.replace(tiny.MODELS["llama-f32"], width=512, untied=untied)  # a table of many pages
    monkeypatch.setitem(tiny.MODELS, "wide", wide)
    path = tiny.build("wide", tmp_path / "wide.gguf").resolve()
    with Model.open(path, config=RuntimeConfig(context_tokens=512)) as model:
        ids = [7919 * i % model.info.vocab for i in range(COUNT)]
        with model.session(threads=1) as session:
            before = mapped_kib(path)
            session.eval(ids)
            assert mapped_kib(path) <= before
        with model.session(threads=1, repack=False) as session:
            session.eval(ids)
            assert mapped_kib(path) > before  # or this would measure nothing
