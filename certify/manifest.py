"""Read a manifest: strict YAML or JSON, the published schema, each check's own parameters, sense.

Every error names file, line and key, and suggests the key that was probably meant. The result is
frozen data with defaults filled in; ``sha256`` is the digest of the canonical document, so a
``.yaml`` and a ``.json`` of the same content have the same one.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from certify import schemas, yamldoc
from certify.types import JSON
from engine import canonical
from engine.sources import Artifact, ConcatSource, PathSource, path_fault
from engine.text import printable

SCHEMA = "gaugeblock.manifest/1"
DEFAULT_TIMEOUT_S = 3600.0
_SHA256 = re.compile(r"[0-9a-f]{64}")


class ManifestError(Exception):
    """The manifest is refused. ``problems`` are printable lines of the form ``file:line: text``."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


@dataclass(frozen=True)
class ReferencePin:
    """A reference implementation and the revision that must answer."""

    name: str
    provider: str
    revision: str


@dataclass(frozen=True)
class Corpus:
    """A text beside the manifest (or of the fixtures), pinned by its hash."""

    name: str
    file: str
    sha256: str


@dataclass(frozen=True)
class Config:
    """What a receipt binds of the runtime; the same fields as ``engine.RuntimeConfig``."""

    activations: str = "wide"
    kv: str = "f16"
    context_tokens: int = 2048


@dataclass(frozen=True)
class Derivation:
    """Where a model file came from; the parent's hash is filled in from the manifest."""

    parent: str | None = None
    parent_sha256: str | None = None
    method: str | None = None


@dataclass(frozen=True)
class CheckEntry:
    """A declared check: its parameters as written (without ``timeout_s``) and its time limit."""

    id: str
    parameters: Mapping[str, JSON]
    timeout_s: float


@dataclass(frozen=True)
class Waiver:
    """A known failure: covers the check, or its one named measurement, until the end of a day (UTC)."""

    check: str
    reason: str
    owner: str
    until: date
    measurement: str | None = None
    issue: str | None = None

    def expired(self, today: date) -> bool:
        """Whether the waiver no longer covers anything on ``today``."""
        return today > self.until


@dataclass(frozen=True)
class ModelEntry:
    """One model of a manifest."""

    id: str
    architecture: str
    artifacts: tuple[Artifact, ...]
    checks: tuple[CheckEntry, ...]
    config: Config = Config()
    license: str | None = None
    notes: str | None = None
    derivation: Derivation = Derivation()
    waivers: tuple[Waiver, ...] = ()

    def check(self, check_id: str) -> CheckEntry | None:
        """The declaration of one check, or None."""
        return next((item for item in self.checks if item.id == check_id), None)


@dataclass(frozen=True)
class Manifest:
    """A validated manifest. ``document`` is the plain data; ``directory`` holds corpora beside it."""

    name: str
    sha256: str
    models: tuple[ModelEntry, ...]
    timeout_s: float = DEFAULT_TIMEOUT_S
    description: str | None = None
    references: Mapping[str, ReferencePin] = field(default_factory=dict)
    corpora: Mapping[str, Corpus] = field(default_factory=dict)
    document: Mapping[str, Any] = field(default_factory=dict)
    directory: Path = Path()

    def model(self, model_id: str) -> ModelEntry | None:
        """The entry of one model, or None."""
        return next((item for item in self.models if item.id == model_id), None)


Problem = tuple[yamldoc.Path, str]


def known_checks() -> dict[str, Mapping[str, Any]]:
    """Id to PARAMETERS schema of every check of this harness; a broken check file raises RegistryError."""
    from certify import registry  # imports every check, and through them the engine

    return {check_id: check.parameters for check_id, check in registry.load().items()}


def load(path: Path, *, parameters: Mapping[str, Mapping[str, Any]] | None = None) -> Manifest:
    """Read and validate the manifest at ``path``; raises ManifestError.

    ``parameters`` maps check ids to parameter schemas, and defaults to the checks of this harness.
    """
    try:
        with path.open("rb") as stream:
            data = stream.read(yamldoc.MAX_BYTES + 1)
    except OSError as error:
        raise ManifestError([f"{printable(path)}: cannot be read: {error.strerror}"]) from None
    return parse(data, name=str(path), directory=path.parent, parameters=parameters)


