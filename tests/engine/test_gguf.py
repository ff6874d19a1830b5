"""The GGUF reader: gguf's own writer and reader as oracles; every refusal with its byte offset."""

from __future__ import annotations

import ctypes
import os
import re
import socket
import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from engine._engine import ffi, lib
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures import tiny
from tests.engine import core
from tests.engine import gguf_bytes as gb
from tests.engine.gguf_bytes import File, u32, u64

REAL_MODELS = ["SmolLM2-135M-Instruct.Q4_1.gguf", "gemma-3-270m-q4_k_m.gguf"]
REFUSALS = {lib.ENGINE_EFORMAT, lib.ENGINE_EUNSUPPORTED}


@contextmanager
def descriptor(data: bytes) -> Iterator[int]:
    """A descriptor of an unnamed file with these bytes."""
    with tempfile.TemporaryFile() as handle:
        handle.write(data)
        handle.flush()
        yield handle.fileno()


def try_open(fd: int, mmap: bool = True) -> tuple[int, str, Any]:
    """Status, text and the file (NULL on failure)."""
    out, err = ffi.new("engine_file **"), ffi.new("char[1024]")
    status = lib.engine_file_open(out, fd, int(mmap), err, 1024)
    assert (out[0] == ffi.NULL) == (status != lib.ENGINE_OK)
    return status, ffi.string(err).decode("utf-8"), out[0]


@contextmanager
def opened(data: bytes, mmap: bool = True) -> Iterator[Any]:
    """The open file; its descriptor is closed already."""
    with descriptor(data) as fd:
        status, text, file = try_open(fd, mmap)
    assert status == lib.ENGINE_OK, text
    try:
        yield file
    finally:
        lib.engine_file_free(file)


def call(function: Any, *args: Any) -> tuple[int, str]:
    err = ffi.new("char[1024]")
    status = function(*args, err, 1024)
    return status, ffi.string(err).decode()


def text_of(pointer: Any, length: int) -> bytes:
    return bytes(ffi.buffer(pointer, length)) if length else b""


def strings_of(file: Any, index: int, first: int, count: int) -> list[bytes]:
    pointers, lengths = ffi.new("char *[]", count or 1), ffi.new("uint64_t[]", count or 1)
    status, text = call(lib.engine_file_kv_strings, file, index, first, count, pointers, lengths)
    assert status == lib.ENGINE_OK, text
    return [text_of(pointers[i], lengths[i]) for i in range(count)]


def value_of(file: Any, index: int, kv: Any) -> Any:
    """A key's value as Python sees it: bytes for strings, lists for arrays."""
    if kv.elem_type == gb.STRING:
        if kv.type == gb.ARRAY:
            return strings_of(file, index, 0, kv.count)
        return text_of(kv.data, kv.data_bytes)
    letter = gb.FORMATS[kv.elem_type][1]
    raw = text_of(kv.data, kv.data_bytes)
    values = list(struct.unpack(f"<{kv.count}{letter}", raw))
    return values if kv.type == gb.ARRAY else values[0]


def metadata_of(file: Any) -> dict[str, tuple[int, int, Any]]:
    """Key → (type, element type, value), through index and through search."""
    out, kv = {}, ffi.new("engine_kv *")
    for i in range(lib.engine_file_kv_count(file)):
        assert call(lib.engine_file_kv, file, i, kv)[0] == lib.ENGINE_OK
        key = text_of(kv.key, kv.key_len)
        assert lib.engine_file_find_kv(file, key, len(key)) == i
        out[key.decode()] = (kv.type, kv.elem_type, value_of(file, i, kv))
    return out


def tensors_of(file: Any) -> dict[str, tuple[int, list[int], int, int]]:
    """Name → (type, dims, absolute offset, bytes), through index and through search."""
    out, t = {}, ffi.new("engine_tensor *")
    for i in range(lib.engine_file_tensor_count(file)):
        assert call(lib.engine_file_tensor, file, i, t)[0] == lib.ENGINE_OK
        name = text_of(t.name, t.name_len)
        assert lib.engine_file_find_tensor(file, name, len(name)) == i
        assert list(t.dims)[t.n_dims :] == [1] * (4 - t.n_dims)
        out[name.decode()] = (t.type, list(t.dims)[: t.n_dims], t.offset, t.bytes)
    return out


def assert_equals_gguf(file: Any, path: Path) -> None:
    """Everything that gguf.GGUFReader finds in the file, we find too, and nothing else."""
    reader = gguf.GGUFReader(path)
    ours = metadata_of(file)
    theirs = {k: f for k, f in reader.fields.items() if not k.startswith("GGUF.")}
    assert list(ours) == list(theirs)
    for key, found in theirs.items():
        kind, elem, value = ours[key]
        assert kind == found.types[0]
        want: Any = [found.parts[i] for i in found.data]
        if found.types[-1] == gguf.GGUFValueType.STRING:
            want = [bytes(part) for part in want]
        else:
            want = [part[0] for part in want]
        if kind == gb.ARRAY:
            assert not want or elem == found.types[-1]
            assert value == want
        else:
            assert [value] == want
    infos = {t.name: (int(t.tensor_type), t.shape.tolist(), t.data_offset, t.n_bytes) for t in reader.tensors}
    assert tensors_of(file) == infos


