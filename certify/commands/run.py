"""Commands that measure: run, list, init."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from types import FrameType
from typing import Any

import click

from certify import console, corpora, envelope, initial, manifest, plan, provenance, registry, report
from certify.commands.records import render
from certify.journal import JobResult, Journal, JournalError
from certify.manifest import Manifest
from certify.plan import Plan, Selection
from certify.progress import Reporter
from certify.reasons import CertifyExit, Reason
from certify.report import ModelResult, ReferenceRecord, ReportError
from certify.runner import EvidenceChanged, Runner
from certify.types import CheckResult
from engine.streams import replaceable
from engine.text import printable

PATH = click.Path(path_type=Path)
FOLDER = click.Path(path_type=Path, file_okay=False)
DEFAULT_OUT = Path("out")


@dataclass(frozen=True)
class Options:
    """The command line of ``certify run``."""

    path: Path
    models: tuple[str, ...]
    checks: tuple[str, ...]
    models_root: Path
    out: Path | None
    force: bool
    envelopes: str | None
    resume: bool
    allow_incomplete: bool
    offline: bool
    dry_run: bool
    fail_fast: bool
    quiet: bool
    as_json: bool
    peer: Path | None


@click.command()
@click.argument("path", metavar="MANIFEST", type=PATH)
@click.option("--model", "models", multiple=True, metavar="ID", help="Only this model; repeatable.")
@click.option("--check", "checks", multiple=True, metavar="ID", help="Only this check; repeatable.")
@click.option(
    "--models-root",
    type=FOLDER,
    default=Path("models"),
    show_default=True,
    help="Where model files are, and are put.",
)
@click.option("--out", type=PATH, help="The report; default: out/NAME.json. Side files: NAME.run/.")
@click.option("--force", is_flag=True, help="Replace an earlier run and its sidecars.")
@click.option(
    "--envelopes",
    is_flag=False,
    flag_value="",
    metavar="[DIR]",
    help="Also write the sidecars, beside the model files or into DIR.",
)
@click.option("--resume", is_flag=True, help="Go on with an interrupted run; no finished check is repeated.")
@click.option("--allow-incomplete", is_flag=True, help="Exit 0 although a declared check did not run.")
@click.option("--offline", is_flag=True, help="Never use the network.")
@click.option(
    "--peer",
    type=PATH,
    metavar="PATH",
    help="Opponent of the performance check: a Python that has llama-cpp-python, or a llama-bench.",
)
@click.option("--dry-run", is_flag=True, help="Show what would run, and run nothing.")
@click.option("--fail-fast", is_flag=True, help="Stop after the first check that fails.")
@click.option("--quiet", is_flag=True, help="Log only what does not pass.")
@click.option("--json", "as_json", is_flag=True, help="The report on stdout instead of the summary.")
@click.option("--log-format", type=click.Choice(console.LOG_FORMATS), help="Format of logs on stderr.")
def run(path: Path, log_format: str | None, **given: Any) -> None:
    """Measure the models of a manifest and write a report. Exit codes: docs/reasons.md."""
    if log_format is not None:
        click.get_current_context().find_root().params["log_format"] = log_format
    options = Options(path=path, **given)
    loaded = _load(options.path)
    selection = _selection(loaded, options)
    if options.dry_run:
        _show_plan(loaded, selection, options.models_root, options.as_json)
        return
    with _interruptible():
        try:
            code = _run(loaded, selection, options)
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(frame.filename).name}:{frame.lineno}"
            console.fail(f"harness error: {type(error).__name__}: {error} ({where})", CertifyExit.HARNESS)
    raise SystemExit(int(code))


def _load(path: Path) -> Manifest:
    try:
        registry.load()
        return manifest.load(path)
    except manifest.ManifestError as error:
        console.fail(str(error), CertifyExit.USAGE)
    except registry.RegistryError as error:
        console.fail(str(error), CertifyExit.HARNESS)


def _selection(loaded: Manifest, options: Options) -> Selection:
    """Refuse names that the manifest does not have: a typing error would leave everything out."""
    models = [entry.id for entry in loaded.models]
    checks = sorted({check.id for entry in loaded.models for check in entry.checks})
    for what, wanted, known in (("model", options.models, models), ("check", options.checks, checks)):
        for name in wanted:
            if name not in known:
                text = f"the manifest has no {what} '{printable(name)}'; it has {', '.join(known)}"
                console.fail(text, CertifyExit.USAGE)
    return Selection(frozenset(options.models), frozenset(options.checks))


@contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM ends a run as Ctrl-C does: the check at work is killed, the journal stays."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except KeyboardInterrupt:
        console.log("interrupted; go on with --resume", level="warning")
        raise SystemExit(int(CertifyExit.INTERRUPTED)) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def _run(loaded: Manifest, selection: Selection, options: Options) -> CertifyExit:
    started = provenance.now()
    out = DEFAULT_OUT / f"{loaded.name}.json" if options.out is None else options.out
    if not out.name:
        console.fail(f"--out '{printable(out)}' names no file", CertifyExit.USAGE)
    folder = out.with_suffix(".run")
    _make_room(out, folder, options)
    with Reporter(sum(len(entry.checks) for entry in loaded.models), quiet=options.quiet) as reporter:
        made = plan.make(
            loaded,
            options.models_root,
            selection,
            offline=options.offline,
            progress=reporter.fetching,
            peer=_peer(options),
        )
        _make_room_for_sidecars(made.subjects, options)
        results = _measure(loaded, made, selection, folder, reporter, options)
    document = report.build(
        loaded,
        [_model_result(subject, made, results) for subject in made.subjects],
        engine=provenance.engine_record(),
        references=references(results),
        run=provenance.run_record(started, resumed=options.resume),
        today=date.fromisoformat(started[:10]),
        allow_incomplete=options.allow_incomplete,
    )
    _write(document, out, options)
    sidecars, lost = _sidecars(document, made, options)
    if options.as_json:
        console.emit(document)
    else:
        for line in [*render(document), *sidecars, f"report: {printable(out)}"]:
            console.say(line)
    return CertifyExit.HARNESS if lost else CertifyExit(document["body"]["exit_code"])


def _make_room(out: Path, folder: Path, options: Options) -> None:
    """An earlier run is neither overwritten nor mixed with this one without being asked to.

    Whatever would keep the report from being written is refused here, before anything is measured.
    """
    if options.resume and options.force:
        console.fail("--resume goes on with a run, --force replaces it: give one of them", CertifyExit.USAGE)
    try:
        if not replaceable(out):
            console.fail(f"--out {printable(out)} is not a regular file", CertifyExit.USAGE)
        if not (options.force or options.resume):
            for path in (out, folder / "journal.jsonl"):
                if path.exists():
                    text = f"{printable(path)} exists: --resume goes on with that run, --force replaces it"
                    console.fail(text, CertifyExit.USAGE)
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        text = f"--out {printable(out)}: cannot be written: {error.strerror}"
        console.fail(text, CertifyExit.HARNESS)


def _make_room_for_sidecars(subjects: Sequence[plan.Subject], options: Options) -> None:
    """A sidecar that may not be replaced is refused before the work, not after it."""
    if options.envelopes is None:
        return
    try:
        if options.envelopes:
            Path(options.envelopes).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        text = f"--envelopes {printable(options.envelopes)}: cannot be written: {error.strerror}"
        console.fail(text, CertifyExit.HARNESS)
    if options.force or options.resume:
        return
    for path in (path for subject in subjects for path in subject.paths):
        sidecar = envelope.sidecar_of(path, _sidecar_folder(options))
        if os.path.lexists(sidecar):
            text = f"{printable(sidecar)} exists: --force replaces it, or choose --envelopes DIR"
            console.fail(text, CertifyExit.USAGE)


def _sidecar_folder(options: Options) -> Path | None:
    return Path(options.envelopes) if options.envelopes else None


def journal_key(
    loaded: Manifest, made: Plan, selection: Selection, engine: report.EngineRecord
) -> dict[str, Any]:
    """Everything that results depend on; a journal with another key is refused."""
    found = {
        f"artifacts of {subject.entry.id}": [asdict(item) for item in subject.artifacts]
        for subject in made.subjects
    }
    return {
        "manifest": loaded.sha256,
        "engine build": engine.library_sha256,
        "engine commit": [engine.commit, engine.dirty],
        "checks": {check.id: check.version for check in registry.load().values()},
        "built-in corpora": dict(sorted(corpora.BUILT_IN.items())),
        "captures": corpora.capture_digests(),
        "reference packages": provenance.reference_packages(),
        "selection": [sorted(selection.models), sorted(selection.checks)],
        **found,
    }


def _peer(options: Options) -> str | None:
    """Absolute, and never resolved: a virtual environment's Python is a link that must stay one."""
    return None if options.peer is None else str(options.peer.absolute())


