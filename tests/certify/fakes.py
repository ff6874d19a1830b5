"""Fake subjects and references: one honest of each, and others that break exactly one rule.

The honest subject is a pure function from ids to logits, so that whatever a check finds in a
derived class is the fault that it plants. Classes are found by name, also from a check's own process.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from certify import registry
from certify.phase import SUBJECT, Guarded, Phase
from certify.references import EvalOptions, FloatArray, ReferenceCrashed, ReferenceUnavailable
from certify.servers import ServerProcess
from certify.targets import Artifact, Context, Job, Pin, Setting, Text
from certify.types import Outcome
from engine.errors import FormatError
from tests.certify import fake_endpoint

VOCAB = 300
SPECIAL = {"<s>": 256, "</s>": 257}
STRINGS = ["", "a", "hello", " lead", "tab\t", "<s>x</s>", "größe", "🙂", "1234", "it's", "end\n"]
PROMPTS = {"prompts": [{"name": f"p{i}", "text": f"prompt number {i}"} for i in range(4)]}
PROSE = "The quick brown fox jumps over the lazy dog. " * 12


def logits(ids: Sequence[int]) -> FloatArray:
    """A row that depends on every id before it, float32 [VOCAB]."""
    seed = hashlib.blake2b(np.asarray(ids, "<i4").tobytes(), digest_size=8).digest()
    generator = np.random.Generator(np.random.Philox(key=int.from_bytes(seed, "little")))
    return (generator.standard_normal(VOCAB) * 3).astype(np.float32)


def encode(text: str | bytes, special: bool) -> list[int]:
    """One id a byte; with ``special``, the spelled control tokens are one id each."""
    data = text.encode() if isinstance(text, str) else text
    ids: list[int] = []
    while data:
        name = next((key for key in SPECIAL if special and data.startswith(key.encode())), None)
        ids.append(SPECIAL[name] if name else data[0])
        data = data[len(name) if name else 1 :]
    return ids


def decode(ids: Sequence[int]) -> bytes:
    """The inverse of ``encode``."""
    names = {token: name.encode() for name, token in SPECIAL.items()}
    return b"".join(names[token] if token in names else bytes([token]) for token in ids)


class Honest:
    """The subject that breaks no rule."""

    vocab = VOCAB

    def __init__(self, job: Job) -> None:
        self.job = job

    def describe(self) -> dict[str, str | int]:
        return {"architecture": self.job.architecture, "vocab": self.vocab}

    def sha256(self) -> str:
        return self.job.artifacts[0].sha256

    def backends(self) -> tuple[str, ...]:
        return ("cpu",)

    def tokenize(self, text: str | bytes, *, special: bool) -> list[int]:
        return encode(text, special)

    def prompt(self, text: str) -> list[int]:
        return [SPECIAL["<s>"], *encode(text, False)]

    def detokenize(self, ids: Sequence[int], *, special: bool) -> bytes:
        return decode(ids)

    def is_end(self, token: int) -> bool:
        return token == SPECIAL["</s>"]

    def row(self, ids: Sequence[int], position: int, setting: Setting) -> FloatArray:
        return logits(ids[: position + 1])

    def rows(
        self, ids: Sequence[int], positions: Sequence[int] | None, setting: Setting
    ) -> Iterator[tuple[int, FloatArray]]:
        for position in range(len(ids)) if positions is None else positions:
            yield position, self.row(ids, position, setting)

    def greedy(self, ids: Sequence[int], n: int, setting: Setting, *, stop: bool) -> list[int]:
        known = list(ids)
        while len(known) < len(ids) + n:
            known.append(int(self.row(known, len(known) - 1, setting).argmax()))
        return known[len(ids) :]

    def seconds(self, before: int, count: int, setting: Setting, *, together: bool) -> float:
        """No clock: a token costs 1 ms at once, 10 ms alone, a millionth more for each one before it."""
        return count * (1e-3 if together else 1e-2 + 1e-6 * before)

    def start_command(self, setting: Setting, prompt: str, folder: Path | None) -> list[str]:
        return ["ours", "absent" if folder is None else "present"]

    server = "Honest"

    def serve_command(self, setting: Setting) -> list[str]:
        return fake_endpoint.command(self.server)

    def close(self) -> None:
        pass


# ---- Subjects that break one rule each ------------------------------------------------------


class OtherBytes(Honest):
    def sha256(self) -> str:
        return "0" * 64


class OtherArchitecture(Honest):
    def describe(self) -> dict[str, str | int]:
        return {**super().describe(), "architecture": "other"}


class Refuses(Honest):
    def describe(self) -> dict[str, str | int]:
        raise FormatError("byte 12: the tensor count lies")


class OneWrongId(Honest):
    def tokenize(self, text: str | bytes, *, special: bool) -> list[int]:
        ids = super().tokenize(text, special=special)
        return [*ids[:-1], ids[-1] ^ 1] if text == "größe" and special else ids


class NeverSpecial(Honest):
    def tokenize(self, text: str | bytes, *, special: bool) -> list[int]:
        return super().tokenize(text, special=False)


class FollowsTheSecond(Honest):
    def tokenize(self, text: str | bytes, *, special: bool) -> list[int]:
        ids = super().tokenize(text, special=special)
        return [*ids, 0] if text == "1234" else ids


class LosesBytes(Honest):
    def detokenize(self, ids: Sequence[int], *, special: bool) -> bytes:
        return super().detokenize(ids, special=special).rstrip(b"\n")


class BeyondBand(Honest):
    """One pick in one prompt is another, clearly."""

    def row(self, ids: Sequence[int], position: int, setting: Setting) -> FloatArray:
        row = super().row(ids, position, setting)
        if position == 20 and ids[15] == ord("2"):
            row[5] = row.max() + 0.7
        return row


class NearTie(Honest):
    """One pick is another by a hair; the reference rates both alike."""

    def row(self, ids: Sequence[int], position: int, setting: Setting) -> FloatArray:
        row = super().row(ids, position, setting)
        second = int(np.argsort(row)[-2])
        row[second] = row.max() + 0.01
        return row


class Shorter(Honest):
    def rows(
        self, ids: Sequence[int], positions: Sequence[int] | None, setting: Setting
    ) -> Iterator[tuple[int, FloatArray]]:
        found = list(super().rows(ids, positions, setting))
        yield from found[:-1] if len(found) > 2 else found


class Nan(Honest):
    """A NaN in a place that no argmax looks at."""

    def row(self, ids: Sequence[int], position: int, setting: Setting) -> FloatArray:
        row = super().row(ids, position, setting)
        row[7] = np.nan if position % 3 == 1 else row[7]
        return row


class MinusInfinityAtTheirPick(Honest):
    """Rates the reference's pick at minus infinity: that gap cannot be measured."""

    def row(self, ids: Sequence[int], position: int, setting: Setting) -> FloatArray:
        row = super().row(ids, position, setting)
        row[int(row.argmax())] = -np.inf
        return row


