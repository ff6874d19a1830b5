"""Formats against jsonschema's checkers: what we admit, they accept; leap seconds are ours alone."""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Callable

import jsonschema
import pytest

from tests.engine.constrain import languages as lib

Make = Callable[..., lib.Languages]
CHECKER = jsonschema.Draft202012Validator.FORMAT_CHECKER
LEAP = re.compile(r"[0-9]{2}:[0-9]{2}:60")
CONTEXTS = ["l·l", "α͵β", "א׳ב", "・ぁ", "ب٠ب", "क्\u200dष", "بي\u200cبي", "۰0", "ßς་〇"]
SEEDS: dict[str, list[str]] = {
    "date": ["2024-02-29", "2000-02-29", "1999-12-31", "0001-01-01", "2023-06-30"],
    "time": ["08:30:06Z", "23:59:59.125+05:30", "00:00:00z", "23:59:60Z", "01:29:60+01:30"],
    "date-time": ["1990-12-31T15:59:50.123-08:00", "1963-06-19t08:30:06.283185z", "1998-12-31T23:59:60Z"],
    "duration": ["P4DT12H30M5S", "P4Y", "PT0S", "P2W", "P1Y2M3D", "PT36H"],
    "email": ["joe.bloggs@example.com", '"joe..b l"@example.com', "a@[127.0.0.1]", "a@[IPv6:::1]"],
    "idn-email": ["실례@실례.테스트", "a@b.c"],
    "hostname": ["www.example.com", "a" * 63 + ".com", "1host", "xn--4gbwdl.xn--wgbh1c"],
    "idn-hostname": ["실례.테스트", "münchen.de", "a。b", "例え.jp", *CONTEXTS],
    "ipv4": ["0.0.0.0", "255.255.255.255", "192.168.1.10"],
    "ipv6": ["::1", "::", "1:2:3:4:5:6:7:8", "fe80::1:2", "::ffff:192.168.0.1", "1::8", "1:2:3:4:5:6:7::"],
    "uri": ["http://u@[2001:db8::7]:80/a/b?c=d#e", "urn:x:y", "mailto:a@b.c", "a:", "ftp://h/%7Ex"],
    "uri-reference": ["/a", "", "#f", "?q", "//h/p", "a/b:c", "http://x/"],
    "iri": ["http://ƒøø.ßår/?∂éœ=πîx#πîüx", "http://[2001:0db8:85a3:0000:0000:8a2e:0370:7334]"],
    "iri-reference": ["/ü", "#ƒ", "//é/é"],
    "uri-template": ["http://e.com/{term:1}/{term}", "{+a,b*}", "x"],
    "uuid": ["2EB8AA08-AA98-11EA-B4AA-73B441D16380", "00000000-0000-0000-0000-000000000000"],
    "json-pointer": ["", "/a~0b~1c", "//", "/é"],
    "relative-json-pointer": ["0", "1/a", "10#", "0/~1"],
    "regex": [
        *("([abc])+\\s+$", "^[0-9a-z_]{2,5}$", "a|b", "(?:x\\.y)*", "^\\d{4}-\\d{2}$", "[^\\s]+"),
        *("^[a-zA-Z0-9_-]+$", "^[-\\w.]{10,15}$", "[^-]", "[^@^\\s]+@x", "^(?!-)(?=.*\\d).+$", "[a|b]&"),
        *("^(?:(?:25[0-5]|1(?:0(?:a|b)c)?)\\.){3}$", "[a-z-_]\\/", "\\u00e9[\\x20-\\x7e]"),
    ],
}
MUST_REFUSE: dict[str, list[str]] = {
    "date": ["2023-02-29", "1900-02-29", "2024-04-31", "0000-01-01", "2024-1-01", "2024-13-01"],
    "time": ["24:00:00Z", "22:59:60Z", "23:58:60Z", "23:59:60+01:00", "12:00:00", "00:00:61Z"],
    "date-time": [
        "1998-12-31T23:58:60Z",
        "1998-12-30T23:59:60Z",
        "2023-02-29T00:00:00Z",
        "2024-01-01 00:00:00Z",
    ],
    "duration": ["P", "PT", "P1D2H", "P2S", "P1Y2W", "P1Y2D", "1D", "P1", "P0.5Y"],
    "email": [".test@example.com", "te..st@example.com", "a@b=c.com", "a@[127.0.0.300]", "2962", "a@-b.com"],
    "hostname": ["", "-a", "a-", "a_b", "a" * 64, ".".join(["a" * 49] * 5) + ".abcde", "a..b", "a."],
    "ipv4": ["256.1.1.1", "01.1.1.1", "1.1.1", "1.1.1.1.1"],
    "ipv6": ["1:2:3:4:5:6:7", "::1%eth0", "1::2::3", "12345::", "1:2:3:4:5:6:7:8::"],
    "uri": ["/rel", "http://[::1", "a b:c", "://x", "http://ex ample"],
    "uuid": ["2eb8aa08aa9811eab4aa73b441d16380", "2eb8aa08-aa98-11ea-b4aa73b441d16380"],
    "json-pointer": ["a", "/~", "/~2", "#/a"],
    "relative-json-pointer": ["-1", "01", "1a", "/a", "#"],
    "regex": [
        *("(abc]", "[a", "a**", "(?<=a)b", "[z-a]", "a{3,2}", "a{16,15}", "a{20,19}", "[^]", "[]a]", "(?=a"),
        *("[a&&b]", "[a--b]", "[[a]", "[\\w-a]", "(?i)a", "\\Z", "\\u12", "a++"),
    ],
    "idn-hostname": [
        "-a",
        "a·b",
        "l·",
        "〮실례",
        "xn--x",
        "",
        "α͵S",
        "׳ב",
        "def・abc",
        "ب٠۰",
        "क\u200dष",
        "aב",
    ],
}