def _measure(
    loaded: Manifest,
    made: Plan,
    selection: Selection,
    folder: Path,
    reporter: Reporter,
    options: Options,
) -> list[JobResult]:
    key = journal_key(loaded, made, selection, provenance.engine_record()) | {"peer": _peer(options)}
    path = folder / "journal.jsonl"
    known = [JobResult(model, result) for (model, _), result in made.known.items()]
    for item in known:
        if item.result.outcome.reason != Reason.NOT_SELECTED:
            reporter.end(item, False)
    try:
        opened = Journal.resume(path, key) if options.resume else Journal.create(path, key)
        with opened as journal:
            if options.force:  # only now: the lock says that no run is at work there
                for name in ("evidence", "logs"):
                    shutil.rmtree(folder / name, ignore_errors=True)
            runner = Runner(folder)
            return known + runner.run_all(
                made.jobs,
                journal,
                fail_fast=options.fail_fast,
                on_start=reporter.start,
                on_end=reporter.end,
            )
    except (JournalError, EvidenceChanged) as error:
        console.fail(str(error), CertifyExit.USAGE)
    except OSError as error:
        console.fail(f"{printable(folder)}: {error.strerror or error}", CertifyExit.HARNESS)


def _model_result(subject: plan.Subject, made: Plan, results: Sequence[JobResult]) -> ModelResult:
    own: list[CheckResult] = [item.result for item in results if item.model == subject.entry.id]
    return ModelResult(subject.entry, subject.artifacts, tuple(own))