# ---- Agreement with gguf -------------------------------------------------------------------


@pytest.mark.models
@pytest.mark.parametrize("name", REAL_MODELS)
@pytest.mark.parametrize("mmap", [True, False])
def test_real_models_read_as_gguf_reads_them(
    name: str, mmap: bool, real_model: Callable[[str], Path]
) -> None:
    path = real_model(name)
    with path.open("rb") as handle:
        status, text, file = try_open(handle.fileno(), mmap)
    assert status == lib.ENGINE_OK, text
    assert lib.engine_file_bytes(file) == path.stat().st_size
    assert_equals_gguf(file, path)
    lib.engine_file_free(file)


@pytest.mark.parametrize("name", tiny.NAMES)
def test_tiny_models_read_as_gguf_reads_them(name: str, tiny_model: Callable[[str], Path]) -> None:
    path = tiny_model(name)
    with opened(path.read_bytes()) as file:
        assert_equals_gguf(file, path)
        for i, tensor in enumerate(gguf.GGUFReader(path).tensors):
            want = gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape(-1, tensor.shape[0])
            np.testing.assert_array_equal(rows_of(file, i, 0, len(want), tensor.shape[0]), want)
            np.testing.assert_array_equal(rows_of(file, i, len(want) - 1, 1, tensor.shape[0]), want[-1:])


def rows_of(file: Any, index: int, first: int, count: int, width: int) -> Any:
    out = np.empty((count, int(width)), np.float32)
    status, text = call(
        lib.engine_file_tensor_rows, file, index, first, count, ffi.from_buffer("float[]", out)
    )
    assert status == lib.ENGINE_OK, text
    return out


def test_gguf_writer_s_files_of_every_value_type(tmp_path: Path) -> None:
    path = tmp_path / "all.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint8("u8", 255)
    writer.add_int8("i8", -128)
    writer.add_uint16("u16", 65535)
    writer.add_int16("i16", -32768)
    writer.add_uint32("u32", 2**32 - 1)
    writer.add_int32("i32", -(2**31))
    writer.add_float32("f32", 0.1)
    writer.add_bool("bool", True)
    writer.add_string("string", "naïve ☃ \0 text")
    writer.add_array("strings", ["a", "", "ß"])
    writer.add_array("ints", [1, -2, 3])
    writer.add_array("floats", [0.5, -0.25])
    writer.add_array("bools", [True, False])
    writer.add_uint64("u64", 2**64 - 1)
    writer.add_int64("i64", -(2**63))
    writer.add_float64("f64", 0.1)
    writer.add_custom_alignment(64)
    for i, shape in enumerate([(3,), (2, 5), (2, 3, 4), (2, 1, 3, 4)]):
        writer.add_tensor(f"t{i}", np.arange(np.prod(shape), dtype=np.float32).reshape(shape))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    for mmap in (True, False):
        with opened(path.read_bytes(), mmap) as file:
            assert_equals_gguf(file, path)
            assert lib.engine_file_version(file) == 3
            np.testing.assert_array_equal(rows_of(file, 3, 2, 3, 4), np.arange(8, 20).reshape(3, 4))


# ---- Refusals ------------------------------------------------------------------------------


def one_kv(key: str | bytes, kind: int, value: bytes) -> File:
    return File().header(0, 1).kv(key, kind, value)


def one_tensor(dims: list[int], **more: Any) -> File:
    return File().header(1, 0).tensor("t", dims, **more).body(256)


def aligned(kind: int, value: bytes) -> File:
    return one_kv("general.alignment", kind, value)


def two_tensors(first: tuple[list[int], int], second: tuple[list[int], int], name: str = "b") -> File:
    """Two F32 tensors, each (dims, offset)."""
    file = File().header(2, 0).tensor("a", first[0], offset=first[1], mark="a")
    return file.tensor(name, second[0], offset=second[1], mark="b").body(256)


