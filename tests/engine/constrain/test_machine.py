"""The machine against a plain reading: what it accepts, allows and how it ends, at every prefix."""

from __future__ import annotations

import bisect
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.engine.constrain.brute import ORDER_ANY, SPACE_FREE, Program, Reader, Texts

ROOT = Path(__file__).resolve().parents[3]
CONSTRAIN = ROOT / "engine" / "constrain"
APART = {"api.c", "mask.c", "mask_cache.c", "matcher.c", "tokens.c", "body.c"}  # what needs the engine


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The C driver, compiled for this run."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    out = tmp_path_factory.mktemp("machine") / "driver"
    sources = [str(f) for f in sorted(CONSTRAIN.glob("*.c")) if f.name not in APART]
    main = ROOT / "tests" / "c" / "machine_driver.c"
    include = [f"-I{ROOT / 'engine' / 'src'}", f"-I{CONSTRAIN}"]
    subprocess.run(
        [compiler, "-std=c11", "-O1", *include, str(main), *sources, "-lm", "-o", str(out)], check=True
    )
    return out


def run(driver: Path, program: Program, flags: int, *arguments: str) -> list[list[bytes]]:
    """Rows that the driver prints, texts decoded from hex."""
    done = subprocess.run(
        [str(driver), str(flags), *arguments],
        input=json.dumps(program).encode(),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, (program, flags, done.stdout[-300:], done.stderr[-3000:])
    return [
        [bytes.fromhex(w[1:].decode()) if w[:1] == b"x" else w for w in line.split(b" ")]
        for line in done.stdout.splitlines()
    ]


def expected_pointer(prefix: bytes) -> str:
    """JSON pointer of the value being read in a prefix of a document, or of the innermost container."""
    path: list[str] = []
    kinds: list[str] = []
    keys: list[str] = []
    counts: list[int] = []
    reading, expect_key, i = False, False, 0
    while i < len(prefix):
        b = prefix[i : i + 1]
        if b == b'"':
            end = i + 1
            while end < len(prefix) and prefix[end : end + 1] != b'"':
                end += 2 if prefix[end : end + 1] == b"\\" else 1
            if kinds and kinds[-1] == "o" and expect_key:
                if end < len(prefix):
                    keys[-1] = json.loads(prefix[i : end + 1])
                expect_key = False
            else:
                reading = end >= len(prefix)
            i = end + 1
            continue
        if b in (b"{", b"["):
            if kinds:
                path.append(keys[-1] if kinds[-1] == "o" else str(counts[-1]))
            kinds.append("o" if b == b"{" else "a")
            keys.append("")
            counts.append(0)
            expect_key = b == b"{"
        elif b in (b"}", b"]"):
            kinds.pop()
            keys.pop()
            counts.pop()
            if kinds:
                path.pop()
            expect_key = False
        elif b == b",":
            counts[-1] += 1
            expect_key = kinds[-1] == "o"
        elif b not in b": \n\t\r":
            end = i
            while end < len(prefix) and prefix[end : end + 1] not in b",]} \n\t\r":
                end += 1
            reading = end == len(prefix) and prefix[i:end] not in (b"true", b"false", b"null")
            i = end
            continue
        i += 1
    if reading and kinds:
        path.append(keys[-1] if kinds[-1] == "o" else str(counts[-1]))
    return "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in path)


def check(driver: Path, program: Program, flags: int, alphabet: bytes, longest: int) -> int:
    """Compare machine and plain reading at every prefix; how many documents there were."""
    alphabet = bytes(sorted(set(alphabet)))
    reader = Reader(program, flags)
    texts = Texts(alphabet, bool(flags & SPACE_FREE), reader)
    documents = sorted({t for t in texts.documents(longest) if reader.admits(t)})
    rows = run(driver, program, flags, "tree", alphabet.hex(), str(longest))
    accepted = sorted(row[0] for row in rows if row[1] == b"1")
    assert accepted == documents, (program, flags, sorted(set(accepted) ^ set(documents))[:10])
    seen = {row[0] for row in rows}
    for document in documents:
        assert all(document[:n] in seen for n in range(len(document)))
    for prefix, _, distance, ending, pointer in rows:
        where = (program, flags, prefix, ending)
        assert reader.admits(prefix + ending), where
        assert pointer.decode() == expected_pointer(prefix), (*where, pointer)
        first = bisect.bisect_left(documents, prefix)
        ends = []
        for document in documents[first:]:
            if not document.startswith(prefix):
                break
            ends.append(document[len(prefix) :])
        if len(prefix) + int(distance) <= longest and texts.has(ending):
            assert ends, where
            assert ending == min(ends, key=lambda e: (len(e), e)), (*where, ends[:5])
        elif ends:
            assert len(ending) <= min(map(len, ends)), (*where, ends[:5])
    return len(documents)


NONE: dict[str, Any] = {}
ANY: dict[str, Any] = {
    "literals": "tfn",
    "number": r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][\+\-]?[0-9]+)?",
    "string": True,
    "objects": [{"rest": [[True, 1]]}],
    "arrays": [{"items": 1}],
}
BIT = {"number": "0|1"}
TRUE = {"literals": "t"}
WORD = {"string": True}
AB = {"string": ["a", "b"]}
MIX = {"number": "0|1", "string": ["a", "b"]}


