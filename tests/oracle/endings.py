"""Endings wherever a document is cut: closed text parses, validates, keeps its prefix, and is a shortest one.

``python -m tests.oracle.endings DATA`` reads a MaskBench file (.jsonl or .jsonl.gz: ``file``, ``schema``,
``tests[{valid, data}]``). Of the schemas that compile, ``--schemas`` are drawn from strata by feature: every
valid instance and ``--documents`` random legal documents are cut at every byte, and read token by token with
each vocabulary of ``--vocab`` (GGUF files) and closed after every token. All others are closed at ``--cuts``
seeded places. Judges are in ``tests.oracle.documents``; a shortest ending is searched by brute force where
that is small, and bounded everywhere by the document's own continuation.

Results go to a journal, one line a schema; a second run goes on where the first stopped. A schema whose
process dies or takes too long is a failure of its own. Exit status 1: something did not hold.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import itertools
import json
import multiprocessing
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from certify.documents import Written, values
from engine import constrain, native
from engine.model import Header
from tests.oracle.documents import STRATA, Judge, NotJSON, features, load

SEED = 20261130
MAX_FAILURES = 8
WALK_STEPS = 80
BRUTE_LIMIT = 60_000
BRUTE_CUTS, BRUTE_PER_DOCUMENT = 12, 3
FREE = constrain.Options(order="any", whitespace="free")
PLAIN = constrain.Options()


@dataclass
class Findings:
    """What one schema's documents showed."""

    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    longest: int = 0

    def fail(self, what: str, prefix: bytes, ending: bytes, why: str) -> None:
        """Note one cut that does not hold."""
        self.counts["failed"] += 1
        if len(self.failures) < MAX_FAILURES:
            shown = prefix[-80:].decode(errors="replace") + "⟂" + ending[:120].decode(errors="replace")
            self.failures.append(f"{what} at byte {len(prefix)}: {why[:200]}: {shown}")


class Vocabularies:
    """What documents are read with: named vocabularies, and one token for each byte."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.bytes = constrain.Tokens.from_bytes([bytes([i]) for i in range(256)] + [b""], [256])
        self.named: list[tuple[str, Header, constrain.Tokens]] = []
        for path in paths:
            header = Header.open(path)
            self.named.append((Path(path).stem, header, constrain.Tokens.of(header.vocab)))


KEPT_TEXTS = 8


class Cuts:
    """The closed texts of one document's cuts: many cuts make the same one, and the last are kept as read."""

    def __init__(self, document: bytes) -> None:
        self._known = dict(values(load(document)))
        self._read: dict[bytes, Written | NotJSON] = {}

    def read(self, text: bytes) -> Written:
        """The values of a closed text beside those of the document. Raises NotJSON."""
        found = self._read.get(text)
        if found is None:
            if len(self._read) == KEPT_TEXTS:
                del self._read[next(iter(self._read))]
            try:
                found = Written(load(text), self._known)
            except NotJSON as error:
                found = error
            self._read[text] = found
        if isinstance(found, NotJSON):
            raise found
        return found