FORMAT, UNSUPPORTED = lib.ENGINE_EFORMAT, lib.ENGINE_EUNSUPPORTED
# name: (file, mark of the offset in the text plus a distance, status, what the text says)
CASES: dict[str, tuple[File, str, int, int, str]] = {
    "empty": (File(), "", 0, FORMAT, "empty"),
    "magic cut": (
        File().add(b"GGU"),
        "",
        0,
        FORMAT,
        'the magic number "GGUF" needs 4 bytes, but the file ends at byte 3',
    ),
    "magic": (
        File().header(0, 0, magic=b"\x80\x02}q"),
        "magic",
        0,
        FORMAT,
        "not a GGUF file: it begins with 80 02 7d 71",
    ),
    "git lfs": (
        File().add(b"version https://git-lfs.github.com/spec/v1\n"),
        "",
        0,
        FORMAT,
        "Git LFS pointer",
    ),
    "ggml": (File().header(0, 0, magic=b"lmgg"), "magic", 0, UNSUPPORTED, "GGML file from before GGUF"),
    "ggjt": (File().header(0, 0, magic=b"tjgg"), "magic", 0, UNSUPPORTED, "GGML file from before GGUF"),
    "big-endian magic": (File().header(0, 0, magic=b"FUGG"), "magic", 0, UNSUPPORTED, "big-endian"),
    "big-endian": (File().header(0, 0, version=3 << 24), "version", 0, UNSUPPORTED, "big-endian"),
    "version 1": (
        File().header(0, 0, version=1),
        "version",
        0,
        UNSUPPORTED,
        "GGUF version 1 is not supported",
    ),
    "version 4": (
        File().header(0, 0, version=4),
        "version",
        0,
        UNSUPPORTED,
        "GGUF version 4 is not supported",
    ),
    "version 0": (
        File().header(0, 0, version=0),
        "version",
        0,
        UNSUPPORTED,
        "GGUF version 0 is not supported",
    ),
    "too many tensors": (
        File().header(1, 0),
        "tensors",
        0,
        FORMAT,
        "1 tensors cannot be described in the 0 bytes",
    ),
    "most tensors": (
        File().header(2**64 - 1, 0),
        "tensors",
        0,
        FORMAT,
        "18446744073709551615 tensors cannot",
    ),
    "too many keys": (
        File().header(0, 2**63),
        "keys",
        0,
        FORMAT,
        "9223372036854775808 keys cannot stand in the 0 bytes",
    ),
    "empty key": (one_kv("", gb.U8, bytes(20)), "kv.key", 0, FORMAT, "a key is 0 bytes long"),
    "long key": (one_kv(b"k" * 65536, gb.U8, b"\1"), "kv.key", 0, FORMAT, "a key is 65536 bytes long"),
    "key past end": (
        File().header(0, 1).add(gb.string("kk", 99) + bytes(11), "kv"),
        "kv",
        8,
        FORMAT,
        "a key needs 99 bytes",
    ),
    "key of 2^64-1": (
        File().header(0, 1).add(gb.string("k", 2**64 - 1) + bytes(9), "kv"),
        "kv",
        8,
        FORMAT,
        "18446744073709551615 bytes",
    ),
    "key not UTF-8": (
        one_kv(b"ab\xc3(", gb.U8, b"\1"),
        "kv.key",
        10,
        FORMAT,
        r'a key "ab\xc3(" is not valid UTF-8',
    ),
    "key overlong": (one_kv(b"\xc0\xaf", gb.U8, b"\1"), "kv.key", 8, FORMAT, "is not valid UTF-8"),
    "key surrogate": (one_kv(b"\xed\xa0\x80", gb.U8, b"\1"), "kv.key", 8, FORMAT, "is not valid UTF-8"),
    "key above 10ffff": (
        one_kv(b"x\xf4\x90\x80\x80", gb.U8, b"\1"),
        "kv.key",
        9,
        FORMAT,
        "is not valid UTF-8",
    ),
    "key control": (
        one_kv(b"a\x1b[1m", gb.U8, b"\1"),
        "kv.key",
        9,
        FORMAT,
        r'a key "a\x1b[1m" holds a control character',
    ),
    "value type": (
        one_kv("k", 13, bytes(8)),
        "kv.type",
        0,
        FORMAT,
        'key "k": 13 is not the number of a value type',
    ),
    "value cut": (
        one_kv("kkk", gb.U64, bytes(7)),
        "kv.value",
        0,
        FORMAT,
        'key "kkk": its value needs 8 bytes',
    ),
    "string cut": (
        one_kv("k", gb.STRING, gb.string("abc", 4)),
        "kv.value",
        8,
        FORMAT,
        'key "k": its string needs 4 bytes',
    ),
    "string length cut": (
        one_kv("k", gb.STRING, bytes(7)),
        "kv.value",
        0,
        FORMAT,
        'key "k": its string needs 8 bytes',
    ),
    "bool": (one_kv("k", gb.BOOL, b"\2"), "kv.value", 0, FORMAT, 'key "k": a bool must be 0 or 1, not 2'),
    "bool in array": (
        one_kv("k", gb.ARRAY, gb.array(gb.BOOL, [1, 0, 255])),
        "kv.value",
        14,
        FORMAT,
        "not 255",
    ),
    "nested array": (
        one_kv("k", gb.ARRAY, gb.array(gb.ARRAY, [])),
        "kv.value",
        0,
        UNSUPPORTED,
        'key "k": arrays of arrays',
    ),
    "element type": (
        one_kv("k", gb.ARRAY, u32(99) + u64(0)),
        "kv.value",
        0,
        FORMAT,
        "99 is not the number of an element type",
    ),
    "array count": (
        one_kv("k", gb.ARRAY, gb.array(gb.U32, [1, 2], 3)),
        "kv.value",
        4,
        FORMAT,
        "3 elements of type u32 cannot fit into the 8",
    ),
    "array count overflow": (
        one_kv("k", gb.ARRAY, gb.array(gb.U64, [1], 2**61 + 1)),
        "kv.value",
        4,
        FORMAT,
        "elements of type u64 cannot fit",
    ),
    "strings count": (
        one_kv("k", gb.ARRAY, gb.array(gb.STRING, ["a"], 2**60)),
        "kv.value",
        4,
        FORMAT,
        "elements of type string cannot fit",
    ),
    "string in array": (
        one_kv("k", gb.ARRAY, u32(8) + u64(2) + gb.string("") + gb.string("ab", 3)),
        "kv.value",
        28,
        FORMAT,
        'key "k": a string of its array needs 3 bytes',
    ),
    "duplicate key": (
        File().header(0, 3).kv("dup", gb.U8, b"\1").kv("c", gb.U8, b"\1").kv("dup", gb.I8, b"\1", "again"),
        "again.key",
        8,
        FORMAT,
        'key "dup" stands twice',
    ),
    "alignment type": (
        aligned(gb.U64, u64(32)),
        "kv.value",
        0,
        FORMAT,
        'key "general.alignment" must be of type u32, not u64',
    ),
    "alignment zero": (
        aligned(gb.U32, u32(0)),
        "kv.value",
        0,
        FORMAT,
        "0 is not a power of two from 8 to 1048576",
    ),
    "alignment four": (aligned(gb.U32, u32(4)), "kv.value", 0, FORMAT, "4 is not a power of two"),
    "alignment odd": (aligned(gb.U32, u32(48)), "kv.value", 0, FORMAT, "48 is not a power of two"),
    "alignment huge": (aligned(gb.U32, u32(2**21)), "kv.value", 0, FORMAT, "2097152 is not a power of two"),
    "split": (
        one_kv("split.count", gb.U16, b"\3\0"),
        "kv.value",
        0,
        UNSUPPORTED,
        "one of 3 parts of a split file",
    ),
    "split type": (
        one_kv("split.count", gb.STRING, gb.string("3")),
        "kv.value",
        0,
        FORMAT,
        '"split.count" must be an integer; it is of type string',
    ),
    "split negative": (
        one_kv("split.count", gb.I32, u32(2**32 - 2)),
        "kv.value",
        0,
        FORMAT,
        '"split.count" is -2, which is not from 0',
    ),
    "empty tensor name": (
        File().header(1, 0).tensor("", [8]).body(64),
        "tensor.name",
        0,
        FORMAT,
        "a tensor's name is 0 bytes long",
    ),
    "long tensor name": (
        File().header(1, 0).tensor("n" * 65, [8]).body(64),
        "tensor.name",
        0,
        FORMAT,
        "65 bytes long; 1 to 64",
    ),
    "tensor name not UTF-8": (
        File().header(1, 0).tensor(b"n\xff", [8]).body(64),
        "tensor.name",
        9,
        FORMAT,
        r'"n\xff" is not valid UTF-8',
    ),
    "no dimensions": (one_tensor([]), "tensor.n_dims", 0, FORMAT, 'tensor "t" has 0 dimensions; 1 to 4'),
    "five dimensions": (one_tensor([8], n_dims=5), "tensor.n_dims", 0, FORMAT, 'tensor "t" has 5 dimensions'),
    "zero dimension": (one_tensor([8, 0]), "tensor.dims", 8, FORMAT, 'tensor "t": dimension 1 is zero'),
    "unknown type": (one_tensor([32], kind=4), "tensor.type", 0, UNSUPPORTED, 'tensor "t" has type number 4'),
    "negative type": (
        one_tensor([32], kind=2**32 - 1),
        "tensor.type",
        0,
        UNSUPPORTED,
        'tensor "t" has type number -1',
    ),
    "partial block": (
        one_tensor([48], kind=2),
        "tensor.dims",
        0,
        FORMAT,
        "rows of 48 values are no multiple of type Q4_0's block of 32",
    ),
    "partial superblock": (
        one_tensor([288], kind=12),
        "tensor.dims",
        0,
        FORMAT,
        "no multiple of type Q4_K's block of 256",
    ),
    "shape overflow": (one_tensor([2**32, 2**32, 2]), "tensor.dims", 0, FORMAT, "is larger than the file"),
    "shape overflow to zero": (one_tensor([2**62, 4]), "tensor.dims", 0, FORMAT, "is larger than the file"),
    "shape too large": (
        one_tensor([4, 200]),
        "tensor.dims",
        0,
        FORMAT,
        "[4, 200, 1, 1] of type F32 is larger than the file",
    ),
    "misaligned": (
        one_tensor([8], offset=16),
        "tensor.offset",
        0,
        FORMAT,
        "offset 16 is no multiple of the alignment 32",
    ),
    "extent": (
        one_tensor([8, 8], offset=32),
        "tensor.name",
        8,
        FORMAT,
        "its 256 bytes at data offset 32 pass the end",
    ),
    "offset": (
        one_tensor([8], offset=2**64 - 32),
        "tensor.name",
        8,
        FORMAT,
        "at data offset 18446744073709551584 pass the end",
    ),
    "no data": (
        File().header(1, 0).tensor("t", [1]),
        "tensor.name",
        8,
        FORMAT,
        "its 4 bytes at data offset 0 pass the end of the file (0 bytes",
    ),
    "overlap": (two_tensors(([9], 0), ([8], 32)), "body", 32, FORMAT, 'tensors "a" and "b" overlap'),
    "overlap backwards": (
        two_tensors(([8], 32), ([16], 0)),
        "body",
        32,
        FORMAT,
        'tensors "b" and "a" overlap',
    ),
    "same place": (two_tensors(([8], 64), ([8], 64)), "body", 64, FORMAT, 'tensors "a" and "b" overlap'),
    "duplicate tensor": (
        two_tensors(([8], 0), ([8], 32), "a"),
        "b.name",
        8,
        FORMAT,
        'tensor "a" is listed twice',
    ),
}


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("name", list(CASES))
def test_refused_with_its_offset(name: str, mmap: bool) -> None:
    file, mark, distance, status, says = CASES[name]
    offset = file.at.get(mark, 0) + distance
    with descriptor(bytes(file)) as fd:
        got, text, _ = try_open(fd, mmap)
    assert text.startswith(f"byte {offset}: "), text
    assert says in text
    assert got == status
    assert text.isprintable()