def parse(
    data: bytes,
    *,
    name: str = "manifest.yaml",
    directory: Path = Path(),
    parameters: Mapping[str, Mapping[str, Any]] | None = None,
) -> Manifest:
    """Validate the bytes of a manifest; JSON where ``name`` ends in ``.json``. Raises ManifestError."""
    try:
        document = yamldoc.read(data, json=name.endswith(".json"))
        value = _whole(document.value)
    except yamldoc.DocumentError as error:
        where = name if error.line is None else f"{name}:{error.line}"
        raise ManifestError([f"{printable(where, None)}: {printable(error)}"]) from None
    checks = known_checks() if parameters is None else parameters
    problems = list(_problems(value, checks))
    if problems:
        located = sorted({(document.line(path) or 0, _sentence(path, text)) for path, text in problems})
        raise ManifestError([f"{printable(name, None)}:{line}: {text}" for line, text in located])
    return _build(value, directory)


def _whole(value: Any) -> Any:
    """Write ``64.0`` as 64: one number to JSON Schema and in the canonical form, two to Python."""
    if isinstance(value, dict):
        return {key: _whole(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _sentence(path: yamldoc.Path, text: str) -> str:
    return f"{printable(dotted(path))}: {printable(text, 400)}" if path else printable(text, 400)


def dotted(path: Sequence[str | int]) -> str:
    """A path as people write it: ``models[0].checks.load``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


# ---- Validation ------------------------------------------------------------------------------


def _problems(document: Any, checks: Mapping[str, Mapping[str, Any]]) -> Iterator[Problem]:
    found = [problem for error in schemas.errors("manifest", document) for problem in explain(error)]
    yield from found
    if found:
        return  # what follows relies on the shape
    for check in (_unique_models, _artifact_sense, _waiver_sense, _parent_sense):
        yield from check(document)
    yield from _parameter_problems(document, checks)


def explain(error: Any, prefix: Sequence[str | int] = ()) -> Iterator[Problem]:
    """Turn one schema violation into problems for people."""
    path = (*prefix, *error.absolute_path)
    if error.validator == "additionalProperties" and isinstance(error.instance, Mapping):
        known = list(error.schema.get("properties", {}))
        for key in error.instance:
            if key not in known:
                yield (*path, key), f"unknown key '{key}'{_suggest(key, known)}"
    elif error.validator == "required":
        absent = [key for key in error.validator_value if key not in error.instance]
        yield path, f"lacks the required key '{absent[0]}'"
    elif error.validator == "oneOf" and isinstance(error.instance, Mapping):
        yield path, f"must be exactly one kind of source; its keys are {', '.join(map(str, error.instance))}"
    else:
        yield path, _value_text(error)


def _value_text(error: Any) -> str:
    shown = printable(repr(error.instance), 60)
    if error.validator == "enum":
        options = [str(item) for item in error.validator_value]
        return f"{shown} is none of {', '.join(options)}{_suggest(str(error.instance), options)}"
    if error.validator == "const":
        return f"must be {error.validator_value!r}, not {shown}"
    if error.validator == "type":
        wanted = error.validator_value
        quote = "; quote it if it is a text" if _wants_string(wanted) and _is_plain(error.instance) else ""
        return f"{shown} is not of type {wanted if isinstance(wanted, str) else ' or '.join(wanted)}{quote}"
    if error.validator == "pattern":
        return f"{shown} does not match {error.validator_value}"
    if error.validator == "not":
        return f"{shown} is not a plain relative path ('.', '..' and drive letters are refused)"
    if error.validator in ("minItems", "minProperties"):
        return "must not be empty"
    return printable(error.message, 200)


def _wants_string(wanted: Any) -> bool:
    return "string" in ([wanted] if isinstance(wanted, str) else wanted)


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float))


def _suggest(key: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    if near:
        return f"; did you mean '{near[0]}'?"
    return f"; known: {', '.join(sorted(known))}" if known else ""


def _unique_models(document: Any) -> Iterator[Problem]:
    seen: dict[str, int] = {}
    for index, model in enumerate(document["models"]):
        first = seen.setdefault(model["id"], index)
        if first != index:
            yield ("models", index, "id"), f"model id '{model['id']}' is already that of models[{first}]"


def _artifact_sense(document: Any) -> Iterator[Problem]:
    for index, model in enumerate(document["models"]):
        names: set[str] = set()
        for number, item in enumerate(model["artifacts"]):
            where: yamldoc.Path = ("models", index, "artifacts", number)
            if item["name"] in names:
                yield (*where, "name"), f"artifact name '{item['name']}' occurs twice"
            names.add(item["name"])
            for fault in _source_faults(Artifact.from_document(item)):
                yield (*where, "sources"), fault


def _source_faults(artifact: Artifact) -> Iterator[str]:
    for source in artifact.sources:
        for part in source.parts if isinstance(source, ConcatSource) else (source,):
            if isinstance(part, PathSource) and (fault := path_fault(part.path)):
                yield f"the path '{part.path}' {fault}"


def _waiver_sense(document: Any) -> Iterator[Problem]:
    for index, model in enumerate(document["models"]):
        seen: set[tuple[str, str | None]] = set()
        for number, item in enumerate(model.get("waivers", ())):
            where: yamldoc.Path = ("models", index, "waivers", number)
            key = (item["check"], item.get("measurement"))
            if item["check"] not in model["checks"]:
                hint = _suggest(item["check"], list(model["checks"]))
                yield (*where, "check"), f"the model declares no check '{item['check']}'{hint}"
            if key in seen:
                yield (*where, "check"), "a second waiver of the same check and measurement"
            seen.add(key)
            try:
                date.fromisoformat(item["until"])
            except ValueError:
                yield (*where, "until"), f"'{item['until']}' is no day of the calendar"


def _parent_sense(document: Any) -> Iterator[Problem]:
    ids = [model["id"] for model in document["models"]]
    for index, model in enumerate(document["models"]):
        parent = model.get("derivation", {}).get("parent")
        where = ("models", index, "derivation", "parent")
        if parent is None or _SHA256.fullmatch(parent):
            continue
        if parent == model["id"]:
            yield where, "a model is not its own parent"
        elif parent not in ids:
            yield where, f"'{parent}' is neither a SHA-256 nor the id of a model here{_suggest(parent, ids)}"


def _parameter_problems(document: Any, checks: Mapping[str, Mapping[str, Any]]) -> Iterator[Problem]:
    for index, model in enumerate(document["models"]):
        for check_id, parameters in model["checks"].items():
            where: yamldoc.Path = ("models", index, "checks", check_id)
            if check_id not in checks:
                yield where, f"unknown check '{check_id}'{_suggest(check_id, list(checks))}"
                continue
            own = {key: value for key, value in parameters.items() if key != "timeout_s"}
            validator = Draft202012Validator(checks[check_id])
            for error in validator.iter_errors(own):
                for narrow in schemas.narrow(error):
                    yield from explain(narrow, where)


# ---- Construction ----------------------------------------------------------------------------


def _build(document: Any, directory: Path) -> Manifest:
    defaults = document.get("defaults", {})
    hashes = {model["id"]: model["artifacts"][0]["sha256"] for model in document["models"]}
    return Manifest(
        name=document["name"],
        sha256=canonical.digest(document),
        models=tuple(_model(item, defaults, hashes) for item in document["models"]),
        timeout_s=float(defaults.get("timeout_s", DEFAULT_TIMEOUT_S)),
        description=document.get("description"),
        references={
            name: ReferencePin(name, item["provider"], item["revision"])
            for name, item in document.get("references", {}).items()
        },
        corpora={
            name: Corpus(name, item["file"], item["sha256"])
            for name, item in document.get("corpora", {}).items()
        },
        document=document,
        directory=directory,
    )


def _model(item: Any, defaults: Any, hashes: Mapping[str, str]) -> ModelEntry:
    derivation = item.get("derivation", {})
    parent = derivation.get("parent")
    timeout_s = defaults.get("timeout_s", DEFAULT_TIMEOUT_S)
    return ModelEntry(
        id=item["id"],
        architecture=item["architecture"],
        artifacts=tuple(Artifact.from_document(artifact) for artifact in item["artifacts"]),
        checks=tuple(_check(name, value, timeout_s) for name, value in item["checks"].items()),
        config=Config(**{**defaults.get("config", {}), **item.get("config", {})}),
        license=item.get("license"),
        notes=item.get("notes"),
        derivation=Derivation(parent, hashes.get(parent, parent), derivation.get("method")),
        waivers=tuple(_waiver(waiver) for waiver in item.get("waivers", ())),
    )


def _check(check_id: str, item: Mapping[str, Any], timeout_s: float) -> CheckEntry:
    own = {key: value for key, value in item.items() if key != "timeout_s"}
    return CheckEntry(check_id, own, float(item.get("timeout_s", timeout_s)))


def _waiver(item: Mapping[str, Any]) -> Waiver:
    return Waiver(**{**item, "until": date.fromisoformat(item["until"])})
