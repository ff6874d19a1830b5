"""Vocabularies in memory, and strings that tokenizers trip over, for the tokenizer's tests."""

from __future__ import annotations

import os
import random
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from cffi import FFI

from engine import build
from engine.model import Header
from engine.native import Vocab
from fixtures.gguf_writer import BOOL, F32, I32, STRING, U32, Value, encode
from fixtures.vocab import BYTE, CONTROL, NORMAL, UNKNOWN, byte_letters

Token = tuple[str, int] | tuple[str, int, float]

SRC = Path(build.__file__).parent / "src"
PRES = ("gpt-2", "smollm", "qwen2", "llama-bpe")

_PIECES = """
's 'S 'T 're 'RE 'Ll ' ’s 'ſ 'K a b Z the The hello é é ß İ ı ſ ǅ 日 本語 한국 ᄀ ᅡ ᆨ ที่ नमस्ते क्ष
العربية שלום 👨‍👩‍👧 🏽 🇩🇪 ❤️ 𝐀 𠀀 ⿼ ೳ 𑽐 0 1 12 1234 ٣ Ⅷ ½ ² ① 〇 𝟎 𐄇 ௰
. , ! ... -- /* */ \\ " ` ~ $ ( ) [ ] { } < > | <| |> ▁ ▁▁ Ġ Ċ ĉ <0x0A> <0x41> I'm DON'T
<|im_start|> <|im_end|> <|endoftext|> <s> </s> <unk> <bos> <eos> <start_of_turn> <end_of_turn> <tool>
<start_of_image> [multimodal] <unused3> <|eot_id|> <|<|im_end|> im_end|> <table> <reponame> <file_sep>
"""
ATOMS = _PIECES.split()
ATOMS += [
    "\u200f",
    "\U0002ebf0",
    "\U000313af",
    "\U000323b0",
    "\U0001fae9",
    "\x01",
    "\x04",
    "\x7f",
    "\x80",
    "\x9f",
    "\xad",
]
ATOMS += [
    "\ufffd",
    "\ufffe",
    "\uffff",
    "\ue000",
    "\U0010ffff",
    "\u0378",
    "\U000e0041",
    "\u0300",
    "\u20dd",
    "\u200b",
]
ATOMS += ["\ufeff", "\u180e"]
SPACES = [
    " ",
    "  ",
    "   ",
    "\n",
    "\n\n",
    "\r",
    "\r\n",
    "\t",
    "\x0b",
    "\x00",
    "\x85",
    "\xa0",
    "\u2003",
    "\u2028",
    "\u3000",
]


def nasty_text(rng: random.Random) -> str:
    """A random string: mostly awkward pieces, also long repeats, any code points, plain ASCII."""
    kind = rng.random()
    if kind < 0.6:
        return "".join(rng.choice(ATOMS if rng.random() < 0.7 else SPACES) for _ in range(rng.randint(1, 14)))
    if kind < 0.75:
        times = (1, 2, 3, 5, 17, 33, 64)
        return "".join(rng.choice(ATOMS + SPACES) * rng.choice(times) for _ in range(rng.randint(1, 5)))
    if kind < 0.9:
        limits = (0x80, 0x250, 0x800, 0x3000, 0x10000, 0x20000, 0x30000, 0x110000)
        codes = (rng.randrange(rng.choice(limits)) for _ in range(rng.randint(1, 20)))
        return "".join(chr(code) for code in codes if not 0xD800 <= code < 0xE000)
    return "".join(chr(rng.randrange(0x20, 0x7F)) for _ in range(rng.randint(1, 60)))


def nasty_texts(count: int, seed: int) -> list[str]:
    """``count`` random strings, the same ones for the same seed."""
    rng = random.Random(seed)
    return [nasty_text(rng) for _ in range(count)]


def letters(text: str | bytes) -> str:
    """The byte-level spelling of a text."""
    table = byte_letters()
    return "".join(table[byte] for byte in (text.encode() if isinstance(text, str) else text))