class Constant(Honest):
    def row(self, ids: Sequence[int], position: int, setting: Setting) -> FloatArray:
        return np.zeros(VOCAB, np.float32)


class SameEverywhere(Honest):
    def row(self, ids: Sequence[int], position: int, setting: Setting) -> FloatArray:
        return logits([1])


class _OneUlp(Honest):
    """Differs by one unit in the last place where ``here`` says so."""

    def here(self, setting: Setting) -> bool:
        raise NotImplementedError

    def row(self, ids: Sequence[int], position: int, setting: Setting) -> FloatArray:
        row = super().row(ids, position, setting)
        if self.here(setting) and position == len(ids) - 1:
            row[0] = np.nextafter(row[0], np.float32(np.inf))
        return row


class DiffersAtBatch7(_OneUlp):
    def here(self, setting: Setting) -> bool:
        return setting.batch == 7


class DiffersAtThreads2(_OneUlp):
    def here(self, setting: Setting) -> bool:
        return setting.threads == 2


class DiffersAfterSnapshot(_OneUlp):
    def here(self, setting: Setting) -> bool:
        return setting.via == "snapshot"


class DiffersWhenCut(_OneUlp):
    def here(self, setting: Setting) -> bool:
        return bool(setting.cuts) and setting.via == "session"