class Examiner:
    """Cuts documents of one schema."""

    def __init__(self, schema: Any, seed: str) -> None:
        self.judge = Judge(schema)
        self.schema = schema
        self.rng = random.Random(f"{SEED} {seed}")
        self.found = Findings()
        self._known: set[bytes] = set()  # digests of closed texts that hold

    def cut_everywhere(self, constraint: constrain.Constraint, document: bytes, what: str) -> list[bytes]:
        """Close after every byte; digests of the closings.

        The document's own rest bounds each ending; so does the next one.
        """
        matcher = constrain.Matcher(constraint, None)
        cuts = Cuts(document)
        before, digests = None, []
        for place in range(len(document) + 1):
            closing = matcher.close()
            digests.append(digest_of(closing))
            self.hold(matcher, document[:place], closing, cuts, len(document) - place, what)
            if before is not None and before > len(closing.data) + 1:
                self.found.fail(what, document[:place], closing.data, f"one byte before: {before} bytes")
            before = len(closing.data)
            if place < len(document):
                matcher.commit_bytes(document[place : place + 1])
        return digests

    def cut_at(self, constraint: constrain.Constraint, document: bytes, place: int, what: str) -> None:
        """Close after the first ``place`` bytes."""
        matcher = constrain.Matcher(constraint, None)
        matcher.commit_bytes(document[:place])
        rest = len(document) - place
        self.hold(matcher, document[:place], matcher.close(), Cuts(document), rest, what)

    def hold(
        self,
        matcher: constrain.Matcher,
        prefix: bytes,
        closing: constrain.Closing,
        cuts: Cuts,
        rest: int,
        what: str,
    ) -> None:
        """Everything that one ending must satisfy."""
        found, ending = self.found, closing.data
        found.counts["cuts"] += 1
        found.longest = max(found.longest, len(ending))
        if len(ending) > rest:
            found.fail(what, prefix, ending, f"{len(ending)} bytes, the document goes on for {rest}")
        if matcher.accepting is not (not ending):
            found.fail(what, prefix, ending, f"accepting is {matcher.accepting}")
        text = prefix + ending
        try:
            written = cuts.read(text)
        except NotJSON as error:
            found.fail(what, prefix, ending, str(error))
            return
        fault = None if self._seen(text) else self.judge.fault(written.there[""])
        if fault is not None:
            found.fail(what, prefix, ending, fault)
        spare = open_number(matcher, prefix, closing, written.there)
        found.counts["open_numbers_unnamed"] += spare is not None
        for breach in itertools.islice(written.breaches(list(closing.filled), spare=spare), 1):
            found.fail(what, prefix, ending, f"{breach.detail} (filled {closing.filled[:6]})")

    def _seen(self, text: bytes) -> bool:
        """Whether the same closed text was judged before; a text that fails is judged once."""
        digest = hashlib.blake2b(text, digest_size=16).digest()
        if digest in self._known:
            return True
        self._known.add(digest)
        return False

    def by_tokens(
        self,
        constraint: constrain.Constraint,
        document: bytes,
        header: Header,
        tokens: constrain.Tokens,
        name: str,
        ends: Sequence[bytes],
    ) -> None:
        """Commit token by token: each must be allowed by its mask, and end as its bytes do (``ends``)."""
        ids = header.tokenize(document, special=False)
        if header.detokenize_bytes(ids, special=True) != document:
            self.found.counts["not_tokenised"] += 1
            return
        by_token = constrain.Matcher(constraint, tokens)
        place = 0
        for token in ids:
            data = header.vocab.token_bytes(token)
            mask = by_token.mask()
            allowed = bool(int(mask[token >> 5]) >> (token & 31) & 1)
            if not allowed or not by_token.commit(token):
                self.found.fail(name, document[:place], b"", f"token {token} is refused")
                return
            place += len(data)
            self.found.counts["token_cuts"] += 1
            closing = by_token.close()
            if digest_of(closing) != ends[place]:
                self.found.fail(name, document[:place], closing.data, "tokens end otherwise than bytes")

    def brute(self, constraint: constrain.Constraint, document: bytes, what: str) -> None:
        """No shorter ending exists, where all shorter texts can be tried."""
        last = min(self.found.counts["brute_forced"] + BRUTE_PER_DOCUMENT, BRUTE_CUTS)
        for place in self.rng.sample(range(1, len(document) + 1), min(len(document), 40)):
            if self.found.counts["brute_forced"] >= last:
                return
            matcher = constrain.Matcher(constraint, None)
            matcher.commit_bytes(document[:place])
            length = len(matcher.close().data)
            alphabet = alphabet_for(length)
            if length < 2 or not alphabet:
                continue
            self.found.counts["brute_forced"] += 1
            shorter = self._shorter(document[:place], length, alphabet)
            if shorter is not None:
                self.found.fail(what, document[:place], shorter, f"this is shorter than {length} bytes")

    def _shorter(self, prefix: bytes, length: int, alphabet: Sequence[bytes]) -> bytes | None:
        for size in range(length):
            for parts in itertools.product(alphabet, repeat=size):
                ending = b"".join(parts)
                try:
                    document = load(prefix + ending)
                except NotJSON:
                    continue
                if self.judge.fault(document) is None:
                    return ending
        return None

    def walk(
        self, constraint: constrain.Constraint, tokens: constrain.Tokens, table: Sequence[bytes]
    ) -> bytes:
        """A random legal document: random allowed tokens, more often those that end a string, then closed."""
        matcher = constrain.Matcher(constraint, tokens)
        out = bytearray()
        steps = self.rng.randrange(2, WALK_STEPS)
        for _ in range(steps):
            allowed = native_bits(matcher.mask())
            if not allowed:
                break
            token = self._pick(allowed, table)
            if not table[token]:
                break
            if not matcher.commit(token):
                self.found.fail("walk", bytes(out), table[token], f"token {token} is in the mask and refused")
                break
            out += table[token]
        return bytes(out) + matcher.close().data

    def _pick(self, allowed: Sequence[int], table: Sequence[bytes]) -> int:
        if self.rng.random() < 0.3:
            ends = [token for token in allowed if table[token][:1] == b'"']
            if ends:
                return self.rng.choice(ends)
        return self.rng.choice(allowed)


