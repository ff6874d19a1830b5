"""What a compiled schema admits, decided from its dump by other eyes than the machine's.

``Compiler`` runs ``tests/c/schema_dump.c``; ``Program`` decides membership of a JSON value in the program of
nodes that came out, straight from the words of ``ir.h``. Numbers are kept as text (``load``).
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
NO_MAX = 2**32 - 1


class Number(str):
    """The text of a JSON number."""


def load(text: str) -> Any:
    """A JSON value with its numbers as text."""
    return json.loads(text, parse_int=Number, parse_float=Number)


class Compiler:
    """The dump program as a child process: schemas in, programs or refusals out."""

    def __init__(self, binary: Path, *, formats: bool) -> None:
        command = [str(binary)] if formats else [str(binary), "annotate"]
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __call__(self, schema: object) -> tuple[int, str]:
        """Status and text: the dump where the status is 0, else why the schema was refused."""
        data = json.dumps(schema).encode()
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(b"%d\n%b" % (len(data), data))
        self._child.stdin.flush()
        head = self._child.stdout.readline().split()
        assert head, f"the compiler died of {data!r}"
        return int(head[0]), self._child.stdout.read(int(head[1])).decode()

    def close(self) -> None:
        self._child.communicate()
        assert self._child.returncode == 0


@contextmanager
def compiling(folder: Path, *, formats: bool) -> Iterator[Compiler]:
    """Build the dump program (cc) and run it."""
    binary = folder / "schema_dump"
    constrain = ROOT / "engine" / "constrain"
    others = (
        "api",
        "arena",
        "body",
        "cfg",
        "choice",
        "gbnf",
        "grammar",
        "lang_doc",
        "lark",
        "machine",
        "mask",
        "matcher",
        "tokens",
    )
    files = [f for f in sorted(constrain.glob("*.c")) if not f.name.startswith(others)]
    files.append(ROOT / "tests" / "c" / "schema_dump.c")
    flags = ["-std=c11", "-O0", f"-I{constrain}", f"-I{ROOT / 'engine' / 'src'}"]
    subprocess.run(["cc", *flags, *map(str, files), "-lm", "-o", str(binary)], check=True)
    compiler = Compiler(binary, formats=formats)
    try:
        yield compiler
    finally:
        compiler.close()


def can_serve(options: Sequence[set[int]], needs: Sequence[int]) -> bool:
    """Whether each need j can be met by ``needs[j]`` things of its own that offer it (a matching)."""
    slots = [j for j, n in enumerate(needs) for _ in range(n)]
    taken: dict[int, int] = {}

    def place(slot: int, seen: set[int]) -> bool:
        for i, offered in enumerate(options):
            if slots[slot] in offered and i not in seen:
                seen.add(i)
                if i not in taken or place(taken[i], seen):
                    taken[i] = slot
                    return True
        return False

    return all(place(slot, set()) for slot in range(len(slots)))


def canonical(value: Any) -> object:
    """Equal exactly for equal JSON values."""
    if isinstance(value, Number):
        return "number", Decimal(value).normalize() if Decimal(value) else Decimal(0)
    if isinstance(value, list):
        return "array", tuple(map(canonical, value))
    if isinstance(value, dict):
        return "object", frozenset((k, canonical(v)) for k, v in value.items())
    return "other", repr(value)


class Program:
    """A dumped program; ``admits`` decides membership."""

    def __init__(self, text: str) -> None:
        dump = json.loads(text)
        self.root: int = dump["root"]
        self.nodes: list[dict[str, Any]] = dump["nodes"]
        self.notes: list[dict[str, str]] = dump["notes"]
        self._langs = {int(k): v for k, v in dump["langs"].items()}

    @property
    def cost(self) -> int:
        """Bytes of the shortest document."""
        return int(self.nodes[self.root]["cost"])

    def admits(self, value: Any) -> bool:
        return self._node(self.root, value)

    def _holds(self, number: int, text: str) -> bool:
        lang = self._langs[number]
        if "words" in lang:
            return text in lang["words"]
        if "min" in lang:
            return bool(lang["min"] <= len(text) and (lang["max"] == NO_MAX or len(text) <= lang["max"]))
        state = str(lang["start"])
        for character in text:
            edges = lang["states"][state][1]
            to = [e[2] for e in edges if e[0] <= ord(character) <= e[1]]
            if not to:
                return False
            state = str(to[0])
        return bool(lang["states"][state][0])

    def _node(self, number: int, value: Any) -> bool:
        node = self.nodes[number]
        if value is None or isinstance(value, bool):
            return bool(node[json.dumps(value)])
        if isinstance(value, Number):
            return self._holds(node["number"], str(value))
        if isinstance(value, str):
            return self._holds(node["string"], value)
        if isinstance(value, list):
            return any(self._array(a, value) for a in node["arrays"])
        return any(self._object(o, value) for o in node["objects"])

    def _object(self, shape: dict[str, Any], value: dict[str, Any]) -> bool:
        keys = {text: (node, required) for text, node, required in shape["keys"]}
        names = [text for text, _, _ in shape["keys"]]
        if not shape["min"] <= len(value) <= shape["max"]:
            return False
        if any(required and key not in value for key, (_, required) in keys.items()):
            return False
        if any(names[a] in value and names[b] not in value for a, b in shape["implies"]):
            return False
        options = []
        for key, member in value.items():
            if key in keys:
                if not self._node(keys[key][0], member):
                    return False
                continue
            rest = [node for lang, node in shape["rest"] if self._holds(lang, key)]
            assert len(rest) <= 1, "rest languages are disjoint"
            if not rest or not self._node(rest[0], member):
                return False
            somes = enumerate(shape["some"])
            options.append(
                {j for j, (lang, node, _) in somes if self._holds(lang, key) and self._node(node, member)}
            )
        return can_serve(options, [need for _, _, need in shape["some"]])

    def _array(self, shape: dict[str, Any], value: list[Any]) -> bool:
        prefix = shape["prefix"]
        if not shape["min"] <= len(value) <= shape["max"]:
            return False
        if not all(self._node(n, v) for n, v in zip(prefix, value, strict=False)):
            return False
        later = value[len(prefix) :]
        if not all(self._node(shape["items"], v) for v in later):
            return False
        if shape["unique"] and len(set(map(canonical, value))) < len(value):
            return False
        counts = shape["contains"]
        for node, other, _, most in counts:
            if most != NO_MAX:
                assert all(self._node(node, v) != self._node(other, v) for v in later), (
                    "value and other divide items"
                )
                if sum(self._node(node, v) for v in later) > most:
                    return False
        options = [{j for j, c in enumerate(counts) if self._node(c[0], v)} for v in later]
        return can_serve(options, [c[2] for c in counts])
