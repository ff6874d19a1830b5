"""What a check sees: the subject under test, the references, the texts, and where evidence goes.

``Target`` is the subject as a protocol, so that a fake can stand in for our engine and break one
rule. ``EngineTarget`` is our engine. Both only answer; judging is the checks' business.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal, Protocol, cast

import numpy as np

from certify.phase import REFERENCE, SUBJECT, Guarded, Phase
from certify.reasons import Reason
from certify.references import (
    FloatArray,
    Reference,
    ServerReference,
    SpeedReference,
    TokenizerReference,
)
from certify.sidecar import beside_sidecar
from certify.types import JSON, Evidence, Outcome
from engine import Entry, Model, Policy, RuntimeConfig, Session
from engine.bench import Bench, run_command, serve_command
from engine.contracts import contracts
from engine.machine import usable_cpus
from engine.model import Header

MAX_EVIDENCE_BYTES = 64 << 20


class Stop(Exception):
    """Ends a check from anywhere inside it, with this outcome."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(f"{outcome.outcome}: {outcome.reason}: {outcome.detail}")
        self.outcome = outcome


def stop(outcome: Literal["fail", "skip", "error"], reason: Reason, detail: str) -> Stop:
    """Shorthand: ``raise stop("skip", Reason.NO_DEVICE, "…")``."""
    return Stop(Outcome(outcome, reason, detail))


@dataclass(frozen=True)
class Setting:
    """One way to compute the same logits; by contract none of the lower fields changes a bit.

    ``cuts`` are lengths at which the prompt is interrupted, and ``via`` how it goes on: in the same
    session, from a snapshot in a new one, or in a fork. ``beside`` is the number of other sequences
    that are evaluated in the same steps. ``threads`` None means every usable CPU.
    """

    activations: str = "wide"
    kv: str = "f16"
    threads: int | None = None
    batch: int = 64
    cuts: tuple[int, ...] = ()
    via: Literal["session", "snapshot", "fork"] = "session"
    beside: int = 0


class Target(Protocol):
    """The subject under test. Ids and positions are plain integers, rows float32 [vocab]."""

    @property
    def vocab(self) -> int:
        """Rows of the output matrix."""
        ...

    def describe(self) -> dict[str, str | int]:
        """Opens the model, weights included, and says what it is; ``architecture`` at least."""
        ...

    def sha256(self) -> str: ...

    def backends(self) -> tuple[str, ...]:
        """What can compute on this machine."""
        ...

    def tokenize(self, text: str | bytes, *, special: bool) -> list[int]: ...

    def prompt(self, text: str) -> list[int]:
        """Ids of a raw prompt: with BOS where the metadata says so, special text as plain text."""
        ...

    def detokenize(self, ids: Sequence[int], *, special: bool) -> bytes: ...

    def is_end(self, token: int) -> bool: ...

    def rows(
        self, ids: Sequence[int], positions: Sequence[int] | None, setting: Setting
    ) -> Iterator[tuple[int, FloatArray]]:
        """Stream (position, row), ascending; row p predicts the token at p + 1. None: every position."""
        ...

    def greedy(self, ids: Sequence[int], n: int, setting: Setting, *, stop: bool) -> list[int]:
        """The ``n`` greedy ids after ``ids``, ties to the lower id; ``stop``: an end token is the last."""
        ...

    def seconds(self, before: int, count: int, setting: Setting, *, together: bool) -> float:
        """Seconds for ``count`` tokens behind ``before`` others, at once or one by one, after a warm-up."""
        ...

    def start_command(self, setting: Setting, prompt: str, folder: Path | None) -> list[str]:
        """``gaugeblock run`` on one token. ``folder``: the model is run from there, beside a sidecar."""
        ...

    def serve_command(self, setting: Setting) -> list[str]:
        """A server of the OpenAI API for this model on a free loopback port; one JSON line names its url."""
        ...

    def close(self) -> None: ...