def valid_file() -> File:
    file = File().header(2, 4).kv("general.architecture", gb.STRING, gb.string("llama"), "arch")
    file.kv("list", gb.ARRAY, gb.array(gb.STRING, ["one", "", "three"]), "list")
    file.kv("numbers", gb.ARRAY, gb.array(gb.I16, [-1, 2]), "numbers").kv("flag", gb.BOOL, b"\1", "flag")
    file.tensor("weight", [32, 3], kind=2, mark="weight").tensor("bias", [8], offset=64, mark="bias")
    return file.body(96)


def test_every_prefix_is_refused_where_it_ends() -> None:
    """Cut anywhere: one sentence, an offset within what is left, never a crash."""
    data = bytes(valid_file())
    with opened(data) as file:
        assert lib.engine_file_tensor_count(file) == 2
    for length in range(len(data)):
        with descriptor(data[:length]) as fd:
            status, text, _ = try_open(fd, mmap=length % 2 == 0)
        found = re.match(r"byte (\d+): .{10}", text)
        assert status == lib.ENGINE_EFORMAT
        assert found is not None
        assert int(found[1]) <= length


def test_errors_are_cut_to_the_buffer() -> None:
    with descriptor(b"") as fd:
        out = ffi.new("engine_file **")
        for size in (0, 1, 8):
            err = ffi.new("char[8]", b"-------")
            assert lib.engine_file_open(out, fd, 1, err, size) == lib.ENGINE_EFORMAT
            assert ffi.string(err) == {0: b"-------", 1: b"", 8: b"byte 0:"}[size]
        assert lib.engine_file_open(out, fd, 1, ffi.NULL, 0) == lib.ENGINE_EFORMAT


