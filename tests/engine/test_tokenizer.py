"""Vocabularies and tokenisation: rules one by one on tiny vocabularies, properties, refusals."""

from __future__ import annotations

import re
import sys
import unicodedata
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import errors
from engine.native import Vocab
from fixtures import unicode_tables
from fixtures import vocab as tiny_vocab
from fixtures.gguf_writer import BOOL, F32, I32, STRING, U32, Value
from fixtures.vocab import BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED
from tests.engine.vocabularies import PRES, bpe, joined, letters, metadata, open_vocab, spelled, spm, words

TABLE = Path(__file__).parents[2] / "engine" / "src" / "unicode_tables.h"


@pytest.fixture(scope="module")
def tiny_bpe() -> dict[str, Vocab]:
    return {pre: open_vocab(tiny_vocab.bpe(pre)[0]) for pre in PRES}


@pytest.fixture(scope="module")
def tiny_spm() -> Vocab:
    return open_vocab(tiny_vocab.sentencepiece("llama")[0])


# ---- Words --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pre", "text", "expected"),
    [
        ("gpt-2", "it's 1234  ok", ["it", "'s", " 1234", " ", " ok"]),
        ("gpt-2", "IT'S", ["IT", "'", "S"]),
        ("gpt-2", "a\n\nb", ["a", "\n", "\n", "b"]),
        ("gpt-2", "a  ", ["a", "  "]),
        ("gpt-2", "x!?\ny", ["x", "!?", "\n", "y"]),
        ("smollm", "a 12 b", ["a", " ", "1", "2", " b"]),
        ("smollm", "a  1", ["a", "  ", "1"]),
        ("smollm", "½x", ["½", "x"]),
        ("qwen2", "it'S 123", ["it", "'S", " ", "1", "2", "3"]),
        ("qwen2", "(word) x!\n\ny", ["(word", ")", " x", "!\n\n", "y"]),
        ("qwen2", "a \n \n  b", ["a", " \n \n", " ", " b"]),
        ("llama-bpe", "12345", ["123", "45"]),
        ("llama-bpe", "\tx", ["\tx"]),
        ("llama-bpe", "\nx", ["\n", "x"]),
        ("llama-bpe", "'ſ", ["'ſ"]),
    ],
)
def test_words(pre: str, text: str, expected: list[str]) -> None:
    assert [word.decode() for word in words(pre, text)] == expected


def test_no_break_space_is_white_space() -> None:
    assert words("gpt-2", "a\xa0\xa0b") == [b"a", b"\xc2\xa0", b"\xc2\xa0", b"b"]


@given(text=st.binary(max_size=60) | st.text(max_size=40).map(lambda text: text.encode()))
def test_words_leave_no_gaps_and_are_never_empty(text: bytes) -> None:
    for pre in PRES:
        found = words(pre, text)
        assert b"".join(found) == text
        assert all(found)