class EngineTarget:
    """Our engine on one file. The gate is told to let it pass: measuring is how a verdict changes."""

    def __init__(self, path: str | os.PathLike[str], context_tokens: int) -> None:
        self.path = Path(path)
        self.context_tokens = context_tokens
        self._header: Header | None = None
        self._models: dict[tuple[str, str], Model] = {}
        self._benches: dict[Setting, Bench] = {}

    @property
    def header(self) -> Header:
        """The file without its weights; opened on first use."""
        if self._header is None:
            self._header = Header.open(self.path)
        return self._header

    @property
    def vocab(self) -> int:
        """Rows of the output matrix."""
        return int(self._any_model().info.vocab)

    def describe(self) -> dict[str, str | int]:
        """Architecture and size of the loaded model."""
        info = self._any_model().info
        return {
            "architecture": info.architecture,
            "vocab": info.vocab,
            "layers": info.layers,
            "context_train_tokens": info.context_train,
            "tensors": len(self.header.tensors),
            "weights_bytes": info.weights_bytes,
        }

    def sha256(self) -> str:
        """Hash of the bytes that were opened, read anew."""
        return self.header.sha256()

    def backends(self) -> tuple[str, ...]:
        """This release computes on CPUs only."""
        return ("cpu",)

    def tokenize(self, text: str | bytes, *, special: bool) -> list[int]:
        """Ids with nothing added before or after."""
        return self.header.tokenize(text, special=special)

    def prompt(self, text: str) -> list[int]:
        """Ids of a raw prompt, with BOS where the metadata says so."""
        return self.header.tokenize(text, bos=True)

    def detokenize(self, ids: Sequence[int], *, special: bool) -> bytes:
        """The bytes of ``ids``."""
        return self.header.detokenize_bytes(ids, special=special)

    def is_end(self, token: int) -> bool:
        """Whether ``token`` ends a generation."""
        return self.header.vocab.is_end(token)

    def rows(
        self, ids: Sequence[int], positions: Sequence[int] | None, setting: Setting
    ) -> Iterator[tuple[int, FloatArray]]:
        """Stream (position, row), ascending. Memory: one batch of rows."""
        wanted = set(range(len(ids)) if positions is None else positions)
        model = self._model(setting.activations, setting.kv)
        last = max(wanted) + 1
        edges = sorted({0, last, *(cut for cut in setting.cuts if 0 < cut < last)})
        with _Run(model, ids, setting) as run:
            for begin, end in itertools.pairwise(edges):
                if begin:
                    run.interrupt()
                for first in range(begin, end, setting.batch):
                    span = range(first, min(first + setting.batch, end))
                    asked = [p for p in span if p in wanted]
                    yield from zip(asked, run.evaluate(span, wanted), strict=True)

    def greedy(self, ids: Sequence[int], n: int, setting: Setting, *, stop: bool) -> list[int]:
        """Free-running greedy ids."""
        picks: list[int] = []
        model = self._model(setting.activations, setting.kv)
        with model.session(setting.threads, batch=setting.batch) as session:
            row = session.eval(list(ids))[-1]
            while len(picks) < n:
                picks.append(int(row.argmax()))
                if len(picks) == n or (stop and self.is_end(picks[-1])):
                    break
                row = session.eval(picks[-1:])[-1]
        return picks

    def seconds(self, before: int, count: int, setting: Setting, *, together: bool) -> float:
        """Timed around the calls of a session that is kept for the setting."""
        if setting not in self._benches:
            model = self._model(setting.activations, setting.kv)
            self._benches[setting] = Bench(model, threads=setting.threads, batch=setting.batch)
        bench = self._benches[setting]
        return bench.prompt(count) if together else bench.decode(count, before)

    def start_command(self, setting: Setting, prompt: str, folder: Path | None) -> list[str]:
        """The installed command's own code, in the Python that runs this."""
        config = RuntimeConfig(setting.activations, setting.kv, self.context_tokens)
        path = self.path if folder is None else beside_sidecar(self.header, config, folder)
        return run_command(path, config, setting.threads or usable_cpus(), prompt)

    def serve_command(self, setting: Setting) -> list[str]:
        """``gaugeblock serve``, in the Python that runs this."""
        config = RuntimeConfig(setting.activations, setting.kv, self.context_tokens)
        return serve_command(self.path, config, setting.threads or usable_cpus())

    def close(self) -> None:
        """Close the file and every model made from it."""
        for bench in self._benches.values():
            bench.close()
        self._benches.clear()
        for model in self._models.values():
            model.close()
        self._models.clear()
        if self._header is not None:
            self._header.close()
            self._header = None

    def _any_model(self) -> Model:
        return next(iter(self._models.values()), None) or self._model("wide", "f16")

    def _model(self, activations: str, kv: str) -> Model:
        key = (activations, kv)
        if key not in self._models:
            config = RuntimeConfig(activations=activations, kv=kv, context_tokens=self.context_tokens)
            self._models[key] = Model.open(self.path, config=config, policy=Policy(force=True))
        return self._models[key]


