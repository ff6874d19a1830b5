"""SHA-256 of an open file, and the per-user cache of such hashes.

The cache key is (device, inode, size, mtime_ns, ctime_ns): a rewrite that restores the times with
utime still changes ctime. The file is 0600 in the user's cache directory and ignored when it is
anyone else's, readable by others, or malformed. A change through a shared writable map that has
not reached the disk is not visible in any of these times; ``--require`` and ``certify`` never
use the cache.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import stat
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from engine import canonical

CHUNK = 4 << 20
MAX_ENTRIES = 2000
SETTLED_S = 2.0
"""A file whose ctime is younger than this is not cached: a second write may share its tick."""


class ChangedError(Exception):
    """The file changed while it was hashed."""


@dataclass(frozen=True)
class Identity:
    """What ``fstat`` says about a file's content."""

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, fd: int) -> Identity:
        """Return the identity of an open descriptor."""
        info = os.fstat(fd)
        return cls(info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)

    @property
    def key(self) -> str:
        return f"{self.device}:{self.inode}:{self.size}:{self.mtime_ns}:{self.ctime_ns}"


def file_sha256(fd: int, *, cache: bool = False) -> str:
    """Hash an open regular file without moving its offset; lower-case hex.

    Raises ChangedError where ``fstat`` differs before and after, and OSError where it cannot be read or
    is not a regular file (a device need not end).
    """
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
    before = Identity.of(fd)
    if cache and (known := _load().get(before.key)):
        return known
    digest = hashlib.sha256()
    offset = 0
    while chunk := os.pread(fd, CHUNK, offset):
        digest.update(chunk)
        offset += len(chunk)
    if Identity.of(fd) != before or offset != before.size:
        raise ChangedError("the file changed while it was hashed")
    value = digest.hexdigest()
    if cache and time.time() - before.ctime_ns / 1e9 > SETTLED_S:
        _store(before.key, value)
    return value


def cache_path() -> Path:
    """Where the cache lives; an XDG_CACHE_HOME that is not absolute is ignored, as the standard says."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    root = Path(base) if Path(base).is_absolute() else Path.home() / ".cache"
    return root / "gaugeblock" / "hashes.json"


def _load() -> dict[str, str]:
    """Read the cache; anything unexpected about it means an empty one."""
    try:
        fd = os.open(cache_path(), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, RuntimeError):  # RuntimeError: no home directory
        return {}
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o077:
            return {}
        if info.st_size > canonical.MAX_BYTES:
            return {}
        value = canonical.loads(os.read(fd, canonical.MAX_BYTES + 1))
    except (OSError, canonical.StrictJSONError):
        return {}
    finally:
        os.close(fd)
    if not isinstance(value, dict):
        return {}
    return {key: item for key, item in value.items() if isinstance(item, str) and len(item) == 64}


def _store(key: str, value: str) -> None:
    """Add one entry, oldest dropped, by temporary file and rename; a failure to write is no error."""
    entries = _load()
    entries.pop(key, None)
    entries[key] = value
    recent = dict(list(entries.items())[-MAX_ENTRIES:])
    with contextlib.suppress(OSError, RuntimeError):
        path = cache_path()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd, temporary = tempfile.mkstemp(dir=path.parent, prefix=".hashes-")  # mkstemp creates 0600
        try:
            with os.fdopen(fd, "wb") as stream:
                # Insertion order is the age of the entries, which the canonical form would lose.
                stream.write(json.dumps(recent).encode("ascii"))
            Path(temporary).replace(path)
        except OSError:
            Path(temporary).unlink(missing_ok=True)
            raise
