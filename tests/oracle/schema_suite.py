"""The draft 2020-12 suite of JSON Schema under the constraint engine; the table of docs/schema-coverage.md.

``python -m tests.oracle.schema_suite --write`` takes the suite out of the source distribution of the
jsonschema package (fetched by its pinned hash, read as an archive: nothing of it is run). Every schema is
compiled with members in any order and free white space; every instance is read byte by byte. A schema may be
refused by name; of those that compile, each instance must be judged as the suite says.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine import constrain

RELEASE = "jsonschema==4.26.0"
SHA256 = "0c26707e2efad8aa1bfc5b7ce170f3fccc2e4918ff85989ba9ffa9facb2be326"
SUITE = "/json/tests/draft2020-12/"
ANNOTATED = constrain.Options(order="any", whitespace="free", formats=False)
ASSERTED = constrain.Options(order="any", whitespace="free", formats=True)
PAGE = Path(__file__).parents[2] / "docs" / "schema-coverage.md"
LISTED = 40
BEGIN, END = "<!-- table: make schema-suite -->", "<!-- end of table -->"


class SuiteError(Exception):
    """The suite is not to be had, or is not the pinned one."""


class Number(str):
    """The text of a number as it stands in the suite: no float takes its place."""


@dataclass
class Keyword:
    """What one file of the suite showed. Groups are schemas, tests are instances."""

    name: str
    groups: int = 0
    compiled: int = 0
    tests: int = 0
    right: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def fetch(cache: Path) -> bytes:
    """The archive, by pip from the registry that pip is set up for, or as it was fetched before."""
    path = cache / f"{RELEASE.replace('==', '-')}.tar.gz"
    if not path.is_file():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            pins = Path(folder) / "pins.txt"
            pins.write_text(f"{RELEASE} --hash=sha256:{SHA256}\n")
            command = [
                sys.executable,
                "-m",
                "pip",
                "download",
                "--quiet",
                "--no-deps",
                "--no-binary",
                ":all:",
            ]
            command += ["--require-hashes", "-r", str(pins), "-d", folder]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            found = list(Path(folder).glob("*.tar.gz"))
            if done.returncode != 0 or not found:
                raise SuiteError(f"pip did not fetch {RELEASE}: {done.stderr.strip()[-400:]}")
            path.write_bytes(found[0].read_bytes())
    data = path.read_bytes()
    actual = hashlib.sha256(data).hexdigest()
    if actual != SHA256:
        raise SuiteError(f"{path} has the hash {actual}, the pin is {SHA256}: remove it")
    return data


def files(archive: bytes) -> Iterator[tuple[str, Any]]:
    """``(name, groups)`` of every file of the suite, sorted; names are relative: ``optional/format/date``."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in sorted(tar.getmembers(), key=lambda item: item.name):
            _, found, name = member.name.partition(SUITE)
            if found and name.endswith(".json") and (stream := tar.extractfile(member)) is not None:
                text = stream.read().decode()
                yield name.removesuffix(".json"), json.loads(text, parse_float=Number, parse_int=Number)