class _Run:
    """One pass over a prompt in one setting: a session that may be interrupted and taken up again."""

    def __init__(self, model: Model, ids: Sequence[int], setting: Setting) -> None:
        self._model, self._ids, self._setting = model, ids, setting
        self._session = self._new()
        self._seq = setting.beside  # the subject is not sequence 0 when others are there

    def __enter__(self) -> _Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.close()

    def _new(self) -> Session:
        sequences = self._setting.beside + 1 + (self._setting.via == "fork")
        threads = self._setting.threads or usable_cpus()
        return self._model.session(threads, batch=self._setting.batch, sequences=sequences)

    def interrupt(self) -> None:
        """Go on as the setting says: in place, in a fork, or in another session from a snapshot."""
        if self._setting.via == "fork":
            spare = 2 * self._setting.beside + 1 - self._seq
            self._session.truncate(0, spare)
            self._session.fork(self._seq, spare)
            self._seq = spare
        elif self._setting.via == "snapshot":
            sequences = range(self._setting.beside + 1)
            states = [self._session.snapshot(seq) for seq in sequences]
            self._session.close()
            self._session = self._new()
            for seq, state in zip(sequences, states, strict=True):
                self._session.restore(state, seq)

    def evaluate(self, span: range, wanted: set[int]) -> FloatArray:
        """Rows of the wanted positions of ``span``; the others' tokens differ from the subject's."""
        entries = []
        count = len(self._ids)
        for pos in span:
            for other in range(self._setting.beside):
                token = self._ids[(7 * pos + 3 * other + 1) % count]
                entries.append(Entry(seq=other, pos=pos, token=token, want="none"))
            want: Literal["logits", "none"] = "logits" if pos in wanted else "none"
            entries.append(Entry(seq=self._seq, pos=pos, token=self._ids[pos], want=want))
        return self._session.step(entries)


# ---- The context of a check -----------------------------------------------------------------


@dataclass(frozen=True)
class Pin:
    """A reference that the manifest names; ``revision`` None: not pinned, recorded only."""

    name: str
    provider: str
    revision: str | None


@dataclass(frozen=True)
class Text:
    """A corpus or prompt set; its hash is checked when it is read."""

    path: str
    sha256: str


@dataclass(frozen=True)
class Artifact:
    """One file of the subject: where it lies, and what it must be."""

    name: str
    path: str
    sha256: str
    bytes: int


@dataclass(frozen=True)
class ReferenceUse:
    """A reference that took part, as the report lists it."""

    name: str
    provider: str
    package_version: str
    revision: str
    pinned: str | None
    cpu_features: tuple[str, ...] = ()


@dataclass(frozen=True)
class Job:
    """Everything that one check of one model needs. Plain data: it crosses to the child as JSON."""

    model: str
    check: str
    architecture: str
    artifacts: tuple[Artifact, ...]
    config: Mapping[str, JSON]  # activations, kv, context_tokens
    parameters: Mapping[str, JSON]  # with defaults filled in
    timeout_s: float
    references: Mapping[str, Pin] = field(default_factory=dict)
    texts: Mapping[str, Text] = field(default_factory=dict)
    parent: Artifact | None = None
    captures: str | None = None  # folder of offline captures
    peer: str | None = None  # program of --peer: a Python with llama-cpp-python, or a llama-bench


Opener = Callable[[str, Job], Any]


