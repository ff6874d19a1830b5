"""From a manifest to jobs: files found and hashed, parameters completed, and a reason for all else.

Every declared check of every model ends up either as a job or as a result that says why it is none.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from certify import corpora, registry
from certify.manifest import CheckEntry, Manifest, ModelEntry
from certify.reasons import Reason
from certify.report import ArtifactResult
from certify.targets import Artifact, Job, Pin, Text
from certify.types import CheckResult, Outcome
from engine.errors import FetchError
from engine.fetch import Progress, SourceError, below, fetch
from engine.hashing import ChangedError, file_sha256
from engine.sources import Artifact as Source
from engine.sources import PathSource


@dataclass(frozen=True)
class Selection:
    """What ``--model`` and ``--check`` name; empty: everything."""

    models: frozenset[str] = frozenset()
    checks: frozenset[str] = frozenset()

    def model(self, model_id: str) -> bool:
        """Whether anything of this model is to run."""
        return not self.models or model_id in self.models

    def check(self, model_id: str, check_id: str) -> bool:
        """Whether this check is to run."""
        return self.model(model_id) and (not self.checks or check_id in self.checks)


@dataclass(frozen=True)
class Subject:
    """One model with what was found of its files; ``fault`` says why it cannot be measured."""

    entry: ModelEntry
    artifacts: tuple[ArtifactResult, ...] = ()
    paths: tuple[Path, ...] = ()
    fault: Reason | None = None
    detail: str = ""


@dataclass(frozen=True)
class Plan:
    """Jobs to run, and results that are known beforehand, by (model, check)."""

    subjects: tuple[Subject, ...]
    jobs: tuple[Job, ...]
    known: Mapping[tuple[str, str], CheckResult] = field(default_factory=dict)


def find_subject(entry: ModelEntry, root: Path, *, offline: bool, progress: Progress | None) -> Subject:
    """Find, fetch and hash every file of a model; never from a cache."""
    results, paths = [], []
    fault: Reason | None = None
    details = []
    for artifact in entry.artifacts:
        try:
            path = fetch(artifact, root, offline=offline, progress=progress)
            paths.append(path)
            results.append(ArtifactResult(artifact.name, artifact.sha256, artifact.sha256, artifact.bytes))
        except FetchError as error:
            actual = _actual(artifact, root)
            results.append(ArtifactResult(artifact.name, artifact.sha256, *actual))
            details.append(str(error))
            fault = Reason.ARTIFACT_MISSING if actual[0] is None else Reason.ARTIFACT_DIFFERS
    return Subject(entry, tuple(results), tuple(paths), fault, "; ".join(details))


def _actual(artifact: Source, root: Path) -> tuple[str | None, int | None]:
    """Hash and size of the other file that stands in the artifact's place, or two None."""
    names = [source.path for source in artifact.sources if isinstance(source, PathSource)]
    for name in dict.fromkeys([*names, artifact.name]):
        try:
            fd = os.open(below(root, name), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except (OSError, SourceError):
            continue
        try:
            return file_sha256(fd), os.fstat(fd).st_size
        except (OSError, ChangedError):
            continue
        finally:
            os.close(fd)
    return None, None


def make(
    manifest: Manifest,
    root: Path,
    selection: Selection,
    *,
    offline: bool = False,
    progress: Progress | None = None,
    checks: str = registry.PACKAGE,
    peer: str | None = None,
) -> Plan:
    """Find every selected file, then order the jobs as the manifest does."""
    subjects = []
    for entry in manifest.models:
        if selection.model(entry.id):
            subjects.append(find_subject(entry, root, offline=offline, progress=progress))
        else:
            absent = tuple(ArtifactResult(item.name, item.sha256, None, None) for item in entry.artifacts)
            subjects.append(Subject(entry, absent))
    texts = corpora.texts(manifest)
    jobs: list[Job] = []
    known: dict[tuple[str, str], CheckResult] = {}
    for subject in subjects:
        for declared in subject.entry.checks:
            check = registry.get(declared.id, checks)
            job = replace(_job(manifest, subject, declared, check, texts, subjects), peer=peer)
            outcome = _preset(subject, declared, selection)
            if outcome is None:
                jobs.append(job)
            else:
                parameters = dict(job.parameters)
                result = CheckResult(check.id, check.version, check.requirement, outcome, parameters, 0.0)
                known[subject.entry.id, check.id] = result
    return Plan(tuple(subjects), tuple(jobs), known)


def _preset(subject: Subject, declared: CheckEntry, selection: Selection) -> Outcome | None:
    """The outcome of a check that cannot or shall not run."""
    if not selection.check(subject.entry.id, declared.id):
        return Outcome("skip", Reason.NOT_SELECTED, "left out by --model or --check")
    if subject.fault is None:
        return None
    if subject.fault == Reason.ARTIFACT_DIFFERS and declared.id == "load":
        return Outcome("fail", subject.fault, subject.detail)
    return Outcome("skip", subject.fault, subject.detail)


def _job(
    manifest: Manifest,
    subject: Subject,
    declared: CheckEntry,
    check: registry.Check,
    texts: Mapping[str, Text],
    subjects: Collection[Subject],
) -> Job:
    entry = subject.entry
    return Job(
        model=entry.id,
        check=declared.id,
        architecture=entry.architecture,
        artifacts=_artifacts(subject),
        config=asdict(entry.config),
        parameters=check.with_defaults(declared.parameters),
        timeout_s=declared.timeout_s,
        references={
            pin.name: Pin(pin.name, pin.provider, pin.revision) for pin in manifest.references.values()
        },
        texts=texts,
        parent=_parent(entry, subjects),
        captures=corpora.captures(),
    )


def _artifacts(subject: Subject) -> tuple[Artifact, ...]:
    if subject.fault is not None or not subject.paths:
        return ()
    return tuple(
        Artifact(item.name, str(path.absolute()), item.sha256, item.bytes)
        for item, path in zip(subject.entry.artifacts, subject.paths, strict=True)
    )


def _parent(entry: ModelEntry, subjects: Collection[Subject]) -> Artifact | None:
    """The parent's file, where the parent is a model of this manifest whose file was found."""
    for subject in subjects:
        files = _artifacts(subject)
        if files and files[0].sha256 == entry.derivation.parent_sha256:
            return files[0]
    return None
