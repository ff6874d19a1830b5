"""Commands about records: validate, show, diff, envelope, replay, schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from certify import console, diff, envelope, manifest, report, schemas
from certify.reasons import CertifyExit
from certify.registry import RegistryError
from engine.errors import EngineError, ModelError
from engine.text import plural, printable

PATH = click.Path(path_type=Path)
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")


def _read_report(path: Path) -> dict[str, Any]:
    try:
        return report.read(path)
    except report.ReportError as error:
        console.fail(f"{error}. `certify schema report` prints the format", CertifyExit.USAGE)


@click.command()
@click.argument("paths", metavar="MANIFEST...", type=PATH, nargs=-1, required=True)
@json_option
def validate(paths: tuple[Path, ...], as_json: bool) -> None:
    """Check manifests without running anything. Exit 0, or 2 where one is not valid."""
    try:
        found = [_validated(path, as_json) for path in paths]
    except RegistryError as error:
        console.fail(str(error), CertifyExit.HARNESS)
    valid = all(item["valid"] for item in found)
    if as_json and len(found) == 1:
        console.emit({"schema": "gaugeblock.validate/1", **found[0]})
    elif as_json:
        manifests = [{"path": str(path), **item} for path, item in zip(paths, found, strict=True)]
        console.emit({"schema": "gaugeblock.validate_all/1", "valid": valid, "manifests": manifests})
    if not valid:
        raise SystemExit(int(CertifyExit.USAGE))


def _validated(path: Path, as_json: bool) -> dict[str, Any]:
    """Check one manifest, and say what it holds or, on stderr, every problem."""
    try:
        found = manifest.load(path)
    except manifest.ManifestError as error:
        for line in str(error).splitlines():
            console.log(line, level="error")
        return {"valid": False, "problems": list(error.problems)}
    models, checks = len(found.models), sum(len(model.checks) for model in found.models)
    if not as_json:
        counts = f"{plural(models, 'model')}, {plural(checks, 'check')}"
        console.say(f"{printable(path)}: valid: {counts}, sha256 {found.sha256}")
    return {
        "valid": True,
        "problems": [],
        "name": found.name,
        "sha256": found.sha256,
        "models": [model.id for model in found.models],
        "checks": checks,
    }


@click.command()
@click.argument("path", metavar="REPORT", type=PATH)
@click.option("--model", "only", metavar="ID", help="Only this model.")
@json_option
def show(path: Path, only: str | None, as_json: bool) -> None:
    """Print a report for people."""
    document = _read_report(path)
    models = [model for model in document["body"]["models"] if only in (None, model["id"])]
    if not models:
        known = ", ".join(printable(model["id"]) for model in document["body"]["models"])
        console.fail(f"the report has no model '{printable(only)}'; it has {known}", CertifyExit.USAGE)
    if as_json:
        console.emit(document)
        return
    for line in render(document, models):
        console.say(line)


def render(document: Mapping[str, Any], models: Sequence[Mapping[str, Any]] | None = None) -> list[str]:
    """A report as lines for a terminal, foreign text escaped."""
    body, run = document["body"], document["run"]
    engine = body["engine"]
    contracts = ", ".join(
        f"{printable(name)} {printable(value)}" for name, value in engine["contracts"].items()
    )
    lines = [] if document["complete"] else ["NOT COMPLETE: a declared check may have no outcome here"]
    lines += [
        f"{printable(body['manifest']['name'])}: gaugeblock {printable(engine['version'])} ({contracts}), "
        f"kernels {printable(run['kernel_set'])}"
    ]
    for item in body["references"]:
        pin = "" if item["pinned"] in (None, item["revision"]) else f", pinned is {printable(item['pinned'])}"
        lines.append(f"reference {printable(item['name'])}: {printable(item['revision'])}{pin}")
    for model in body["models"] if models is None else models:
        lines += ["", *_render_model(model, run)]
    summary = ", ".join(f"{count} {name}" for name, count in body["summary"].items() if count)
    return [*lines, "", f"{summary}; exit {body['exit_code']}; body_sha256 {document['body_sha256']}"]


def _render_model(model: Mapping[str, Any], run: Mapping[str, Any]) -> list[str]:
    config = model["config"]
    lines = [
        f"{printable(model['id'])}: {console.coloured(model['verdict'])} "
        f"(rule {printable(model['verdict_rule'])}; activations {printable(config['activations'])}, "
        f"kv {printable(config['kv'])}, up to {config['context_tokens']} tokens)"
    ]
    for item in model["artifacts"]:
        actual = item["actual_sha256"]
        state = "as pinned" if actual == item["expected_sha256"] else f"found {actual or 'nothing'}"
        lines.append(f"  {printable(item['name'])}: sha256 {item['expected_sha256']}, {state}")
    for check in model["checks"]:
        lines += _render_check(check, run.get("details", {}).get(f"{model['id']}/{check['id']}"))
    for waiver in model.get("waivers", ()):
        if waiver["state"] != "applied":
            lines.append(
                f"  waiver of {printable(waiver['check'])} is {waiver['state']} "
                f"(until {printable(waiver['until'])}, owner {printable(waiver['owner'])})"
            )
    return lines


def _render_check(check: Mapping[str, Any], detail: str | None) -> list[str]:
    waived = check["outcome"] == "fail" and check["waiver"] is not None
    word = console.coloured("waived" if waived else check["outcome"], width=7)
    figures = ", ".join(_figure(check, name) for name in check["measurements"])
    reason = f" [{printable(check['reason'])}]" if check["reason"] else ""
    lines = [f"  {word} {printable(check['id'])}{reason}" + (f": {figures}" if figures else "")]
    if check["outcome"] in ("fail", "error"):
        lines.append(f"          required: {printable(check['requirement'], None)}")
    if check["outcome"] != "pass" and detail:
        lines.append(f"          {printable(detail, 1000)}")
    if waived:
        lines.append(
            f"          waived until {printable(check['waiver']['until'])} by "
            f"{printable(check['waiver']['owner'])}: {printable(check['waiver']['reason'])}"
        )
    counts = _variant_counts(check["variants"])
    return [*lines, f"          variants: {counts}"] if counts else lines


def _variant_counts(variants: Sequence[Mapping[str, Any]]) -> str:
    """Variants that passed as a number; the others by name, since they are not a pass."""
    passed = sum(item["outcome"] == "pass" for item in variants)
    others = [
        f"{printable(item['name'])} {item['outcome']} [{printable(item['reason'])}]"
        for item in variants
        if item["outcome"] != "pass"
    ]
    return ", ".join(([f"{passed} pass"] if passed else []) + others)


def _figure(check: Mapping[str, Any], name: str) -> str:
    value = check["measurements"][name]
    shown = (
        "not measured"
        if value is None
        else f"{value:.6g}"
        if isinstance(value, float)
        else printable(value, 80)
    )
    bars = [
        f" ({side} {check['thresholds'][f'{name}_{side}']:.6g})"
        for side in ("min", "max")
        if f"{name}_{side}" in check["thresholds"]
    ]
    return f"{printable(name)} {shown}{''.join(bars)}"


@click.command("diff")
@click.argument("first", metavar="A", type=PATH)
@click.argument("second", metavar="B", type=PATH)
@json_option
def diff_command(first: Path, second: Path, as_json: bool) -> None:
    """Compare two reports. Exit 0 where their bodies are equal, 1 where not."""
    a, b = _read_report(first), _read_report(second)
    found = diff.changes(a, b)
    if as_json:
        console.emit(
            {
                "schema": "gaugeblock.diff/1",
                "equal": not found,
                "a_body_sha256": a["body_sha256"],
                "b_body_sha256": b["body_sha256"],
                "changes": [vars(change) for change in found],
            }
        )
    else:
        for change in found:
            mark = "worse  " if change.worse else "       "
            console.say(f"{mark}{printable(change.path)}: {_difference(change)}")
        worse = sum(change.worse for change in found)
        console.say(f"{plural(len(found), 'change')}, {worse} of them worse" if found else "equal")
    raise SystemExit(int(CertifyExit.FAILED if found else CertifyExit.DONE))


def _difference(change: diff.Change) -> str:
    """Both sides of a change; what a report does not have is absent, which is not null."""
    if change.item:
        return f"only in {(change.only or '').upper()}"
    sides = (("a", change.a), ("b", change.b))
    shown = [
        "absent" if change.only not in (None, side) else "null" if value is None else printable(value, 80)
        for side, value in sides
    ]
    return " -> ".join(shown)


@click.command("envelope")
@click.argument("path", metavar="REPORT", type=PATH)
@click.argument("files", metavar="[MODEL_FILE]...", type=PATH, nargs=-1)
@click.option("--models-root", type=PATH, help="Take the report's files from this folder.")
@click.option("--model", "model_id", metavar="ID", help="Which model, where several have the same bytes.")
@click.option("--out", type=PATH, help="Write the sidecars into this folder instead of beside the files.")
@click.option("--force", is_flag=True, help="Replace existing sidecars.")
@json_option
def envelope_command(
    path: Path,
    files: tuple[Path, ...],
    models_root: Path | None,
    model_id: str | None,
    out: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Write the sidecars of model files that REPORT measured, found by hash."""
    document = _read_report(path)
    chosen = [*files, *_files_of(document, models_root, model_id)]
    if not chosen:
        console.fail("no file: name model files, or give --models-root", CertifyExit.USAGE)
    try:
        written = envelope.write(document, chosen, out=out, model_id=model_id, force=force)
    except envelope.EnvelopeError as error:
        console.fail(str(error), CertifyExit.FAILED)
    if as_json:
        console.emit(
            {
                "schema": "gaugeblock.envelopes/1",
                "written": [
                    {
                        "model": item.model_id,
                        "sidecar": str(item.sidecar),
                        "sha256": item.sha256,
                        "verdict": item.verdict,
                    }
                    for item in written
                ],
            }
        )
    for item in written:
        if item.warning:
            console.log(item.warning, level="warning")
        if as_json:
            continue
        verdict = console.coloured(item.verdict)
        console.say(f"{printable(item.sidecar, None)}: {verdict}, sha256 {item.sha256}")


