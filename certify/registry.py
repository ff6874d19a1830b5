"""The checks that exist: one file of ``certify/checks`` each, whose name is the id.

Nothing is registered by hand. A file that cannot be imported, or lacks one of the required names,
is an error at once: a check that silently vanished would look like a gate that passes.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

import jsonschema

from certify.types import JSON, Outcome

if TYPE_CHECKING:
    from certify.targets import Context

PACKAGE = "certify.checks"


class RegistryError(Exception):
    """A check file is broken; the text names the file and what it lacks."""


@dataclass(frozen=True)
class Check:
    """One check. ``parameters`` is the JSON Schema of its manifest parameters."""

    id: str
    version: int
    requirement: str
    parameters: Mapping[str, Any]
    run: Callable[[Context], Outcome]

    def with_defaults(self, given: Mapping[str, JSON]) -> dict[str, JSON]:
        """``given`` with the schema's defaults filled in, in the order of the schema."""
        properties = cast("Mapping[str, Any]", self.parameters["properties"])
        filled = {name: given.get(name, rule.get("default")) for name, rule in properties.items()}
        extra = {name: value for name, value in given.items() if name not in properties}
        return {name: value for name, value in filled.items() if value is not None} | extra

    def problems(self, given: Mapping[str, JSON]) -> list[str]:
        """What is wrong with ``given``, each naming its key; empty where nothing is."""
        validator = jsonschema.Draft202012Validator(self.parameters)
        found = sorted(validator.iter_errors(given), key=lambda error: [str(part) for part in error.path])
        return [f"{'.'.join([self.id, *map(str, error.path)])}: {error.message}" for error in found]


@cache
def load(package: str = PACKAGE) -> Mapping[str, Check]:
    """Every check of ``package`` by id, sorted. Raises RegistryError on the first broken file."""
    parent = _import(package)
    names = sorted(module.name for module in pkgutil.iter_modules(parent.__path__) if module.name[0] != "_")
    return {name: _check(name, _import(f"{package}.{name}")) for name in names}


def get(check_id: str, package: str = PACKAGE) -> Check:
    """One check; RegistryError names the known ones where there is none of that id."""
    checks = load(package)
    if check_id not in checks:
        raise RegistryError(f"there is no check {check_id!r}; known are {', '.join(checks)}")
    return checks[check_id]


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise RegistryError(f"{name} cannot be imported: {type(error).__name__}: {error}") from error


def _check(name: str, module: ModuleType) -> Check:
    required = {"REQUIREMENT": str, "VERSION": int, "PARAMETERS": dict, "run": Callable}
    for attribute, kind in required.items():
        if not isinstance(getattr(module, attribute, None), kind):  # type: ignore[arg-type]
            raise RegistryError(f"{module.__name__} lacks {attribute}")
    if not re.search(r"\bMUST\b", module.REQUIREMENT):
        raise RegistryError(f"{module.__name__}: REQUIREMENT is not normative (it lacks MUST)")
    schema = module.PARAMETERS
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise RegistryError(f"{module.__name__}: PARAMETERS is no JSON Schema: {error.message}") from error
    if schema.get("additionalProperties") is not False or "properties" not in schema:
        raise RegistryError(f"{module.__name__}: PARAMETERS must list properties and allow no others")
    return Check(name, module.VERSION, module.REQUIREMENT, schema, module.run)