def digest_of(closing: constrain.Closing) -> bytes:
    """What stands for a closing: its bytes, and what it filled."""
    text = json.dumps(closing.filled).encode() + b"\n" + closing.data
    return hashlib.blake2b(text, digest_size=16).digest()


def open_number(
    matcher: constrain.Matcher, prefix: bytes, closing: constrain.Closing, there: Mapping[str, Any]
) -> str | None:
    """Pointer of a number that stood open at the cut and is not named as filled: `1` of `15`, closed by `}`.

    The model wrote all of its text, and may have meant to go on. Such values are counted, not judged.
    """
    if not prefix or prefix[-1:] not in b"0123456789":
        return None
    place = matcher.pointer()
    value = there.get(place)
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return place if number and place not in closing.filled else None


def native_bits(mask: Any) -> list[int]:
    """The tokens of a mask."""
    import numpy as np

    return np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist()


PRINTABLE = [bytes([i]) for i in range(0x20, 0x7F)]
STRUCTURAL = [letter.encode() for letter in '"{}[],:0123456789-.etrufalsn ']


def alphabet_for(length: int) -> list[bytes]:
    """Of what shorter texts are made: printable ASCII, or else JSON's own letters; []: too many to try."""
    for alphabet in (PRINTABLE, STRUCTURAL):
        if sum(len(alphabet) ** n for n in range(length)) <= BRUTE_LIMIT:
            return alphabet
    return []


# ---- One schema ------------------------------------------------------------------------------------


def examine(
    case: dict[str, Any], vocabularies: Vocabularies, *, full: bool, documents: int, cuts: int
) -> dict[str, Any]:
    """The record of one schema."""
    try:
        free = constrain.compile("json_schema", case["schema"], FREE)
        plain = constrain.compile("json_schema", case["schema"], PLAIN)
    except constrain.ConstraintError as error:
        return {"state": "refused", "why": str(error)[:200]}
    examiner = Examiner(case["schema"], case["file"])
    instances = [
        json.dumps(test["data"], ensure_ascii=False).encode()
        for test in case.get("tests", [])
        if test["valid"]
    ]
    if full:
        _fully(examiner, free, plain, instances, vocabularies, documents)
    else:
        _sampled(examiner, free, plain, instances, vocabularies, cuts)
    found = examiner.found
    found.counts["excused"] = examiner.judge.excused
    found.counts["unjudged"] = examiner.judge.unjudged
    state = "failed" if found.counts["failed"] else "held"
    counts = {name: count for name, count in sorted(found.counts.items()) if count}
    return {"state": state, "longest": found.longest, "failures": found.failures, **counts}