def program(*nodes: dict[str, Any]) -> Program:
    """A program whose root is the first of the nodes given, number 2."""
    wide = nodes[0] is ANY or any(
        r == [True, 1] for o in nodes[0].get("objects", []) for r in o.get("rest", [])
    )
    return {"root": 2, "nodes": [NONE, ANY if wide else NONE, *nodes]}


def object_of(**spec: Any) -> dict[str, Any]:
    """A node of one alternative for objects."""
    return {"objects": [spec]}


def array_of(**spec: Any) -> dict[str, Any]:
    """A node of one alternative for arrays."""
    return {"arrays": [spec]}


PLAIN = b'"[]{}:,01a '
CASES: dict[str, tuple[Program, bytes, int]] = {
    "anything": (program(ANY), PLAIN, 5),
    "literals": (program({"literals": "tfn"}), b"truefalsn", 6),
    "numbers": (program({"number": ANY["number"]}), b"-01.eE+", 6),
    "strings": (program(WORD), b'"\\u06\xc3\xa9', 7),
    "surrogates": (program({"string": ["\U00010000", "a"]}), b'"\\uD80C', 14),
    "words": (program({"string": ["a", "aé", "\U0001f600"]}), 'a"é😀'.encode(), 8),
    "word escapes": (program({"string": ["a", "\n", '"']}), b'"\\u02na', 9),
    "lengths": (program({"string": {"min": 2, "max": 3}}), b'"\\ \xc3\xa9', 8),
    "closed object": (
        program(object_of(keys=[["a", 3, True], ["ab", 3, False], ["b", 4, False]]), BIT, TRUE),
        b'"{}:,01abtrue',
        16,
    ),
    "forbidden key": (program(object_of(keys=[["a", 0, False]], rest=[[True, 3]]), BIT), b'"{}:1ab', 8),
    "open object": (program(object_of(keys=[["a", 3, True]], rest=[[True, 1]]), BIT), b'"{}:1a', 8),
    "escaped keys": (program(object_of(keys=[["a", 3, True]], rest=[["aa*", 3]]), BIT), b'"{}:,1a\\u06', 13),
    "at least two": (
        program(object_of(keys=[["a", 3, False]], rest=[["b*", 3]], min=2), BIT),
        b'"{}:,0ab',
        14,
    ),
    "at most two": (
        program(object_of(keys=[["a", 3, True], ["b", 3, False]], rest=[["c*", 3]], max=2), BIT),
        b'"{}:,0abc',
        18,
    ),
    "few keys": (
        program(object_of(keys=[["a", 3, False]], rest=[[["b", "c", "bc"], 3]], min=3), BIT),
        b'"{}:,0abc',
        20,
    ),
    "implied": (
        program(
            object_of(keys=[["a", 3, False], ["b", 3, False], ["c", 3, False]], implies=[[0, 1], [2, 0]]), BIT
        ),
        b'"{}:,0abc',
        19,
    ),
    "implied by rest": (
        program(
            object_of(
                keys=[["a", 3, False], ["b", 0, False], ["c", 3, False]],
                rest=[["d", 3]],
                implies=[[0, 1], [2, 0]],
            ),
            BIT,
        ),
        b'"{}:,0abcd',
        19,
    ),
    "some": (
        program(object_of(keys=[["a", 3, False]], rest=[["b*", 4]], some=[["b*", 5, 1]]), BIT, MIX, AB),
        b'"{}:,0ab',
        14,
    ),
    "some two": (
        program(object_of(rest=[["b|c", 4]], some=[["b|c", 5, 1], ["b|c", 3, 1]]), BIT, MIX, AB),
        b'"{}:,0abc',
        15,
    ),
    "alternatives": (
        program(
            {
                "objects": [
                    {"keys": [["a", 3, True], ["b", 3, False]]},
                    {"keys": [["a", 4, True], ["c", 3, True]]},
                    {"rest": [["b*", 4]]},
                ],
                "string": ["a"],
            },
            BIT,
            TRUE,
        ),
        b'"{}:,0abctrue',
        16,
    ),
    "arrays": (program(array_of(items=3, min=1, max=3), BIT), b"[],01", 9),
    "tuples": (
        program(array_of(prefix=[3, 4], items=5, min=1), BIT, TRUE, array_of(items=3)),
        b"[],01true",
        13,
    ),
    "closed tuple": (program(array_of(prefix=[3, 4], items=0), BIT, {"string": ["a"]}), b'[],01"a', 9),
    "contains": (program(array_of(items=3, contains=[[4, 5, 1, None]]), MIX, BIT, AB), b'[],0"a', 10),
    "contains two": (
        program(array_of(items=3, contains=[[4, 5, 2, None]], max=3), MIX, BIT, AB),
        b'[],0"a',
        11,
    ),
    "contains between": (
        program(array_of(items=3, contains=[[4, 5, 1, 2]], min=3), MIX, BIT, AB),
        b'[],0"a',
        13,
    ),
    "contains none": (program(array_of(items=3, contains=[[4, 5, 0, 0]]), MIX, BIT, AB), b'[],0"a', 10),
    "contains both": (
        program(array_of(items=3, contains=[[4, 5, 1, None], [5, 4, 1, None]]), MIX, BIT, AB),
        b'[],0"a',
        10,
    ),
    "after a tuple": (
        program(array_of(prefix=[3], items=3, contains=[[4, 5, 1, None]]), MIX, BIT, AB),
        b'[],0"a',
        11,
    ),
    "unique bits": (program(array_of(items=3, unique=1), BIT), b"[],01", 9),
    "unique numbers": (
        program(array_of(items=3, unique=1, min=2), {"number": r"(0|1)(\.0+)?|10"}),
        b"[],01.",
        9,
    ),
    "unique words": (
        program(array_of(items=3, unique=1, min=3), {"string": ["a", "b", "ab", ""]}),
        b'[],"ab',
        15,
    ),
    "unique free": (
        program(array_of(items=3, unique=1, min=2), {"string": "a*", "literals": "tf"}),
        b'[],"atrue',
        12,
    ),
    "unique arrays": (program(array_of(items=3, unique=1, min=2), array_of(items=4), BIT), b"[],01", 10),
    "unique or not": (
        program({"arrays": [{"items": 3, "unique": 1, "min": 2}, {"items": 4}]}, BIT, {"number": "0"}),
        b"[],01",
        9,
    ),
    "recursive": (program({"objects": [{"keys": [["a", 2, False]]}], "number": "0"}), b'"{}:a0', 20),
    "recursive lists": (program({"arrays": [{"items": 2, "min": 1, "max": 2}], "number": "0"}), b"[],0", 10),
}


@pytest.mark.parametrize("flags", [0, ORDER_ANY], ids=["declared", "any"])
@pytest.mark.parametrize("name", CASES)
def test_small_programs_are_read_as_written(driver: Path, name: str, flags: int) -> None:
    case, alphabet, longest = CASES[name]
    assert check(driver, case, flags, alphabet, longest) > 0


@pytest.mark.parametrize("name", ["closed object", "arrays", "alternatives", "numbers"])
def test_white_space_goes_between_tokens_only(driver: Path, name: str) -> None:
    case, alphabet, longest = CASES[name]
    assert check(driver, case, SPACE_FREE, alphabet + b" ", min(longest, 9)) > 0
