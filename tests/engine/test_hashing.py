"""File hashes and their cache."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import hashing


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of its own; files count as settled at once."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(hashing, "SETTLED_S", -1.0)
    return tmp_path / "cache" / "gaugeblock" / "hashes.json"


@pytest.fixture
def file(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"one" * 1000)
    fd = os.open(path, os.O_RDONLY)
    yield path, fd
    os.close(fd)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_hash_equals_hashlib_and_leaves_the_offset_alone(file: tuple[Path, int]) -> None:
    path, fd = file
    assert hashing.file_sha256(fd) == sha256(path.read_bytes())
    assert os.lseek(fd, 0, os.SEEK_CUR) == 0


def test_what_need_not_end_is_not_hashed() -> None:
    fd = os.open("/dev/zero", os.O_RDONLY)
    try:
        with pytest.raises(OSError, match="not a regular file"):
            hashing.file_sha256(fd)
    finally:
        os.close(fd)


def test_the_cache_is_private_and_used(
    cache: Path, file: tuple[Path, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, fd = file
    first = hashing.file_sha256(fd, cache=True)
    assert cache.stat().st_mode & 0o777 == 0o600
    assert cache.parent.stat().st_mode & 0o077 == 0
    monkeypatch.setattr(os, "pread", lambda *_: pytest.fail("the file was read again"))
    assert hashing.file_sha256(fd, cache=True) == first


def test_without_asking_the_cache_is_neither_read_nor_written(cache: Path, file: tuple[Path, int]) -> None:
    _, fd = file
    hashing.file_sha256(fd)
    assert not cache.exists()
    cache.parent.mkdir(parents=True)
    cache.write_text(json.dumps({hashing.Identity.of(fd).key: "0" * 64}))
    cache.chmod(0o600)
    assert hashing.file_sha256(fd, cache=True) == "0" * 64  # the planted entry is what the cache holds
    assert hashing.file_sha256(fd) == sha256(b"one" * 1000)


def test_a_rewrite_that_restores_the_times_is_caught_by_ctime(cache: Path, file: tuple[Path, int]) -> None:
    path, fd = file
    before = os.fstat(fd)
    hashing.file_sha256(fd, cache=True)
    path.write_bytes(b"two" * 1000)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = os.fstat(fd)
    assert (after.st_ino, after.st_size, after.st_mtime_ns) == (
        before.st_ino,
        before.st_size,
        before.st_mtime_ns,
    )
    assert hashing.file_sha256(fd, cache=True) == sha256(b"two" * 1000)


def test_a_young_file_is_not_cached(
    cache: Path, file: tuple[Path, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hashing, "SETTLED_S", 3600.0)
    hashing.file_sha256(file[1], cache=True)
    assert not cache.exists()


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{", b"\xff", b'{"a":"b"}', b'{"k":1}', b'{"a":1,"a":2}', b"[" * 10000, b" " * (1 << 21)],
)
def test_a_damaged_cache_is_an_empty_one(cache: Path, file: tuple[Path, int], content: bytes) -> None:
    cache.parent.mkdir(parents=True)
    cache.write_bytes(content)
    cache.chmod(0o600)
    assert hashing.file_sha256(file[1], cache=True) == sha256(b"one" * 1000)


def planted(cache: Path, fd: int) -> None:
    cache.parent.mkdir(parents=True, exist_ok=True)
    cache.write_text(json.dumps({hashing.Identity.of(fd).key: "0" * 64}))
    cache.chmod(0o600)


@pytest.mark.parametrize("mode", [0o644, 0o620, 0o606, 0o666])
def test_a_cache_that_others_can_touch_is_ignored(cache: Path, file: tuple[Path, int], mode: int) -> None:
    planted(cache, file[1])
    cache.chmod(mode)
    assert hashing.file_sha256(file[1], cache=True) == sha256(b"one" * 1000)


def test_a_cache_of_another_owner_is_ignored(
    cache: Path, file: tuple[Path, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    planted(cache, file[1])
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert hashing.file_sha256(file[1], cache=True) == sha256(b"one" * 1000)


def test_a_cache_that_is_a_link_or_a_fifo_is_ignored(
    cache: Path, file: tuple[Path, int], tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere.json"
    planted(cache, file[1])
    cache.rename(elsewhere)
    cache.symlink_to(elsewhere)
    assert hashing.file_sha256(file[1], cache=True) == sha256(b"one" * 1000)
    cache.unlink(missing_ok=True)
    os.mkfifo(cache, 0o600)
    assert hashing.file_sha256(file[1], cache=True) == sha256(b"one" * 1000)


def test_a_cache_that_cannot_be_written_is_no_error(
    file: tuple[Path, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "flat").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "flat"))
    monkeypatch.setattr(hashing, "SETTLED_S", -1.0)
    assert hashing.file_sha256(file[1], cache=True) == sha256(b"one" * 1000)


def test_a_file_that_grows_under_the_hash_is_named(
    file: tuple[Path, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, fd = file
    read = os.pread

    def growing(fd: int, size: int, offset: int) -> bytes:
        chunk = read(fd, size, offset)
        if chunk:
            with path.open("ab") as stream:
                stream.write(b"x") if offset == 0 else None
        return chunk

    monkeypatch.setattr(os, "pread", growing)
    with pytest.raises(hashing.ChangedError, match="changed while it was hashed"):
        hashing.file_sha256(fd)


def test_the_number_of_entries_is_bounded(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hashing, "MAX_ENTRIES", 3)
    for index in range(5):
        path = tmp_path / f"{index}"
        path.write_bytes(bytes([index]))
        fd = os.open(path, os.O_RDONLY)
        hashing.file_sha256(fd, cache=True)
        os.close(fd)
    assert list(json.loads(cache.read_text()).values()) == [sha256(bytes([index])) for index in (2, 3, 4)]