@dataclass
class Context:
    """What ``run(ctx)`` receives. Parties are guarded: see ``certify.phase``."""

    job: Job
    target: Target
    phase: Phase
    folder: Path
    open_reference: Opener
    uses: dict[str, ReferenceUse] = field(default_factory=dict)
    _open: dict[str, Any] = field(default_factory=dict)
    _evidence: dict[str, Path] = field(default_factory=dict)

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The check's parameters, defaults filled in."""
        return self.job.parameters

    @property
    def setting(self) -> Setting:
        """The configuration that a receipt binds."""
        return Setting(activations=str(self.job.config["activations"]), kv=str(self.job.config["kv"]))

    @property
    def context_tokens(self) -> int:
        """Positions that the configuration allows."""
        return cast("int", self.job.config["context_tokens"])

    def reference(self, name: str, *, instance: str = "", artifact: Artifact | None = None) -> Reference:
        """A whole engine to compare with, its revision compared with the pinned one.

        ``instance`` tells several processes of one reference apart; ``artifact`` is another file than
        the subject's (its parent).
        """
        return cast("Reference", self._reference(name, instance, artifact))

    def speed_reference(self, name: str) -> SpeedReference:
        """An opponent in speed: the program of ``--peer`` where one was named, else this reference."""
        return cast("SpeedReference", self._reference("peer" if self.job.peer else name, "speed"))

    def server_reference(self, name: str) -> ServerReference:
        """A server of the OpenAI API on the subject's file, in a process of its own."""
        return cast("ServerReference", self._reference(name, "server"))

    def tokenizer_reference(self, name: str) -> TokenizerReference:
        """A tokenizer to compare with."""
        return cast("TokenizerReference", self._reference(name))

    def _reference(self, name: str, instance: str = "", artifact: Artifact | None = None) -> Any:
        key = f"{name}/{instance}"
        if key not in self._open:
            job = self.job if artifact is None else replace(self.job, artifacts=(artifact,))
            with self.phase.enter(REFERENCE):
                inner = self.open_reference(
                    f"{name}/{instance}" if instance in ("speed", "server") else name, job
                )
            self._open[key] = inner
            features = getattr(inner, "cpu_features", ())
            self.note_reference(name, inner.provider, inner.package_version, inner.revision, features)
        return Guarded(self._open[key], self.phase, REFERENCE)

    def note_reference(
        self, name: str, provider: str, package_version: str, revision: str, cpu_features: Sequence[str] = ()
    ) -> None:
        """List a reference as used. Another revision than the pinned one fails the check."""
        pin = self.job.references.get(name)
        pinned = pin.revision if pin else None
        self.uses[name] = ReferenceUse(name, provider, package_version, revision, pinned, tuple(cpu_features))
        if pinned is not None and revision != pinned:
            detail = f"{name} is {revision}, and the manifest pins {pinned}"
            raise stop("fail", Reason.REFERENCE_REVISION, detail)

    def text(self, name: str) -> bytes:
        """A corpus or prompt set by name; other bytes than the pinned ones are an error."""
        if name not in self.job.texts:
            raise stop("skip", Reason.CORPUS_MISSING, f"no corpus is called {name!r}")
        text = self.job.texts[name]
        try:
            data = Path(text.path).read_bytes()
        except OSError as error:
            detail = f"corpus {name}: {Path(text.path).name}: {error.strerror}"
            raise stop("skip", Reason.CORPUS_MISSING, detail) from None
        actual = hashlib.sha256(data).hexdigest()
        if actual != text.sha256:
            raise stop(
                "skip", Reason.CORPUS_MISSING, f"corpus {name} has the hash {actual}, not the pinned one"
            )
        return data

    def evidence(self, name: str) -> EvidenceWriter:
        """A side file of JSON lines; the same run writes the same bytes."""
        path = self.folder / name
        self._evidence[name] = path
        return EvidenceWriter(path)

    def evidence_records(self) -> tuple[Evidence, ...]:
        """Every side file that was written, hashed."""
        records = []
        for name, path in sorted(self._evidence.items()):
            data = path.read_bytes()
            records.append(Evidence(name, hashlib.sha256(data).hexdigest(), len(data)))
        return tuple(records)

    def close(self) -> None:
        """Close the references and the target, each even where another fails to; raises the first failure."""
        failures: list[Exception] = []
        for party, thing in [*((REFERENCE, item) for item in self._open.values()), (SUBJECT, self.target)]:
            with self.phase.enter(party):
                try:
                    thing.close()
                except Exception as error:
                    failures.append(error)
        self._open.clear()
        if failures:
            raise failures[0]


class EvidenceWriter:
    """JSON lines, capped: evidence that grows without bound is a fault of the check."""

    def __init__(self, path: Path) -> None:
        self._file: IO[str] = path.open("w", encoding="utf-8", newline="\n")
        self._left = MAX_EVIDENCE_BYTES

    def write(self, record: Mapping[str, Any]) -> None:
        """Append one object. Floats are written so that they read back exactly."""
        line = json.dumps(record, ensure_ascii=True, sort_keys=True, allow_nan=False) + "\n"
        self._left -= len(line)
        if self._left < 0:
            raise stop("error", Reason.HARNESS_FAILED, f"more than {MAX_EVIDENCE_BYTES} bytes of evidence")
        self._file.write(line)

    def __enter__(self) -> EvidenceWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def collect(stream: Iterable[tuple[int, FloatArray]]) -> FloatArray:
    """Rows of a stream as one array [n, vocab]."""
    return np.stack([row for _, row in stream])


def engine_target(job: Job) -> Target:
    """Our engine on the job's first artifact."""
    return EngineTarget(job.artifacts[0].path, cast("int", job.config["context_tokens"]))


def engine_contracts() -> dict[str, str]:
    """The contract revisions of the engine in this process."""
    return dict(contracts())