def references(results: Sequence[JobResult]) -> list[ReferenceRecord]:
    """Every reference that took part, each once, as it answered."""
    uses = dict.fromkeys(use for item in results for use in item.references)
    ordered = sorted(uses, key=lambda use: (use.name, use.provider, use.revision))
    return [ReferenceRecord(**asdict(use)) for use in ordered]


def _write(document: Mapping[str, Any], out: Path, options: Options) -> None:
    try:
        report.write(document, out, force=options.force or options.resume)
    except (ReportError, OSError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        text = f"the report cannot be written to {printable(out)}: {why}; --resume goes on from the journal"
        console.fail(text, CertifyExit.HARNESS)


def _sidecars(document: Mapping[str, Any], made: Plan, options: Options) -> tuple[list[str], bool]:
    """Write what ``--envelopes`` asks for; a model that has no receipt says why.

    Returns lines for people, and whether one that there is could not be written.
    """
    lines: list[str] = []
    lost = False
    for subject in made.subjects if options.envelopes is not None else ():
        if subject.fault is not None or not subject.paths:
            continue
        try:
            written = envelope.write(
                document,
                subject.paths,
                out=_sidecar_folder(options),
                model_id=subject.entry.id,
                force=options.force or options.resume,
            )
        except envelope.EnvelopeError as error:
            lost = lost or isinstance(error, envelope.NotWritten)
            console.log(f"no sidecar: {error}", level="error" if lost else "warning")
            continue
        for item in written:
            lines.append(f"sidecar: {printable(item.sidecar)} ({item.verdict})")
            if item.warning:
                console.log(item.warning, level="warning")
    return lines, lost


def _show_plan(loaded: Manifest, selection: Selection, root: Path, as_json: bool) -> None:
    models: list[dict[str, Any]] = []
    for entry in loaded.models:
        checks = [
            {
                "id": check.id,
                "selected": selection.check(entry.id, check.id),
                "timeout_s": check.timeout_s,
                "parameters": registry.get(check.id).with_defaults(check.parameters),
            }
            for check in entry.checks
        ]
        files = [
            {"name": item.name, "sha256": item.sha256, "present": (root / item.name).is_file()}
            for item in entry.artifacts
        ]
        models.append({"id": entry.id, "artifacts": files, "checks": checks})
    document = {"schema": "gaugeblock.plan/1", "manifest": loaded.name, "models": models}
    if as_json:
        console.emit(document)
        return
    for model in models:
        console.say(f"{model['id']}:")
        for file in model["artifacts"]:
            console.say(
                f"  file {printable(file['name'])}: {'there' if file['present'] else 'to be fetched'}"
            )
        for check in model["checks"]:
            state = "run" if check["selected"] else "not selected"
            console.say(f"  {check['id']:18} {state}, at most {check['timeout_s']:g} s")


@click.command("list")
@click.argument("path", metavar="[MANIFEST]", type=PATH, required=False)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def list_(path: Path | None, as_json: bool) -> None:
    """List the checks of this harness, or the models and checks of a manifest."""
    if path is not None:
        _show_plan(_load(path), Selection(), Path("models"), as_json)
        return
    checks = registry.load().values()
    if as_json:
        items = [
            {
                "id": item.id,
                "version": item.version,
                "requirement": item.requirement,
                "parameters": item.parameters,
            }
            for item in checks
        ]
        console.emit({"schema": "gaugeblock.checks/1", "checks": items})
        return
    for item in checks:
        console.say(f"{item.id} (version {item.version}): {item.requirement}")
        for name, rule in item.parameters["properties"].items():
            default = f" = {rule['default']}" if "default" in rule else ""
            console.say(f"    {name}{default}")


@click.command()
@click.argument("files", metavar="GGUF...", nargs=-1, required=True, type=PATH)
@click.option("--name", help="Name of the manifest. [default: that of --out, or models]")
@click.option("--out", type=PATH, help="Write the manifest here instead of to stdout.")
@click.option("--force", is_flag=True, help="Replace an existing file.")
def init(files: tuple[Path, ...], name: str | None, out: Path | None, force: bool) -> None:
    """Write a manifest that pins GGUF files, with every check declared."""
    if name is None:  # a report is named after its manifest: my.yaml gives out/my.json
        name = initial.name_from(out.stem if out is not None else "") or "models"
    try:
        text = initial.manifest_text(files, name)
    except initial.InitialError as error:
        console.fail(str(error), CertifyExit.USAGE)
    if out is None:
        console.say(text.rstrip("\n"))
        return
    if out.exists() and not force:
        console.fail(f"{printable(out)} exists; add --force to replace it", CertifyExit.USAGE)
    if not replaceable(out):
        console.fail(f"--out {printable(out)} is not a regular file", CertifyExit.USAGE)
    temporary = out.with_name(f".{out.name}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(out)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        console.fail(f"{printable(out)}: cannot be written: {error.strerror}", CertifyExit.FAILED)
    console.log(f"{printable(out)}: manifest '{printable(name)}' of {len(files)} file(s)")


COMMANDS = (run, list_, init)