class DiffersBeside(_OneUlp):
    def here(self, setting: Setting) -> bool:
        return setting.beside > 0


class DiffersInInt8(_OneUlp):
    """Only in a mode that is not the configured one."""

    def here(self, setting: Setting) -> bool:
        return setting.activations == "int8" and setting.batch == 512


class Unrepeatable(Honest):
    """Never the same twice."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.calls = 0

    def row(self, ids: Sequence[int], position: int, setting: Setting) -> FloatArray:
        self.calls += 1
        return super().row(ids, position, setting) + np.float32(1e-2) * logits([self.calls])


class Far(Honest):
    """A divergence above any bar, with every pick the same."""

    def row(self, ids: Sequence[int], position: int, setting: Setting) -> FloatArray:
        return super().row(ids, position, setting) * np.float32(0.5)


class OutsideMargin(Honest):
    """One pick, in one position, that the reference rates far below its own; little divergence."""

    def row(self, ids: Sequence[int], position: int, setting: Setting) -> FloatArray:
        row = super().row(ids, position, setting)
        if position == 3:
            row[int(row.argmin())] = row.max() + 0.001
        return row


class SlowInInt8AtTwoThreads(Honest):
    """Only one way of decoding is slow."""

    def seconds(self, before: int, count: int, setting: Setting, *, together: bool) -> float:
        slow = setting.activations == "int8" and setting.threads == 2 and not together
        return super().seconds(before, count, setting, together=together) * (1.6 if slow else 1)


class SlowAtDepth(Honest):
    def seconds(self, before: int, count: int, setting: Setting, *, together: bool) -> float:
        return super().seconds(before, count, setting, together=together) * (4 if before > 100 else 1)


class FastOnce(Honest):
    """Nine runs of ten are slow; the tenth would win if the best one counted."""

    calls = 0

    def seconds(self, before: int, count: int, setting: Setting, *, together: bool) -> float:
        FastOnce.calls += 1
        return super().seconds(before, count, setting, together=together) * (
            0.1 if self.calls % 10 == 0 else 3
        )


class ServesBrokenEndings(Honest):
    """Its server leaves cut documents as they were cut."""

    server = "Unparseable"


class ServerDies(Honest):
    server = "Dies"


class ServerNeverStarts(Honest):
    def serve_command(self, setting: Setting) -> list[str]:
        return [sys.executable, "-c", "raise SystemExit('no such model')"]


class NoSuchDevice(Honest):
    def backends(self) -> tuple[str, ...]:
        return ()


class Hangs(Honest):
    def describe(self) -> dict[str, str | int]:
        time.sleep(600)
        return {}


class Crashes(Honest):
    def describe(self) -> dict[str, str | int]:
        crash()
        return {}


class Dies(Honest):
    """Ends the process without a word."""

    def describe(self) -> dict[str, str | int]:
        os._exit(3)


def crash() -> None:
    """A real SIGSEGV, without a core file or a traceback."""
    with contextlib.suppress(Exception):
        import faulthandler

        faulthandler.disable()
    ctypes.string_at(0)


# ---- References ---------------------------------------------------------------------------------


class Peer:
    """A reference that agrees with the honest subject, with a floor when flash attention is off."""

    name = provider = "peer"
    package_version, revision = "1.0.7", "b7"
    cpu_features: tuple[str, ...] = ("avx2",)

    def __init__(self, job: Job) -> None:
        self.job = job

    def tokenize(self, text: str | bytes, *, special: bool) -> list[int]:
        return encode(text, special)

    def detokenize(self, ids: Sequence[int], *, special: bool = False) -> bytes:
        return decode(ids)

    def row(self, ids: Sequence[int], options: EvalOptions) -> FloatArray:
        row = logits(ids)
        return row + np.float32(0.05) * logits([*ids, 1]) if options.flash_attention is False else row

    def rows(
        self, ids: Sequence[int], positions: Sequence[int] | None = None, options: EvalOptions | None = None
    ) -> Iterator[tuple[int, FloatArray]]:
        for position in range(len(ids)) if positions is None else positions:
            yield position, self.row(ids[: position + 1], options or EvalOptions())

    def greedy_rows(
        self, ids: Sequence[int], n: int, *, stop: bool = False
    ) -> Iterator[tuple[int, FloatArray]]:
        known = list(ids)
        for _ in range(n):
            row = self.row(known, EvalOptions())
            known.append(int(row.argmax()))
            yield known[-1], row

    def seconds(
        self, before: Sequence[int], ids: Sequence[int], *, together: bool, flash: str, threads: int
    ) -> float:
        """Twice what the honest subject takes; without flash attention a little more, at depth less."""
        base = len(ids) * (2e-3 if together else 2e-2 + 2e-6 * len(before))
        return base * (1.1 if (flash == "off") == (len(before) < 100) else 1)

    def start_command(self, prompt: str, threads: int, context_tokens: int) -> list[str] | None:
        return ["peer"]

    def greedy(self, ids: Sequence[int], n: int, *, stop: bool = False) -> list[int]:
        return [pick for pick, _ in self.greedy_rows(ids, n)]

    def close(self) -> None:
        pass


class PeerOfAnotherRevision(Peer):
    revision = "b8"


class PeerMissing(Peer):
    def __init__(self, job: Job) -> None:
        raise ReferenceUnavailable("the package peer is not installed")


class PeerCrashes(Peer):
    def tokenize(self, text: str | bytes, *, special: bool) -> list[int]:
        raise ReferenceCrashed("peer ended (signal SIGSEGV)")

    def rows(self, *_: Any, **__: Any) -> Iterator[tuple[int, FloatArray]]:
        raise ReferenceCrashed("peer ended (signal SIGSEGV)")

    greedy_rows = rows

    def seconds(self, *_: Any, **__: Any) -> float:
        raise ReferenceCrashed("peer ended (signal SIGILL)")


class PeerDrifts(Peer):
    """Never within 15 % of itself."""

    calls = 0

    def seconds(
        self, before: Sequence[int], ids: Sequence[int], *, together: bool, flash: str, threads: int
    ) -> float:
        PeerDrifts.calls += 1
        base = super().seconds(before, ids, together=together, flash=flash, threads=threads)
        return base * (1 + 0.5 * (self.calls % 5))


class PeerIsInterrupted(Peer):
    """Every third run takes twice as long."""

    calls = 0

    def seconds(
        self, before: Sequence[int], ids: Sequence[int], *, together: bool, flash: str, threads: int
    ) -> float:
        PeerIsInterrupted.calls += 1
        base = super().seconds(before, ids, together=together, flash=flash, threads=threads)
        return base * (2 if self.calls % 3 == 0 else 1)


class PeerServer(Peer):
    """A peer whose server breaks what it cuts."""

    server = "Unparseable"

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._process = ServerProcess(fake_endpoint.command(self.server))
        self.url = self._process.url

    def check(self) -> None:
        self._process.check()

    def close(self) -> None:
        self._process.close()


class PeerWithoutBinding(Peer):
    def start_command(self, prompt: str, threads: int, context_tokens: int) -> list[str] | None:
        return None


class PeerUnrepeatable(Peer):
    calls = 0

    def row(self, ids: Sequence[int], options: EvalOptions) -> FloatArray:
        PeerUnrepeatable.calls += 1
        return super().row(ids, options) + np.float32(0.1) * logits([PeerUnrepeatable.calls])


class PeerNan(Peer):
    def row(self, ids: Sequence[int], options: EvalOptions) -> FloatArray:
        return super().row(ids, options) * np.float32(np.nan)


class PeerStopsEarly(Peer):
    def greedy_rows(
        self, ids: Sequence[int], n: int, *, stop: bool = False
    ) -> Iterator[tuple[int, FloatArray]]:
        return super().greedy_rows(ids, n - 1)


class PeerWavers(Peer):
    """Evaluated as a whole, it picks what ``BeyondBand`` picks; when generating, it does not."""

    def rows(
        self, ids: Sequence[int], positions: Sequence[int] | None = None, options: EvalOptions | None = None
    ) -> Iterator[tuple[int, FloatArray]]:
        for position, row in super().rows(ids, positions, options):
            if position == 20 and ids[15] == ord("2"):
                row[5] = row.max() + 0.7
            yield position, row


class PeerHangs(Peer):
    def tokenize(self, text: str | bytes, *, special: bool) -> list[int]:
        time.sleep(600)
        return []


class PeerLosesNewlines(Peer):
    """Decodes with a loss of its own, as SentencePiece does with a leading space."""

    def detokenize(self, ids: Sequence[int], *, special: bool = False) -> bytes:
        return decode(ids).rstrip(b"\n")


class Dissenter(Peer):
    """A second reference that sees one string differently."""

    name = provider = "dissenter"

    def tokenize(self, text: str | bytes, *, special: bool) -> list[int]:
        return [*encode(text, special), 0] if text == "1234" else encode(text, special)


# ---- Contexts -------------------------------------------------------------------------------------

REFERENCES: dict[str, type[Peer]] = {"peer": Peer, "second": Peer, "dissenter": Dissenter}


def open_reference(name: str, job: Job) -> Peer:
    """References by name; the pin's provider may name another class of this module."""
    name = name.removesuffix("/speed").removesuffix("/server")
    pin = job.references.get(name)
    planted = globals().get(pin.provider) if pin else None
    return (planted or REFERENCES[name])(job)