def dumps(value: Any) -> str:
    """JSON text, numbers as they were written."""
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, Mapping):
        return (
            "{"
            + ",".join(f"{json.dumps(key, ensure_ascii=False)}:{dumps(item)}" for key, item in value.items())
            + "}"
        )
    if isinstance(value, list):
        return "[" + ",".join(map(dumps, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def judge(name: str, groups: Sequence[Mapping[str, Any]]) -> Keyword:
    """Compile every schema of a file and read every instance."""
    found = Keyword(name)
    options = ASSERTED if name.startswith("optional/format/") else ANNOTATED
    for group in groups:
        found.groups += 1
        try:
            constraint = constrain.Constraint(
                "json_schema", dumps(group["schema"]).encode("utf-8", "surrogatepass"), options
            )
        except constrain.ConstraintError as error:
            found.refused[reason(str(error))] += 1
            continue
        found.compiled += 1
        for test in group["tests"]:
            found.tests += 1
            accepted = accepts(constraint, dumps(test["data"]).encode("utf-8", "surrogatepass"))
            if accepted is test["valid"]:
                found.right += 1
            else:
                verb = "accepted" if accepted else "rejected"
                found.wrong.append(f"{name}: {group['description']}: {test['description']}: {verb}")
    return found


def accepts(constraint: constrain.Constraint, document: bytes) -> bool:
    """Whether the whole document is legal."""
    matcher = constrain.Matcher(constraint, None)
    try:
        matcher.commit_bytes(document)
    except constrain.ConstraintError:
        return False
    return matcher.accepting


def reason(text: str) -> str:
    """The keyword that a refusal names, for the table."""
    if "no finite document" in text:
        return "no document"
    named = re.search(r"`([^`]+)`|\"([$A-Za-z]+)\"|'([$A-Za-z]+)'", text)
    if named:
        return next(word for word in named.groups() if word)
    return text[:60]


# ---- The page --------------------------------------------------------------------------------------


def table(found: Sequence[Keyword]) -> list[str]:
    """Markdown: one row a file, then what is refused and what is judged otherwise than the suite does."""
    lines = ["| file | schemas | compiled | refused by name | instances | as the suite | otherwise |",
             "| --- | --- | --- | --- | --- | --- | --- |"]  # fmt: skip
    for item in found:
        refused = ", ".join(f"{name} {count}" for name, count in sorted(item.refused.items()))
        row = (item.name, item.groups, item.compiled, refused, item.tests, item.right, len(item.wrong))
        lines.append("| " + " | ".join(str(cell) if cell != "" else "" for cell in row) + " |")
    total = ("**all**", *(sum(getattr(item, name) for item in found) for name in ("groups", "compiled")))
    refused_total = sum(sum(item.refused.values()) for item in found)
    rest = (
        sum(item.tests for item in found),
        sum(item.right for item in found),
        sum(len(item.wrong) for item in found),
    )
    lines.append("| " + " | ".join(map(str, (*total, refused_total, *rest))) + " |")
    wrong = [text for item in found for text in item.wrong]
    if wrong:
        more = [f"- and {len(wrong) - LISTED} more"] if len(wrong) > LISTED else []
        shown = [f"- {text}" for text in wrong[:LISTED]]
        lines += ["", "Judged otherwise than the suite does:", "", *shown, *more]
    return lines


def page(found: Sequence[Keyword], text: str) -> str:
    """The page with its table replaced."""
    required = [item for item in found if not item.name.startswith("optional/")]
    formats = [item for item in found if item.name.startswith("optional/format/")]
    others = [item for item in found if item.name.startswith("optional/") and item not in formats]
    parts = [
        *("### The draft, formats as annotations", "", *table(required)),
        *("", "### `optional/format`, formats asserted", "", *table(formats)),
        *("", "### The other optional tests", "", *table(others)),
    ]
    head, _, rest = text.partition(BEGIN)
    if not rest or END not in rest:
        raise SuiteError(f"the page lacks {BEGIN} … {END}")
    return f"{head}{BEGIN}\n" + "\n".join(parts) + f"\n{END}" + rest.partition(END)[2]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the counts; ``--write`` renews the page, ``--check`` says whether it is current."""
    parser = argparse.ArgumentParser(description="judge the draft 2020-12 suite")
    parser.add_argument("--cache", type=Path, default=Path("out"))
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args(arguments)
    try:
        found = [judge(name, groups) for name, groups in files(fetch(options.cache))]
        text = page(found, PAGE.read_text(encoding="utf-8"))
    except SuiteError as error:
        print(f"schema-suite: {error}", file=sys.stderr)
        return 2
    if options.write:
        PAGE.write_text(text, encoding="utf-8")
    required = [item for item in found if not item.name.startswith("optional/") or "format/" in item.name]
    wrong = [text for item in required for text in item.wrong]
    for line in wrong:
        print(line)
    sums = {
        name: sum(getattr(item, name) for item in found) for name in ("groups", "compiled", "tests", "right")
    }
    print(json.dumps({**sums, "wrong_required": len(wrong)}))
    stale = options.check and PAGE.read_text(encoding="utf-8") != text
    if stale:
        print("schema-suite: the page is not current: make schema-suite", file=sys.stderr)
    return 1 if wrong or stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
