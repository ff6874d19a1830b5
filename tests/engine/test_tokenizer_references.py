"""Ids equal the references': committed captures, llama.cpp live, Hugging Face tokenizers, sentencepiece."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from certify import captures
from certify.references import ReferenceRefused, ReferenceUnavailable, TokenizerReference
from certify.references.hf_tokenizers import HfTokenizer
from certify.references.llama_cpp import LlamaCpp
from certify.references.sentencepiece_ref import SentencePieceTokenizer
from engine.model import Header
from engine.native import Vocab
from fixtures import vocab as tiny_vocab
from fixtures.corpora.build_core import TARGET as CORPUS
from fixtures.gguf_writer import STRING, Value, encode
from tests.engine.vocabularies import PRES, nasty_texts

CAPTURES = CORPUS.parent.parent / "captures"
SMOLLM2, GEMMA = "SmolLM2-135M-Instruct.Q4_1.gguf", "gemma-3-270m-q4_k_m.gguf"
REAL = {
    SMOLLM2: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    GEMMA: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
}
SECOND = {SMOLLM2: "tokenizers", GEMMA: "sentencepiece"}
MODES = (False, True)
Opened = tuple[Path, Vocab]


@contextmanager
def opened(path: Path) -> Iterator[Opened]:
    with Header.open(path) as header:
        yield path, header.vocab


@pytest.fixture(scope="module")
def corpus() -> list[str]:
    return [json.loads(line) for line in CORPUS.read_text(encoding="ascii").split("\n") if line]


@pytest.fixture(params=[*PRES, "spm-llama", "spm-gemma"], scope="module")
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    """A tiny vocabulary of each kind."""
    kind: str = request.param
    meta, _ = (
        tiny_vocab.sentencepiece(kind.removeprefix("spm-"))
        if kind.startswith("spm")
        else tiny_vocab.bpe(kind)
    )
    path = write_vocab(tmp_path_factory.mktemp("vocab") / "tiny.gguf", meta)
    with opened(path) as pair:
        yield pair


def write_vocab(path: Path, meta: dict[str, Value]) -> Path:
    """A file that holds a vocabulary only; llama.cpp wants to know an architecture."""
    path.write_bytes(encode({"general.architecture": Value(STRING, "llama")} | meta, []))
    return path


def differences(vocab: Vocab, reference: TokenizerReference, texts: list[str]) -> list[tuple[bool, str]]:
    """Texts (with the mode) on which ids differ."""
    return [
        (special, text)
        for text in texts
        for special in MODES
        if vocab.tokenize(text.encode(), special=special) != reference.tokenize(text, special=special)
    ]


@pytest.mark.models
@pytest.mark.parametrize("name", REAL)
def test_real_models_give_the_captured_ids(
    name: str, corpus: list[str], real_model: Callable[[str], Path]
) -> None:
    primary = captures.find(str(CAPTURES), REAL[name], "llama.cpp")
    second = captures.find(str(CAPTURES), REAL[name], SECOND[name])
    assert primary is not None
    assert second is not None
    assert primary.revision == "b11549"
    assert primary.corpus_sha256 == second.corpus_sha256 == hashlib.sha256(CORPUS.read_bytes()).hexdigest()
    with opened(real_model(name)) as (_, vocab):
        disputed = 0
        for special in MODES:
            for text, ids, other in zip(corpus, primary.ids[special], second.ids[special], strict=True):
                assert vocab.tokenize(text.encode(), special=special) == ids, (special, text)
                disputed += ids != other
    assert disputed <= 0.02 * len(corpus)


@pytest.mark.models
@pytest.mark.reference
@pytest.mark.parametrize("name", REAL)
def test_real_models_equal_llama_cpp_on_random_strings(name: str, real_model: Callable[[str], Path]) -> None:
    pytest.importorskip("xllamacpp")
    with opened(real_model(name)) as (path, vocab), LlamaCpp(path, threads=1) as reference:
        assert differences(vocab, reference, nasty_texts(1000, seed=7)) == []
        ends = [token for token in range(vocab.info.size) if vocab.is_end(token)]
        assert all(reference.is_end(token) for token in ends)
        assert not any(reference.is_end(t) for t in range(0, vocab.info.size, 97) if t not in ends)


@pytest.mark.reference
def test_tiny_vocabularies_equal_llama_cpp(tiny: Opened, corpus: list[str]) -> None:
    pytest.importorskip("xllamacpp")
    path, vocab = tiny
    with LlamaCpp(path, threads=1) as reference:
        assert differences(vocab, reference, corpus + nasty_texts(400, seed=11)) == []
        for token in range(vocab.info.size):
            assert vocab.is_end(token) == reference.is_end(token)


@pytest.mark.reference
def test_broken_utf8_equals_llama_cpp_for_sentencepiece(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    path = write_vocab(tmp_path / "tiny.gguf", tiny_vocab.sentencepiece("llama")[0])
    texts = [
        b"a\xff",
        b"\xe2 x",
        b"\xe2\x96 \x81",
        b"\xc3",
        b"\x80\x80 \xf0\x9f",
        b"\xed\xa0\x80 ",
        b"\xc0\x80a",
    ]
    with opened(path) as (_, vocab), LlamaCpp(path, threads=1) as reference:
        for text in texts:
            assert vocab.tokenize(text) == reference.tokenize(text, special=False)


@pytest.mark.reference
def test_tiny_vocabularies_equal_the_second_reference(tiny: Opened, corpus: list[str]) -> None:
    path, vocab = tiny
    spm = vocab.info.model == "llama"
    pytest.importorskip("sentencepiece" if spm else "tokenizers")
    second = SentencePieceTokenizer(path) if spm else HfTokenizer(path)
    # Where special tokens are parsed, and on text that looks like U+2581, the references go apart.
    texts = [text for text in corpus if not spm or not any(mark in text for mark in ("▁", "<", "["))]
    assert differences(vocab, second, texts) == []


def test_second_references_refuse_what_they_cannot_serve(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    pytest.importorskip("sentencepiece")
    byte_level = write_vocab(tmp_path / "bpe.gguf", tiny_vocab.bpe("gpt-2")[0])
    pieces = write_vocab(tmp_path / "spm.gguf", tiny_vocab.sentencepiece("llama")[0])
    with pytest.raises(ReferenceUnavailable, match="byte-level"):
        HfTokenizer(pieces)
    with pytest.raises(ReferenceUnavailable, match="not gpt2"):
        SentencePieceTokenizer(byte_level)
    for reference in (HfTokenizer(byte_level), SentencePieceTokenizer(pieces)):
        assert reference.revision == reference.package_version
        assert reference.tokenize(b"ok", special=False) == reference.encode("ok", special=False)
        with pytest.raises(ReferenceRefused, match="UTF-8"):
            reference.tokenize(b"\xff", special=False)