def metadata(model: str, tokens: Sequence[Token], **extra: Value | None) -> dict[str, Value]:
    """``tokenizer.ggml.*`` keys of the tokens; ``extra`` adds keys (dots as __) or removes them (None)."""
    meta = {
        "general.architecture": Value(STRING, "llama"),
        "tokenizer.ggml.model": Value(STRING, model),
        "tokenizer.ggml.tokens": Value(STRING, [token[0] for token in tokens], True),
        "tokenizer.ggml.token_type": Value(I32, [token[1] for token in tokens], True),
    }
    if model == "llama":
        scores = [token[2] if len(token) > 2 else 0.0 for token in tokens]
        meta["tokenizer.ggml.scores"] = Value(F32, scores, True)
    for name, value in extra.items():
        key = name.replace("__", ".") if "__" in name else f"tokenizer.ggml.{name}"
        if value is None:
            meta.pop(key, None)
        else:
            meta[key] = value
    return meta


def bpe(
    words: Sequence[str] = (),
    specials: Sequence[Token] = (("<|end|>", CONTROL),),
    pre: str = "gpt-2",
    **extra: Value | None,
) -> dict[str, Value]:
    """Byte-level BPE with all letters, and merges that build each word from the left."""
    merges: dict[str, None] = {}
    tokens: dict[str, int] = {token[0]: token[1] for token in specials} | dict.fromkeys(
        byte_letters(), NORMAL
    )
    for word in words:
        spelled = letters(word)
        for end in range(1, len(spelled)):
            merges.setdefault(f"{spelled[:end]} {spelled[end]}")
            tokens.setdefault(spelled[: end + 1], NORMAL)
    extra = {
        "pre": Value(STRING, pre),
        "merges": Value(STRING, list(merges), True),
        "bos_token_id": Value(U32, 0),
        "eos_token_id": Value(U32, 0),
        "add_bos_token": Value(BOOL, False),
    } | extra
    return metadata("gpt2", list(tokens.items()), **extra)


def spm(
    pieces: Sequence[Token], specials: Sequence[Token] = (), space_prefix: bool = False, **extra: Value | None
) -> dict[str, Value]:
    """SentencePiece BPE: <unk>, <s>, </s>, specials, all bytes, then the pieces with their scores."""
    head: list[Token] = [("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL), *specials]
    table = [*head, *((f"<0x{b:02X}>", BYTE) for b in range(256)), *pieces]
    extra = {"add_space_prefix": Value(BOOL, space_prefix)} | extra
    return metadata("llama", table, **extra)


@cache
def _splitter() -> tuple[Any, Any]:
    """The pre-tokenizer alone, which the extension module does not export."""
    ffi = FFI()
    ffi.cdef("""
        typedef struct tok_words { int pre; const char *text; uint64_t pos, end, part_end; } tok_words;
        int tok_next_word(tok_words *words, uint64_t *begin, uint64_t *word_end);
    """)
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "splitter.so"
        compiler = os.environ.get("CC", "cc").split()
        flags = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
        subprocess.run([*compiler, *flags, "-o", str(library), str(SRC / "pretokenize.c")], check=True)
        return ffi, ffi.dlopen(str(library))


def words(pre: str, text: str | bytes) -> list[bytes]:
    """The words into which a pre-tokenizer cuts a text."""
    ffi, lib = _splitter()
    data = text.encode() if isinstance(text, str) else text
    buffer = ffi.new("char[]", data or b"\0")
    state = ffi.new("tok_words *", {"pre": PRES.index(pre), "text": buffer, "end": len(data)})
    begin, end = ffi.new("uint64_t *"), ffi.new("uint64_t *")
    found = []
    while lib.tok_next_word(state, begin, end):
        found.append(data[begin[0] : end[0]])
    return found


def open_vocab(meta: Mapping[str, Value]) -> Vocab:
    """The tokenizer of a file that holds nothing but this metadata."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vocab.gguf"
        path.write_bytes(encode(dict(meta), []))
        with Header.open(path, mmap=False) as header:
            vocab = Vocab.open(header._file)
    return vocab


def spelled(vocab: Vocab, ids: Sequence[int]) -> list[str]:
    """Spellings of ids, which read better in a failing test than numbers."""
    return [vocab.token_text(token) for token in ids]


def joined(vocab: Vocab, ids: Sequence[int]) -> bytes:
    """The bytes of all tokens, control tokens written out."""
    stand_for = {token: vocab.token_bytes(token, special=True) for token in set(ids)}
    return b"".join(stand_for[token] for token in ids)
