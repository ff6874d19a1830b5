"""Host and Origin must be loopback names."""

from __future__ import annotations

import pytest

from engine.serve.guard import is_loopback, problem

GOOD_HOSTS = ["localhost", "LOCALHOST:80", "127.0.0.1", "127.0.0.1:8080", "127.9.9.9", "[::1]", "[::1]:8080"]
BAD_HOSTS = [
    "",
    "example.com",
    "localhost.example.com",
    "localhost:",
    "localhost:x",
    "localhost:80:80",
    "127.0.0.1.nip.io",
    "0.0.0.0",
    "[::]",
    "10.0.0.1",
    "2130706433",
    "0x7f.1",
    "127.1",
    "::1",
    "user@localhost",
    "localhost/",
    "localhost ",
    "[::ffff:8.8.8.8]",
    "localhost\\.evil",
    "ⓛocalhost",
]


@pytest.mark.parametrize("host", GOOD_HOSTS)
def test_loopback_hosts_and_origins_pass(host: str) -> None:
    assert problem([(b"host", host.encode())]) is None
    assert problem([(b"host", b"localhost"), (b"origin", b"http://" + host.encode())]) is None
    assert problem([(b"host", b"localhost"), (b"origin", b"https://" + host.encode())]) is None


@pytest.mark.parametrize("host", BAD_HOSTS)
def test_other_hosts_and_origins_are_403(host: str) -> None:
    refusal = problem([(b"host", host.encode())])
    assert refusal is not None
    assert (refusal.status, refusal.code) == (403, "forbidden_host")
    refusal = problem([(b"host", b"localhost"), (b"origin", b"http://" + host.encode())])
    assert refusal is not None
    assert (refusal.status, refusal.code) == (403, "forbidden_origin")


@pytest.mark.parametrize(
    "origin", [b"null", b"", b"localhost", b"file://localhost", b"chrome-extension://localhost"]
)
def test_origins_that_are_none(origin: bytes) -> None:
    assert problem([(b"host", b"localhost"), (b"origin", origin)]) is not None


def test_exactly_one_host_and_at_most_one_origin() -> None:
    assert problem([]) is not None
    assert problem([(b"host", b"localhost"), (b"host", b"localhost")]) is not None
    origin = (b"origin", b"http://localhost")
    assert problem([(b"host", b"localhost"), origin, origin]) is not None


def test_listening_addresses() -> None:
    assert all(is_loopback(host) for host in ("127.0.0.1", "127.1.2.3", "::1", "localhost"))
    assert not any(is_loopback(host) for host in ("0.0.0.0", "::", "192.168.0.1", "example.com", ""))