def _fully(
    examiner: Examiner, free: constrain.Constraint, plain: constrain.Constraint,
    instances: Sequence[bytes], vocabularies: Vocabularies, documents: int,
) -> None:  # fmt: skip
    byte_table = [bytes([i]) for i in range(256)] + [b""]
    for document in instances:
        _document(examiner, free, document, vocabularies, "instance")
    for number in range(documents):
        if number % 2 == 0 or not vocabularies.named:
            document = examiner.walk(plain, vocabularies.bytes, byte_table)
        else:
            _, header, tokens = vocabularies.named[number // 2 % len(vocabularies.named)]
            document = examiner.walk(plain, tokens, table_of(header))
        _document(examiner, plain, document, vocabularies, "walk")


def _document(
    examiner: Examiner,
    constraint: constrain.Constraint,
    document: bytes,
    vocabularies: Vocabularies,
    what: str,
) -> None:
    examiner.found.counts[f"{what}s"] += 1
    try:
        ends = examiner.cut_everywhere(constraint, document, what)
        for name, header, tokens in vocabularies.named:
            examiner.by_tokens(constraint, document, header, tokens, f"{what}, {name}", ends)
        examiner.brute(constraint, document, what)
    except NotJSON as error:
        examiner.found.fail(what, document, b"", str(error))
    except constrain.ConstraintError as error:
        examiner.found.counts["rejected_instances"] += what == "instance"
        if what != "instance":
            examiner.found.fail(what, document, b"", f"refused: {error}")


def _sampled(
    examiner: Examiner, free: constrain.Constraint, plain: constrain.Constraint,
    instances: Sequence[bytes], vocabularies: Vocabularies, cuts: int,
) -> None:  # fmt: skip
    byte_table = [bytes([i]) for i in range(256)] + [b""]
    pool = [(free, "instance", document) for document in instances]
    pool += [(plain, "walk", examiner.walk(plain, vocabularies.bytes, byte_table)) for _ in range(2)]
    for _ in range(cuts):
        constraint, what, document = examiner.rng.choice(pool)
        try:
            examiner.cut_at(constraint, document, examiner.rng.randint(0, len(document)), what)
        except NotJSON as error:
            examiner.found.fail(what, document, b"", str(error))
        except constrain.ConstraintError as error:
            examiner.found.counts["rejected_instances"] += what == "instance"
            if what != "instance":
                examiner.found.fail(what, document, b"", f"refused: {error}")


_tables: dict[int, list[bytes]] = {}


def table_of(header: Header) -> list[bytes]:
    """Bytes by token id; made once for each vocabulary."""
    if id(header) not in _tables:
        vocab: native.Vocab = header.vocab
        table = vocab.all_token_bytes()
        _tables[id(header)] = [b"" if vocab.is_end(i) else data for i, data in enumerate(table)]
    return _tables[id(header)]


# ---- The run ---------------------------------------------------------------------------------------


def read_cases(path: Path) -> list[dict[str, Any]]:
    """The cases of a MaskBench file."""
    data = path.read_bytes()
    text = gzip.decompress(data) if path.suffix == ".gz" else data
    return [json.loads(line) for line in text.split(b"\n") if line.strip()]


def draw(cases: Sequence[dict[str, Any]], count: int) -> set[str]:
    """Files of the schemas that are cut everywhere: round-robin over the strata, at random within one."""
    rng = random.Random(SEED)
    strata: dict[str, list[str]] = {name: [] for name in STRATA}
    order = list(cases)
    rng.shuffle(order)
    for case in order:
        for name in features(case["schema"]):
            strata[name].append(case["file"])
    chosen: set[str] = set()
    queues = [iter(files) for files in strata.values()]
    while len(chosen) < count and queues:
        for queue in list(queues):
            file = next((file for file in queue if file not in chosen and compiles(cases, file)), None)
            if file is None:
                queues.remove(queue)
            elif len(chosen) < count:
                chosen.add(file)
    return chosen


_compiled: dict[str, bool] = {}
_by_file: dict[str, Any] = {}


def compiles(cases: Sequence[dict[str, Any]], file: str) -> bool:
    """Whether the schema of this file is not refused."""
    if not _by_file:
        _by_file.update({case["file"]: case for case in cases})
    if file not in _compiled:
        try:
            constrain.Constraint(
                "json_schema", json.dumps(_by_file[file]["schema"], ensure_ascii=False).encode(), FREE
            )
            _compiled[file] = True
        except constrain.ConstraintError:
            _compiled[file] = False
    return _compiled[file]


def worker(
    pipe: Connection, cases: Sequence[dict[str, Any]], options: argparse.Namespace, full: set[str]
) -> None:
    """Examine what the parent names, until it names None."""
    vocabularies = Vocabularies(options.vocab)
    while True:
        index = pipe.recv()
        if index is None:
            return
        case = cases[index]
        begin, spent = time.monotonic(), time.process_time()
        record = examine(
            case, vocabularies, full=case["file"] in full, documents=options.documents, cuts=options.cuts
        )
        pipe.send({"file": case["file"], "mode": "full" if case["file"] in full else "sampled", **record,
                   "seconds": round(time.monotonic() - begin, 2),
                   "cpu_s": round(time.process_time() - spent, 2)})  # fmt: skip


@dataclass
class Worker:
    """A process, and what it is at work on."""

    process: multiprocessing.process.BaseProcess
    pipe: Connection
    index: int | None = None
    since: float = 0.0


def run(
    cases: Sequence[dict[str, Any]], options: argparse.Namespace, full: set[str], todo: list[int]
) -> Iterator[dict[str, Any]]:
    """Records as they come, from ``options.jobs`` processes; a dead or late one is replaced."""
    context = multiprocessing.get_context("fork")

    def start() -> Worker:
        ours, theirs = context.Pipe()
        process = context.Process(target=worker, args=(theirs, cases, options, full), daemon=True)
        process.start()
        theirs.close()
        return Worker(process, ours)

    workers = [start() for _ in range(min(options.jobs, len(todo)))]
    queue = iter(todo)
    for item in workers:
        _assign(item, queue)
    while any(item.index is not None for item in workers):
        busy = [item for item in workers if item.index is not None]
        for ready in wait([item.pipe for item in busy], timeout=1.0):
            item = next(each for each in busy if each.pipe is ready)
            try:
                yield item.pipe.recv()
            except EOFError:
                item.process.join()
                yield _lost(cases, item, f"crash ({item.process.exitcode})")
                workers[workers.index(item)] = item = start()
            _assign(item, queue)
        for item in busy:
            if item.index is not None and time.monotonic() - item.since > options.limit_s:
                item.process.kill()
                item.process.join()
                yield _lost(cases, item, f"timeout ({options.limit_s} s)")
                workers[workers.index(item)] = fresh = start()
                _assign(fresh, queue)
    for item in workers:
        item.process.join(5)


def _assign(item: Worker, queue: Iterator[int]) -> None:
    item.index = next(queue, None)
    item.since = time.monotonic()
    item.pipe.send(item.index)


def _lost(cases: Sequence[dict[str, Any]], item: Worker, why: str) -> dict[str, Any]:
    assert item.index is not None
    item_file = cases[item.index]["file"]
    item.index = None
    return {"file": item_file, "state": why.split()[0], "failures": [why]}


def summary(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Counts over all records."""
    found: dict[str, Any] = {"schemas": len(records)}
    found |= dict(sorted(Counter(record["state"] for record in records).items()))
    for mode in ("full", "sampled"):
        mine = [record for record in records if record.get("mode") == mode and record["state"] != "refused"]
        counts: Counter[str] = Counter()
        for record in mine:
            counts.update({name: value for name, value in record.items() if isinstance(value, int)})
        longest = max((record.get("longest", 0) for record in mine), default=0)
        counts.pop("longest", None)
        found[mode] = {"schemas": len(mine), **dict(sorted(counts.items())), "longest_ending_bytes": longest}
    return found


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="cut documents everywhere, and judge the endings")
    parser.add_argument("data", type=Path)
    parser.add_argument("--vocab", action="append", default=[], help="a GGUF file; repeatable")
    parser.add_argument("--schemas", type=int, default=200, help="schemas whose documents are cut everywhere")
    parser.add_argument("--documents", type=int, default=20, help="random legal documents for each of them")
    parser.add_argument("--cuts", type=int, default=50, help="seeded cuts of every other schema")
    parser.add_argument("--limit", type=int, help="only the first so many schemas of the file")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="FILE",
        help="only this schema, cut as in a run over all; repeatable",
    )
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit-s", type=float, default=3600.0, help="seconds for one schema")
    parser.add_argument("--out", type=Path, default=Path("out/endings.jsonl"))
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run or go on; print the summary."""
    options = parse(arguments)
    cases = read_cases(options.data)[: options.limit]
    key = {
        "data": hashlib.sha256(options.data.read_bytes()).hexdigest(),
        "library": hashlib.sha256(Path(native.library_path()).read_bytes()).hexdigest(),
        "options": [options.schemas, options.documents, options.cuts, options.limit, *options.vocab],
    }
    records: list[dict[str, Any]] = []
    if options.out.exists():
        lines = [json.loads(line) for line in options.out.read_text().splitlines() if line.endswith("}")]
        if not lines or lines[0] != key:
            print(f"endings: {options.out} is of another run: remove it", file=sys.stderr)
            return 2
        records = lines[1:]
    full = draw(cases, options.schemas)
    done = {record["file"] for record in records}
    todo = [index for index, case in enumerate(cases) if case["file"] not in done]
    if options.only:
        unknown = set(options.only) - {case["file"] for case in cases}
        if unknown:
            print(f"endings: {options.data} has no {', '.join(sorted(unknown))}", file=sys.stderr)
            return 2
        todo = [index for index in todo if cases[index]["file"] in options.only]
    todo.sort(key=lambda index: cases[index]["file"] not in full)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with options.out.open("a", encoding="utf-8") as journal:
        if not records:
            journal.write(json.dumps(key) + "\n")
        for record in run(cases, options, full, todo):
            records.append(record)
            journal.write(json.dumps(record) + "\n")
            journal.flush()
            if record["state"] not in ("held", "refused"):
                print(json.dumps(record, ensure_ascii=False), file=sys.stderr, flush=True)
    print(json.dumps(summary(records), indent=1))
    return 0 if all(record["state"] in ("held", "refused") for record in records) else 1


if __name__ == "__main__":
    raise SystemExit(main())