# ---- What is not a file --------------------------------------------------------------------


def test_directories_fifos_devices_and_sockets_do_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    cases = {
        os.open(tmp_path, os.O_RDONLY): "a directory",
        os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK): "a FIFO",
        os.open("/dev/zero", os.O_RDONLY): "a device",
        socket.socket().detach(): "a socket",
    }
    for fd, what in cases.items():
        for mmap in (True, False):
            status, text, _ = try_open(fd, mmap)
            assert status == lib.ENGINE_EIO
            assert text == f"this is {what}, not a regular file: give the path of a .gguf file"
        os.close(fd)


def test_bad_descriptors_are_named(tmp_path: Path) -> None:
    assert try_open(-1)[:2] == (lib.ENGINE_EIO, "file descriptor -1 cannot be examined: Bad file descriptor")
    (tmp_path / "w").write_bytes(bytes(100))
    fd = os.open(tmp_path / "w", os.O_WRONLY)
    assert try_open(fd, True)[:2] == (
        lib.ENGINE_EIO, "the file cannot be mapped (Permission denied): try without mmap",
    )  # fmt: skip
    assert try_open(fd, False)[:2] == (
        lib.ENGINE_EIO, "byte 0: the file cannot be read: Bad file descriptor",
    )  # fmt: skip
    os.close(fd)


def test_the_descriptor_s_position_does_not_matter_and_stays() -> None:
    with descriptor(bytes(valid_file())) as fd:
        os.lseek(fd, 13, os.SEEK_SET)
        for mmap in (True, False):
            status, text, file = try_open(fd, mmap)
            assert status == lib.ENGINE_OK, text
            lib.engine_file_free(file)
        assert os.lseek(fd, 0, os.SEEK_CUR) == 13


