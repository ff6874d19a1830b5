"""GGUF files as bytes, valid or broken on purpose, with the byte offset of every field noted.

Unlike ``fixtures.gguf_writer`` this one checks nothing: lengths, counts, types and offsets may
be given values that lie.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
FORMATS = {U8: "<B", I8: "<b", U16: "<H", I16: "<h", U32: "<I", I32: "<i", F32: "<f", BOOL: "<B", U64: "<Q",
           I64: "<q", F64: "<d"}  # fmt: skip


def u32(value: int) -> bytes:
    """Four bytes, little-endian."""
    return struct.pack("<I", value)


def u64(value: int) -> bytes:
    """Eight bytes, little-endian."""
    return struct.pack("<Q", value)


def string(text: str | bytes, length: int | None = None) -> bytes:
    """A length (the true one unless told) and the bytes."""
    raw = text.encode() if isinstance(text, str) else text
    return u64(len(raw) if length is None else length) + raw


def scalar(kind: int, value: object) -> bytes:
    """One value without its type."""
    if kind == STRING:
        assert isinstance(value, (str, bytes))
        return string(value)
    return struct.pack(FORMATS[kind], value)


def array(kind: int, values: list[object], count: int | None = None) -> bytes:
    """Element type, count (the true one unless told), elements."""
    return (
        u32(kind) + u64(len(values) if count is None else count) + b"".join(scalar(kind, v) for v in values)
    )


@dataclass
class File:
    """Collects fields; ``at[name]`` is the offset at which a marked field starts."""

    data: bytearray = field(default_factory=bytearray)
    at: dict[str, int] = field(default_factory=dict)

    def add(self, raw: bytes, mark: str = "") -> File:
        """Append bytes, noting where they start."""
        if mark:
            self.at[mark] = len(self.data)
        self.data += raw
        return self

    def header(self, tensors: int, keys: int, version: int = 3, magic: bytes = b"GGUF") -> File:
        """Magic, version, both counts."""
        self.add(magic, "magic").add(u32(version), "version")
        return self.add(u64(tensors), "tensors").add(u64(keys), "keys")

    def kv(self, key: str | bytes, kind: int, value: bytes, mark: str = "kv") -> File:
        """A key (marked ``<mark>.key``), its type (``.type``) and value bytes (``.value``)."""
        self.add(string(key), f"{mark}.key").add(u32(kind), f"{mark}.type")
        return self.add(value, f"{mark}.value")

    def tensor(
        self, name: str | bytes, dims: list[int], kind: int = 0, offset: int = 0, n_dims: int | None = None,
        mark: str = "tensor",
    ) -> File:  # fmt: skip
        """A tensor's description, marked ``.name``, ``.n_dims``, ``.dims``, ``.type``, ``.offset``."""
        self.add(string(name), f"{mark}.name")
        self.add(u32(len(dims) if n_dims is None else n_dims), f"{mark}.n_dims")
        self.add(b"".join(u64(d) for d in dims), f"{mark}.dims")
        return self.add(u32(kind), f"{mark}.type").add(u64(offset), f"{mark}.offset")

    def body(self, size: int, alignment: int = 32) -> File:
        """Padding to the alignment, then ``size`` bytes 0, 1, 2 … (marked ``body``)."""
        self.add(bytes(-len(self.data) % alignment))
        return self.add(bytes(i % 251 for i in range(size)), "body")

    def __bytes__(self) -> bytes:
        return bytes(self.data)