def test_unicode_tables_match_the_standard_library() -> None:
    header = TABLE.read_text(encoding="ascii")
    version = re.search(r'GB_UNICODE_VERSION "([\d.]+)"', header)
    assert version is not None
    assert version[1] == "15.1.0"
    ranges = [int(word, 16) for word in re.findall(r"0x([0-9A-F]{6}),", header)]
    differing = 0
    for word, following in zip(ranges, [*ranges[1:], 0x110000 << 2], strict=True):
        for code in range(word >> 2, following >> 2):
            category = unicodedata.category(chr(code))
            if category == "Cn" or (word & 3) == 3:
                continue
            differing += (word & 3) != {"L": 1, "N": 2}.get(category[0], 0)
    older = tuple(map(int, unicodedata.unidata_version.split("."))) <= (15, 1, 0)
    spaces = sum((b >> 2) - (a >> 2) for a, b in pairwise(ranges) if a & 3 == 3)
    assert spaces == 25
    assert differing <= (0 if older else sys.maxunicode // 64)  # a newer Python knows more code points


def test_the_tables_are_what_their_generator_writes() -> None:
    try:
        data = unicode_tables.unicode_data()
    except SystemExit as error:
        pytest.skip(str(error))
    assert TABLE.read_text(encoding="ascii") == unicode_tables.render(unicode_tables.ranges(data))


# ---- Byte-level BPE ------------------------------------------------------------------------------


def test_the_lowest_rank_merges_first_then_the_leftmost() -> None:
    tokens = ["<|end|>", *tiny_vocab.byte_letters(), "bc", "ab", "aa"]
    meta = bpe(merges=Value(STRING, ["b c", "a b", "a a"], True))
    meta["tokenizer.ggml.tokens"] = Value(STRING, tokens, True)
    meta["tokenizer.ggml.token_type"] = Value(I32, [CONTROL] + [NORMAL] * (len(tokens) - 1), True)
    vocab = open_vocab(meta)
    assert spelled(vocab, vocab.tokenize(b"abcaaa")) == ["a", "bc", "aa", "a"]


def test_a_word_that_no_merge_reaches_is_taken_whole_by_llama_bpe_only() -> None:
    for pre in PRES:
        vocab = open_vocab(tiny_vocab.bpe(pre)[0])
        whole = spelled(vocab, vocab.tokenize(b"wholeword")) == ["wholeword"]
        assert whole == (pre == "llama-bpe")


def test_merges_may_pass_through_strings_that_are_no_token() -> None:
    meta = bpe(["abc"])
    tokens = [token for token in meta["tokenizer.ggml.tokens"].data if token != "ab"]  # type: ignore[union-attr]
    meta["tokenizer.ggml.tokens"] = Value(STRING, tokens, True)
    meta["tokenizer.ggml.token_type"] = Value(I32, [CONTROL] + [NORMAL] * (len(tokens) - 1), True)
    vocab = open_vocab(meta)
    assert spelled(vocab, vocab.tokenize(b"abcab")) == ["abc", "a", "b"]


def test_a_letter_without_token_vanishes_unless_a_merge_uses_it() -> None:
    meta = bpe(["\x04a"], pre="qwen2")
    gone = letters("\x04")
    tokens = [token for token in meta["tokenizer.ggml.tokens"].data if token != gone]  # type: ignore[union-attr]
    meta["tokenizer.ggml.tokens"] = Value(STRING, tokens, True)
    meta["tokenizer.ggml.token_type"] = Value(I32, [CONTROL] + [NORMAL] * (len(tokens) - 1), True)
    vocab = open_vocab(meta)
    assert spelled(vocab, vocab.tokenize(b"b\x04b\x04a")) == ["b", "b", letters("\x04a")]


@given(data=st.data())
def test_any_bytes_come_back_exactly(data: st.DataObject, tiny_bpe: dict[str, Vocab]) -> None:
    text = data.draw(
        st.binary(max_size=80) | st.text(max_size=60).map(lambda t: t.encode("utf-8", "surrogatepass"))
    )
    for vocab in tiny_bpe.values():
        for special in (False, True):
            assert joined(vocab, vocab.tokenize(text, special=special)) == text


@pytest.mark.parametrize("unit", ["a", " ", "\n", "0", "!", "é", "<|im_end|>", "ab ", "\xff", "  \n"])
def test_a_mebibyte_of_one_thing(unit: str, tiny_bpe: dict[str, Vocab], tiny_spm: Vocab) -> None:
    text = (unit.encode("latin-1") if unit == "\xff" else unit.encode()) * ((1 << 20) // len(unit.encode()))
    for vocab in (tiny_bpe["smollm"], tiny_bpe["llama-bpe"]):
        assert joined(vocab, vocab.tokenize(text, special=True)) == text
    assert joined(tiny_spm, tiny_spm.tokenize(text)) == b" " + text


# ---- SentencePiece -------------------------------------------------------------------------------

PIECES = [
    ("▁", NORMAL, -9.0),
    ("a", NORMAL, -8.0),
    ("b", NORMAL, -8.0),
    ("ab", NORMAL, -2.0),
    ("▁a", NORMAL, -1.0),
]


def test_the_highest_score_merges_first() -> None:
    vocab = open_vocab(spm(PIECES))
    assert spelled(vocab, vocab.tokenize(b" abab")) == ["▁a", "b", "ab"]


def test_characters_without_a_piece_become_bytes() -> None:
    vocab = open_vocab(spm(PIECES))
    ids = vocab.tokenize("aé".encode())
    assert spelled(vocab, ids) == ["a", "<0xC3>", "<0xA9>"]
    assert joined(vocab, ids) == "aé".encode()


def test_a_space_goes_before_text_that_follows_nothing_or_a_special_token() -> None:
    vocab = open_vocab(spm(PIECES, [("<x>", CONTROL), ("\n", USER_DEFINED)], space_prefix=True))
    assert vocab.info.add_space_prefix
    assert spelled(vocab, vocab.tokenize(b"a<x>b\nb", special=True)) == [
        "▁a",
        "<x>",
        "▁",
        "b",
        "\n",
        "▁",
        "b",
    ]
    assert vocab.tokenize(b"", special=True) == []


@given(text=st.text(max_size=60).filter(lambda t: "▁" not in t))
def test_text_comes_back_exactly_behind_the_added_space(text: str, tiny_spm: Vocab) -> None:
    ids = tiny_spm.tokenize(text.encode())
    assert joined(tiny_spm, ids) == (b" " + text.encode() if text else b"")


def test_broken_utf8_is_spelled_in_bytes(tiny_spm: Vocab) -> None:
    assert joined(tiny_spm, tiny_spm.tokenize(b"a\xff\xc3b\xe2\x82")) == b" a\xff\xc3b\xe2\x82"
    # A broken character swallows the bytes behind it, a space's U+2581 among them: as in llama.cpp.
    assert joined(tiny_spm, tiny_spm.tokenize(b"\xe2 x")) == b" \xe2\xe2\x96\x81x"


def test_bytes_without_token_become_the_unknown_token() -> None:
    table = [("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL), ("a", NORMAL), ("▁", NORMAL)]
    vocab = open_vocab(metadata("llama", table, add_space_prefix=Value(BOOL, False)))
    assert spelled(vocab, vocab.tokenize(b"a?a")) == ["a", "<unk>", "a"]


# ---- Special tokens and literal spans -------------------------------------------------------------

SPECIALS = [
    ("<|end|>", CONTROL), ("<|", CONTROL), ("<unk>", UNKNOWN),
    ("<tag>", USER_DEFINED), ("  ", USER_DEFINED), ("   ", USER_DEFINED),
]  # fmt: skip


def test_control_and_unknown_tokens_only_on_request_user_defined_ones_always() -> None:
    vocab = open_vocab(bpe(specials=SPECIALS))
    assert spelled(vocab, vocab.tokenize(b"<|end|><tag><unk>"))[7:8] == ["<tag>"]
    assert spelled(vocab, vocab.tokenize(b"<|end|><tag><unk>", special=True)) == ["<|end|>", "<tag>", "<unk>"]


def test_longer_tokens_claim_first_from_the_left() -> None:
    vocab = open_vocab(bpe(specials=SPECIALS))
    assert spelled(vocab, vocab.tokenize(b"<|<|end|>", special=True)) == ["<|", "<|end|>"]
    assert spelled(vocab, vocab.tokenize(b"x        ")) == ["x", "   ", "   ", "  "]
    assert spelled(vocab, vocab.tokenize(b"    ")) == ["   ", letters(" ")]


def test_a_literal_span_keeps_control_tokens_out_and_text_tokens_in() -> None:
    vocab = open_vocab(bpe(specials=SPECIALS))
    text = b"<|end|><|end|><tag>"
    for begin, end in ((7, 14), (13, 14), (7, 8), (10, 11)):
        found = spelled(vocab, vocab.tokenize(text, special=True, literal=[(begin, end)]))
        assert found.count("<|end|>") == 1
        assert found[0] == "<|end|>"
        assert found[-1] == "<tag>"
    assert spelled(vocab, vocab.tokenize(text, special=True, literal=[(7, 7)])) == [
        "<|end|>",
        "<|end|>",
        "<tag>",
    ]
    assert spelled(vocab, vocab.tokenize(text, special=True, literal=[(0, 19)]))[-1] == "<tag>"


def test_merges_do_not_make_control_tokens_out_of_literal_text() -> None:
    byte_level = open_vocab(bpe(["stop"], [("<|end|>", CONTROL), ("stop", CONTROL)]))
    assert spelled(byte_level, byte_level.tokenize(b"stop")) == ["stop"]  # as llama.cpp does
    assert spelled(byte_level, byte_level.tokenize(b"stop", literal=[(0, 4)])) == ["sto", "p"]
    whole = open_vocab(bpe((), [("<|end|>", CONTROL), ("stop", CONTROL)], pre="llama-bpe"))
    assert spelled(whole, whole.tokenize(b"stop", literal=[(3, 4)])) == ["s", "t", "o", "p"]
    piece = open_vocab(spm([("<", NORMAL), ("s>", NORMAL, 1.0), ("s", NORMAL), (">", NORMAL)]))
    assert spelled(piece, piece.tokenize(b"<s>")) == ["<s>"]
    assert spelled(piece, piece.tokenize(b"<s>", literal=[(0, 3)])) == ["<", "s>"]


@pytest.mark.parametrize("name", ["gpt-2", "llama-bpe", "spm"])
@given(data=st.data())
def test_no_steering_token_overlaps_a_literal_span(
    data: st.DataObject, name: str, tiny_bpe: dict[str, Vocab], tiny_spm: Vocab
) -> None:
    vocab = tiny_spm if name == "spm" else tiny_bpe[name]
    atoms = [
        "<|im_end|>",
        "<|im_start|>",
        "<s>",
        "</s>",
        "<unk>",
        "<",
        "|",
        "s>",
        " ",
        "text",
        "im_end",
        "é",
        "▁",
    ]
    text = "".join(data.draw(st.lists(st.sampled_from(atoms), max_size=12))).replace("▁", "x").encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    spans = list(zip(cuts[::2], cuts[1::2], strict=False))
    steering = set(vocab.steering())
    ids = vocab.tokenize(text, special=True, literal=spans)
    position = 0
    for token in ids:
        size = len(vocab.token_bytes(token, special=True))
        if token in steering:
            assert all(end <= position or begin >= position + size or begin == end for begin, end in spans)
        position += size if name != "spm" or token in steering else 0
        if (
            name == "spm" and token not in steering
        ):  # added spaces shift offsets: find the place by what is left
            piece = vocab.token_bytes(token)
            piece = piece if text.startswith(piece, position) else piece.removeprefix(b" ")
            assert text.startswith(piece, position)
            position += len(piece)
    assert position == len(text)


@pytest.mark.parametrize("spans", [[(2, 1)], [(0, 9)], [(1, 3), (2, 4)], [(3, 4), (0, 1)]])
def test_spans_that_make_no_sense_are_refused(spans: list[tuple[int, int]], tiny_spm: Vocab) -> None:
    with pytest.raises(errors.UsageError, match="literal span"):
        tiny_spm.tokenize(b"abcd", literal=spans)


def test_white_space_goes_with_special_tokens_of_phi_3() -> None:
    head = [("<|end|>", CONTROL), ("<|endoftext|>", CONTROL)]
    for name, expected in (("Phi-3 mini", ["a", "<|end|>", "a"]), ("other", ["a", "<|end|>", "▁", "▁a"])):
        vocab = open_vocab(spm(PIECES, head, general__name=Value(STRING, name)))
        assert spelled(vocab, vocab.tokenize(b"a<|end|>  a", special=True)) == expected
        kept = spelled(vocab, vocab.tokenize(b"<|endoftext|> a", special=True))
        assert kept == ["<|endoftext|>", "▁a"]


def test_bos_and_eos_follow_the_metadata() -> None:
    for bos, eos in ((False, False), (True, False), (False, True), (True, True)):
        vocab = open_vocab(spm(PIECES, add_bos_token=Value(BOOL, bos), add_eos_token=Value(BOOL, eos)))
        found = spelled(vocab, vocab.tokenize(b"ab", bos=True))
        assert found == ["<s>"] * bos + ["ab"] + ["</s>"] * eos
        assert spelled(vocab, vocab.tokenize(b"ab")) == ["ab"]


# ---- What tokens are ---------------------------------------------------------------------------------


def test_tokens_that_end_a_generation() -> None:
    specials = [
        ("<|end|>", CONTROL), ("<|im_end|>", NORMAL), ("</s>", USER_DEFINED), ("<reponame>", CONTROL),
        ("<|start|>", CONTROL), ("<other>", CONTROL), ("mine", CONTROL),
    ]  # fmt: skip
    vocab = open_vocab(bpe(specials=specials, eos_token_id=Value(U32, 6)))
    ends = {text for i, (text, _) in enumerate(specials) if vocab.is_end(i)}
    assert ends == {"<|end|>", "<|im_end|>", "</s>", "<reponame>", "mine"}
    kinds = {text: vocab.token_kind(i) for i, (text, _) in enumerate(specials)}
    assert kinds["<|im_end|>"] == "control"
    assert kinds["<|start|>"] == "user-defined"
    assert not any(vocab.is_end(i) for i in (-1, vocab.info.size, len(specials)))


def test_what_tokens_stand_for() -> None:
    table = [("<tag>", USER_DEFINED), ("Ġa", NORMAL), ("日", NORMAL), ("Ġb", UNUSED)]
    vocab = open_vocab(bpe([" a"], [("<|end|>", CONTROL), *table]))
    assert [vocab.token_bytes(i) for i in range(5)] == [b"", b"<tag>", b" a", "日".encode(), b" b"]
    assert vocab.token_bytes(0, special=True) == b"<|end|>"
    assert vocab.token_text(2) == "Ġa"
    for token in (-1, vocab.info.size, 2**31 - 1):
        with pytest.raises(errors.UsageError, match="outside the vocabulary"):
            vocab.token_bytes(token)


def test_an_empty_spelling_is_named_by_its_place() -> None:
    vocab = open_vocab(spm([("", NORMAL)]))
    assert vocab.token_text(259) == "[EMPTY_259]"


# ---- Refusals --------------------------------------------------------------------------------------


def _with(meta: dict[str, Value], **extra: Value | None) -> dict[str, Value]:
    for name, value in extra.items():
        key = f"tokenizer.ggml.{name}"
        if value is None:
            del meta[key]
        else:
            meta[key] = value
    return meta


REFUSALS = {
    "no model": (_with(bpe(), model=None), errors.FormatError, "tokenizer.ggml.model is missing"),
    "other model": (_with(bpe(), model=Value(STRING, "bert")), errors.UnsupportedError, '"bert"'),
    "no pre": (_with(bpe(), pre=None), errors.UnsupportedError, "tokenizer.ggml.pre is missing"),
    "other pre": (_with(bpe(), pre=Value(STRING, "gpt-4o")), errors.UnsupportedError, '"gpt-4o"'),
    "pre by prefix": (_with(bpe(), pre=Value(STRING, "gpt-2x")), errors.UnsupportedError, '"gpt-2x"'),
    "pre of a type": (_with(bpe(), pre=Value(U32, 1)), errors.FormatError, "tokenizer.ggml.pre"),
    "no tokens": (_with(bpe(), tokens=None), errors.FormatError, "tokenizer.ggml.tokens is missing"),
    "empty tokens": (_with(bpe(), tokens=Value(STRING, [], True)), errors.FormatError, "tokens is empty"),
    "tokens of a type": (
        _with(bpe(), tokens=Value(U32, [1], True)),
        errors.FormatError,
        "tokenizer.ggml.tokens",
    ),
    "no merges": (_with(bpe(), merges=None), errors.FormatError, "tokenizer.ggml.merges is missing"),
    "few types": (
        _with(bpe(), token_type=Value(I32, [1], True)),
        errors.FormatError,
        "1 entries for 257 tokens",
    ),
    "types of a type": (_with(bpe(), token_type=Value(F32, [1.0], True)), errors.FormatError, "token_type"),
    "unknown type": (spm([("a", 7)]), errors.FormatError, "token 259 has the unknown type 7"),
    "zero type": (spm([("a", 0)]), errors.FormatError, "unknown type 0"),
    "repeated": (spm([("a", NORMAL), ("a", NORMAL)]), errors.FormatError, "token 260 repeats the spelling"),
    "NUL": (spm([("a\0b", NORMAL)]), errors.FormatError, "NUL byte"),
    "no scores": (_with(spm([]), scores=None), errors.FormatError, "tokenizer.ggml.scores is missing"),
    "few scores": (_with(spm([]), scores=Value(F32, [0.0], True)), errors.FormatError, "1 entries for 259"),
    "NaN": (spm([("a", NORMAL, float("nan"))]), errors.FormatError, "score of token 259 is NaN"),
    "byte spelling": (spm([("<0xG0>", BYTE)]), errors.FormatError, "not spelled <0xNN>"),
    "control letter": (bpe(specials=[("a", CONTROL)]), errors.FormatError, "spells byte 0x61"),
    "bos": (_with(bpe(), bos_token_id=Value(U32, 257)), errors.FormatError, "bos_token_id is 257"),
    "eom": (_with(bpe(), eom_token_id=Value(U32, 999)), errors.FormatError, "eom_token_id is 999"),
    "bos wanted": (
        _with(bpe(), add_bos_token=Value(BOOL, True), bos_token_id=None),
        errors.FormatError,
        "bos_token_id is missing",
    ),
    "bool of a type": (_with(bpe(), add_bos_token=Value(U32, 1)), errors.FormatError, "add_bos_token"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals_name_what_and_where(name: str) -> None:
    meta, kind, text = REFUSALS[name]
    with pytest.raises(kind, match=re.escape(text)):
        open_vocab(meta)


def test_flags_and_sizes_of_the_c_interface() -> None:
    from engine._engine import ffi, lib

    vocab = open_vocab(spm(PIECES))
    err, count, out = ffi.new("char[]", 200), ffi.new("uint64_t *"), ffi.new("int32_t[]", [-7] * 4)
    with vocab.use() as handle:
        call = lib.engine_tokenize
        assert call(handle, b"ab a", 4, 4, ffi.NULL, 0, out, 4, count, err, 200) == lib.ENGINE_EINVAL
        assert b"flags" in ffi.string(err)
        assert call(handle, b"ab ab", 5, 0, ffi.NULL, 0, out, 1, count, err, 200) == lib.ENGINE_EINVAL
        assert (count[0], out[1]) == (3, -7)
        assert call(handle, ffi.NULL, 1, 0, ffi.NULL, 0, out, 4, count, err, 200) == lib.ENGINE_EINVAL
        assert call(handle, ffi.NULL, 0, 0, ffi.NULL, 0, ffi.NULL, 0, count, err, 200) == lib.ENGINE_OK
        assert call(handle, b"ab ab", 5, 0, ffi.NULL, 0, out, 1, count, ffi.NULL, 0) == lib.ENGINE_EINVAL