def test_without_mmap_a_file_may_be_cut_while_open(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(bytes(valid_file()))
    with path.open("rb") as handle:
        _, _, file = try_open(handle.fileno(), mmap=False)
    os.truncate(path, 0)
    assert metadata_of(file)["list"][2] == [b"one", b"", b"three"]
    assert rows_of(file, 1, 0, 1, 8).shape == (1, 8)
    lib.engine_file_free(file)


# ---- Access --------------------------------------------------------------------------------


def test_offsets_are_where_values_stand() -> None:
    built, kv = valid_file(), ffi.new("engine_kv *")
    with opened(bytes(built)) as file:
        for i, mark in enumerate(["arch", "list", "numbers", "flag"]):
            lib.engine_file_kv(file, i, kv, ffi.NULL, 0)
            assert kv.offset == built.at[f"{mark}.value"]
        lib.engine_file_kv(file, 1, kv, ffi.NULL, 0)
        assert (kv.data, kv.data_bytes, kv.count) == (ffi.NULL, 3 * 8 + 8, 3)
        assert strings_of(file, 1, 1, 2) == [b"", b"three"]
        assert tensors_of(file)["bias"] == (0, [8], built.at["body"] + 64, 32)


def test_version_2_and_a_vocabulary_alone() -> None:
    data = File().header(0, 1, version=2).kv("general.alignment", gb.U32, u32(2**20))
    with opened(bytes(data)) as file:
        assert lib.engine_file_version(file) == 2
        assert lib.engine_file_tensor_count(file) == 0
        assert lib.engine_file_find_tensor(file, b"t", 1) == -1


def test_an_unsplit_file_may_say_so() -> None:
    for count in (0, 1):
        with opened(bytes(one_kv("split.count", gb.U16, bytes([count, 0])))):
            pass


def test_types_that_we_do_not_run_open_but_do_not_decode() -> None:
    with opened(bytes(File().header(1, 0).tensor("q", [32, 2], kind=20).body(36))) as file:
        assert tensors_of(file)["q"][3] == 36
        status, text = call(lib.engine_file_tensor_rows, file, 0, 0, 1, ffi.new("float[32]"))
    assert (status, text) == (
        lib.ENGINE_EUNSUPPORTED, 'tensor "q" has type IQ4_NL, which this engine does not decode',
    )  # fmt: skip


def test_access_out_of_range_is_refused() -> None:
    floats, chars, sizes = ffi.new("float[32]"), ffi.new("char *[8]"), ffi.new("uint64_t[8]")
    with opened(bytes(valid_file())) as file:
        cases = [
            (lib.engine_file_kv, (4, ffi.new("engine_kv *")), "there is no key number 4: the file has 4"),
            (
                lib.engine_file_tensor,
                (2**64 - 1, ffi.new("engine_tensor *")),
                "there is no tensor number 184",
            ),
            (lib.engine_file_tensor_rows, (2, 0, 1, floats), "there is no tensor number 2: the file has 2"),
            (lib.engine_file_tensor_rows, (0, 3, 1, floats), 'tensor "weight" has 3 rows; 1 from number 3'),
            (lib.engine_file_tensor_rows, (0, 1, 2**64 - 1, floats), "from number 1 on were asked for"),
            (lib.engine_file_kv_strings, (0, 0, 1, chars, sizes), 'key "general.architecture" at byte'),
            (lib.engine_file_kv_strings, (2, 0, 1, chars, sizes), "is not an array of strings"),
            (
                lib.engine_file_kv_strings,
                (1, 2, 2, chars, sizes),
                'key "list" has 3 strings; 2 from number 2',
            ),
            (lib.engine_file_kv_strings, (1, 2**64 - 1, 2, chars, sizes), "were asked for"),
        ]
        for function, args, says in cases:
            status, text = call(function, file, *args)
            assert status == lib.ENGINE_EINVAL
            assert says in text
        assert lib.engine_file_find_kv(file, b"lis", 3) == -1
        assert lib.engine_file_find_kv(file, b"", 0) == -1


def test_names_are_compared_as_bytes_not_as_c_strings() -> None:
    keys = ["a", "aa", "b", "ab", "é", "e"]
    file = File().header(0, len(keys))
    for key in keys:
        file.kv(key, gb.U8, b"\1")
    with opened(bytes(file)) as found:
        assert list(metadata_of(found)) == keys
        assert lib.engine_file_find_kv(found, b"aaa", 2) == 1


# ---- Cost ----------------------------------------------------------------------------------


MALLINFO = (
    "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
)  # fmt: skip


class MallocInfo(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_size_t) for name in MALLINFO)


def heap_bytes() -> int:
    """Bytes that malloc has handed out, large blocks included (glibc)."""
    mallinfo2 = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo2 is None:
        pytest.skip("this C library has no mallinfo2")
    mallinfo2.restype = MallocInfo
    info = mallinfo2()
    return int(info.uordblks + info.hblkhd)