def accepted(text: str, name: str) -> bool:
    with warnings.catch_warnings():  # Python's re warns of what later versions may read differently
        warnings.simplefilter("ignore")
        return bool(CHECKER.conforms(text, name))


@pytest.mark.parametrize("name", sorted(SEEDS))
def test_what_is_admitted_is_valid(languages: Make, name: str) -> None:
    lang = languages().format(name)
    assert lang is not None
    assert [text for text in SEEDS[name] if text not in lang] == []
    assert [text for text in MUST_REFUSE.get(name, []) if text in lang] == []
    if name not in CHECKER.checkers:
        pytest.skip(f"jsonschema[format-nongpl] has no checker of {name} here")
    rng = random.Random(name)
    count = 20 if name.startswith("iri") else 150  # its checker is an Earley parser
    words = [lang.sample(rng, 40) for _ in range(count)]
    near = lib.mutations(
        [*SEEDS[name], *words[: count // 4]], rng, '09:-./@aZ%[]{}~#?Té"\\ \n+_', max(2, count // 8)
    )
    wrong = [
        text
        for text in [*words, *near]
        if text in lang and not accepted(text, name) and not LEAP.search(text)
    ]
    assert wrong == []


@pytest.mark.parametrize("name", ["date", "ipv4", "ipv6", "json-pointer"])
def test_these_are_exact(languages: Make, name: str) -> None:
    lang = languages().format(name)
    assert lang is not None
    if name not in CHECKER.checkers:
        pytest.skip(f"jsonschema[format-nongpl] has no checker of {name} here")
    rng = random.Random(name)
    near = lib.mutations([*SEEDS[name], *MUST_REFUSE[name]], rng, "0123456789:-./af~", 60)
    assert [text for text in near if (text in lang) != accepted(text, name)] == []


def test_every_day_of_eight_centuries(languages: Make) -> None:
    lang = languages().format("date")
    assert lang is not None
    for year in (*range(1, 10_000, 97), 1600, 1700, 1800, 1900, 2000, 2004, 2023, 2024, 2100, 2400):
        for month in range(13):
            for day in (0, 1, 28, 29, 30, 31, 32):
                text = f"{year:04}-{month:02}-{day:02}"
                assert (text in lang) == accepted(text, "date"), text


def test_leap_seconds_end_a_utc_day(languages: Make) -> None:
    made = languages()
    time, moment = made.format("time"), made.format("date-time")
    assert time is not None
    assert moment is not None
    for half in range(48):
        for sign in (1, -1):
            minute = (1439 + sign * half * 30) % 1440
            offset = f"{'+' if sign > 0 else '-'}{half // 2:02}:{half % 2 * 30:02}"
            text = f"{minute // 60:02}:{minute % 60:02}:60.5{offset}"
            assert text in time
            day = "2017-01-01" if sign > 0 and half else "2016-12-31"
            assert f"{day}T{text}" in moment
            assert f"2017-01-02T{text}" not in moment
            wrong = f"{minute // 60:02}:{(minute + 1) % 60:02}:60{offset}"
            assert wrong not in time


def test_unknown_formats(languages: Make) -> None:
    made = languages()
    for name in ("", "color", "DATE", "date\0", "phone", "x" * 100):
        assert made.format(name) is None
    assert made.pool.status == 0
    assert made.format("date") == made.format("date")