def _files_of(document: Mapping[str, Any], root: Path | None, model_id: str | None) -> list[Path]:
    """The single-file models of a report below a folder, by the names in the manifest."""
    if root is None:
        return []
    return [
        root / model["artifacts"][0]["name"]
        for model in document["body"]["models"]
        if model_id in (None, model["id"]) and "/" not in model["artifacts"][0]["name"]
    ]


@click.command("replay")
@click.argument("sidecar", metavar="ENVELOPE", type=PATH)
@click.argument("model", metavar="MODEL", type=PATH)
@click.option("-t", "--threads", type=click.IntRange(1, 256), help="Threads; the bits do not depend on it.")
@json_option
def replay_command(sidecar: Path, model: Path, threads: int | None, as_json: bool) -> None:
    """Recompute a receipt's logits digest here. Exit 0 where it holds, 1 where not."""
    from certify.replay import replay

    try:
        result = replay(sidecar, model, threads=threads)
    except (envelope.EnvelopeError, ModelError) as error:
        console.fail(str(error), CertifyExit.FAILED)
    except EngineError as error:
        console.fail(f"{printable(model)}: {error}", CertifyExit.FAILED)
    if as_json:
        console.emit(result.document())
    else:
        console.say(f"{'holds' if result.holds else 'does not hold'}: {result.detail}")
        computed = f"{result.computed} (kernels {result.kernel_set})" if result.computed else "not computed"
        console.say(f"  stated    {result.stated or 'no digest'}")
        console.say(f"  computed  {computed}")
        console.say(f"  verdict of the receipt: {console.coloured(result.verdict)}")
    raise SystemExit(int(CertifyExit.DONE if result.holds else CertifyExit.FAILED))


@click.command()
@click.argument("name", type=click.Choice(schemas.NAMES))
def schema(name: str) -> None:
    """Print a published JSON Schema."""
    console.say(schemas.text(name).rstrip("\n"))


COMMANDS: tuple[click.Command, ...] = (
    validate,
    show,
    diff_command,
    envelope_command,
    replay_command,
    schema,
)