def test_memory_is_a_small_multiple_of_the_densest_header() -> None:
    """Keys and tensors of the least size that lets them differ, and as many as fit."""
    many = 50_000
    file = File().header(many, many)
    for i in range(many):
        file.add(gb.string(i.to_bytes(2, "big").hex()) + u32(gb.U8) + b"\0")
    for i in range(many):
        file.add(gb.string(i.to_bytes(2, "big").hex()) + u32(1) + u64(8) + u32(0) + u64(32 * i))
    data = bytes(file.body(32 * many))
    before = heap_bytes()
    with opened(data) as opened_file:
        used = heap_bytes() - before
        assert lib.engine_file_find_kv(opened_file, b"c34f", 4) == 0xC34F
    assert used < 6 * len(data)
    assert heap_bytes() - before < 1 << 16


def test_a_lying_count_allocates_nothing_much() -> None:
    """A large file whose counts claim to fill it fails at its first key."""
    data = File().header(0, 1_000_000).add(bytes(14_000_000))
    before = heap_bytes()
    with descriptor(bytes(data)) as fd:
        assert try_open(fd)[0] == lib.ENGINE_EFORMAT
    assert heap_bytes() - before < 1 << 16


# ---- Getters of the C core -----------------------------------------------------------------


@contextmanager
def core_file(data: bytes) -> Iterator[tuple[Any, Any, Any]]:
    """ffi, lib and the file, in the library that shows internal functions."""
    internal, functions = core.load()
    out, err = internal.new("engine_file **"), internal.new("char[512]")
    held = internal.from_buffer(data)
    assert functions.gguf_open_memory(out, held, len(data), err, 512) == 0, internal.string(err)
    try:
        yield internal, functions, out[0]
    finally:
        functions.engine_file_free(out[0])


def test_getters_check_type_and_range() -> None:
    file = File().header(1, 12)
    numbers = [
        (gb.U8, 200), (gb.I8, -1), (gb.U16, 60000), (gb.I16, 7), (gb.U32, 2**32 - 1), (gb.I32, -(2**31)),
        (gb.U64, 2**32), (gb.I64, 5),
    ]  # fmt: skip
    for kind, value in numbers:
        file.kv(f"n{kind}", kind, gb.scalar(kind, value), f"n{kind}")
    file.kv("f", gb.F32, gb.scalar(gb.F32, 0.5)).kv("inf", gb.F32, gb.scalar(gb.F32, float("inf")), "inf")
    file.kv("b", gb.BOOL, b"\1").kv("s", gb.STRING, gb.string("text"), "s").tensor("t", [2]).body(8)
    with core_file(bytes(file)) as (internal, functions, found):
        err = internal.new("char[512]")
        u, f, b = internal.new("uint32_t *"), internal.new("float *"), internal.new("int *")
        s, n = internal.new("char **"), internal.new("uint64_t *")
        got = {}
        for kind, _ in numbers:
            got[kind] = (functions.gguf_get_u32(found, b"n%d" % kind, u, err, 512), u[0])
        assert {k: v for k, v in got.items() if v[0] == 1} == {
            gb.U8: (1, 200), gb.U16: (1, 60000), gb.I16: (1, 7), gb.U32: (1, 2**32 - 1), gb.I64: (1, 5),
        }  # fmt: skip
        assert [got[k][0] for k in (gb.I8, gb.I32, gb.U64)] == [-1, -1, -1]
        says = f'byte {file.at["n10.value"]}: key "n10" is 4294967296, which is not from 0 to 4294967295'
        assert internal.string(err).decode() == says
        assert (functions.gguf_get_f32(found, b"f", f, err, 512), f[0]) == (1, 0.5)
        assert functions.gguf_get_f32(found, b"inf", f, err, 512) == -1
        says = f'byte {file.at["inf.value"]}: key "inf" is not a finite number'
        assert internal.string(err).decode() == says
        assert (functions.gguf_get_bool(found, b"b", b, err, 512), b[0]) == (1, 1)
        assert (functions.gguf_get_str(found, b"s", s, n, err, 512), n[0]) == (1, 4)
        assert internal.string(s[0], 4) == b"text"
        for wrong in (functions.gguf_get_u32, functions.gguf_get_f32):
            assert wrong(found, b"s", u if wrong is functions.gguf_get_u32 else f, err, 512) == -1
            assert f'byte {file.at["s.value"]}: key "s" must be' in internal.string(err).decode()
        assert functions.gguf_get_u32(found, b"absent", u, err, 512) == 0
        data, tensor = internal.new("void **"), internal.new("engine_tensor *")
        assert functions.gguf_get_tensor(found, b"t", tensor, data) == 1
        assert bytes(internal.buffer(data[0], 8)) == bytes(range(8))
        assert functions.gguf_get_tensor(found, b"u", tensor, data) == 0