def make_job(folder: Path, check: str, **parameters: Any) -> Job:
    """A job on the fakes' texts, which are written into ``folder``."""
    files = {
        "strings": "\n".join(json.dumps(text) for text in STRINGS),
        "prompts": json.dumps(PROMPTS),
        "prose": PROSE,
    }
    texts = {}
    for name, text in files.items():
        path = folder / name
        path.write_text(text, encoding="utf-8")
        texts[name] = Text(str(path), hashlib.sha256(text.encode()).hexdigest())
    return Job(
        model="fake",
        check=check,
        architecture="fake",
        artifacts=(Artifact("fake.gguf", str(folder / "fake.gguf"), "1" * 64, 1),),
        config={"activations": "wide", "kv": "f16", "context_tokens": 256},
        parameters=parameters,
        timeout_s=30.0,
        references={"peer": Pin("peer", "Peer", "b7")},
        texts=texts,
    )


def run_check(
    folder: Path,
    check: str,
    subject: type[Honest] = Honest,
    peer: type[Peer] = Peer,
    job: Job | None = None,
    **parameters: Any,
) -> tuple[Outcome, Context]:
    """Run a real check in this process, as the child does. ``peer`` is the class of the reference."""
    from certify import child

    found = registry.get(check)
    job = job or make_job(folder, check, **found.with_defaults(parameters))
    job = replace(job, references={"peer": Pin("peer", peer.__name__, "b7")})
    evidence = folder / "evidence"
    evidence.mkdir(exist_ok=True)
    phase = Phase()
    target: Any = Guarded(subject(job), phase, SUBJECT)
    context = Context(job, target, phase, evidence, open_reference)
    outcome = child._judged(found.run, context)
    assert child.outcome_fault(outcome) is None
    return outcome, context


# ---- What a check's process may do to its parent -----------------------------------------------


def leave_a_child(*, own_session: bool, clean_environment: bool) -> int:
    """Start a process that outlives its parent; returns its pid."""
    code = "import time; time.sleep(600)"
    return subprocess.Popen(
        [sys.executable, "-c", code],
        start_new_session=own_session,
        env={} if clean_environment else None,
        stdin=subprocess.DEVNULL,
    ).pid


def ignore_everything() -> None:
    """Refuse every signal that can be refused."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