def test_array_getter_checks_the_element_type() -> None:
    with core_file(bytes(valid_file())) as (internal, functions, found):
        kv, err = internal.new("engine_kv *"), internal.new("char[512]")
        assert functions.gguf_get_array(found, b"numbers", gb.I16, kv, err, 512) == 1
        assert kv.count == 2
        assert functions.gguf_get_array(found, b"numbers", gb.F32, kv, err, 512) == -1
        says = 'key "numbers" must be an array of type f32; it is an array of type i16'
        assert says in internal.string(err).decode()
        assert functions.gguf_get_array(found, b"flag", gb.F32, kv, err, 512) == -1
        assert functions.gguf_get_array(found, b"none", gb.F32, kv, err, 512) == 0


# ---- Random files --------------------------------------------------------------------------

KEYS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12)
NUMBERS = {
    gb.U8: st.integers(0, 2**8 - 1), gb.I8: st.integers(-(2**7), 2**7 - 1), gb.U16: st.integers(0, 2**16 - 1),
    gb.I16: st.integers(-(2**15), 2**15 - 1), gb.U32: st.integers(0, 2**32 - 1),
    gb.I32: st.integers(-(2**31), 2**31 - 1), gb.F32: st.floats(width=32, allow_nan=False),
    gb.BOOL: st.integers(0, 1), gb.U64: st.integers(0, 2**64 - 1), gb.I64: st.integers(-(2**63), 2**63 - 1),
    gb.F64: st.floats(allow_nan=False), gb.STRING: st.binary(max_size=9),
}  # fmt: skip


@st.composite
def values(draw: st.DrawFn) -> tuple[int, int, Any]:
    """(type, element type, value)."""
    kind = draw(st.sampled_from(sorted(NUMBERS)))
    if draw(st.booleans()):
        return kind, kind, draw(NUMBERS[kind])
    return gb.ARRAY, kind, draw(st.lists(NUMBERS[kind], max_size=5))


@st.composite
def files(draw: st.DrawFn) -> tuple[File, dict[str, Any], dict[str, Any]]:
    """A valid file with what must be read from it: metadata and tensors."""
    metadata = draw(st.dictionaries(KEYS.filter(lambda k: k not in RESERVED), values(), max_size=6))
    alignment = draw(st.sampled_from([None, 8, 64, 4096]))
    if alignment is not None:
        metadata["general.alignment"] = (gb.U32, gb.U32, alignment)
    dims = st.lists(st.integers(1, 4), min_size=1, max_size=4)
    shapes = draw(st.dictionaries(KEYS.filter(lambda k: len(k.encode()) <= 64), dims, max_size=4))
    file = File().header(len(shapes), len(metadata), version=draw(st.sampled_from([2, 3])))
    for key, (kind, elem, value) in metadata.items():
        file.kv(key, kind, gb.array(elem, value) if kind == gb.ARRAY else gb.scalar(kind, value))
    offset, tensors, step = 0, {}, alignment or 32
    for name, shape in shapes.items():
        size = 4 * int(np.prod(shape))
        file.tensor(name, shape, offset=offset)
        tensors[name] = (0, shape, offset, size)
        offset += (size + step - 1) // step * step
    file.body(offset, step)
    start = file.at["body"]
    return file, metadata, {n: (t, s, o + start, b) for n, (t, s, o, b) in tensors.items()}


RESERVED = {"general.alignment", "split.count"}


@given(files(), st.booleans())
def test_any_valid_file_is_read_exactly(
    built: tuple[File, dict[str, Any], dict[str, Any]], mmap: bool
) -> None:
    file, metadata, tensors = built
    with opened(bytes(file), mmap) as found:
        assert metadata_of(found) == metadata
        assert tensors_of(found) == tensors


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A valid file with a few bytes changed, dropped, repeated or inserted."""
    data = bytearray(bytes(draw(files())[0]))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        raw = draw(
            st.one_of(
                st.binary(min_size=1, max_size=9), st.sampled_from([u64(2**63), u64(2**64 - 1), u32(9)])
            )
        )
        match draw(st.sampled_from(["replace", "insert", "drop", "cut", "flip"])):
            case "replace":
                data[at : at + len(raw)] = raw
            case "insert":
                data[at:at] = raw
            case "drop":
                del data[at : at + len(raw)]
            case "cut":
                del data[max(at, 4) :]
            case _ if at < len(data):
                data[at] ^= 1 << draw(st.integers(0, 7))
    return bytes(data)


@settings(max_examples=500)
@given(damaged(), st.booleans())
def test_any_damaged_file_is_read_or_refused(data: bytes, mmap: bool) -> None:
    with descriptor(data) as fd:
        status, text, file = try_open(fd, mmap)
    if status == lib.ENGINE_OK:
        metadata_of(file)
        for i, (kind, dims, offset, size) in enumerate(tensors_of(file).values()):
            assert offset + size <= len(data)
            if lib.engine_type_name(kind) != ffi.NULL:
                rows_of(file, i, 0, 1, dims[0])
        lib.engine_file_free(file)
    else:
        found = re.match(r"byte (\d+): .{10}", text)
        assert status in REFUSALS
        assert found is not None
        assert int(found[1]) <= len(data)
