"""``gaugeblock doctor``: is this installation sound, and what can this machine do?"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click

from engine.cli.console import CONSOLE
from engine.cli.options import json_option, log_format_option
from engine.errors import EngineError
from engine.text import printable

REFERENCES = ("xllamacpp", "tokenizers", "sentencepiece")
SERVING = ("fastapi", "uvicorn")
LOW_BYTES = 1 << 30


@dataclass(frozen=True)
class Finding:
    """One line of the report: ``level`` is ok, warning or failure."""

    name: str
    level: str
    detail: str


def check_python() -> Finding:
    """The interpreter that runs this."""
    version = platform.python_version()
    level = "ok" if sys.version_info >= (3, 11) else "failure"
    return Finding("python", level, f"{version} on {platform.system()} {platform.machine()}")


def check_build() -> Finding:
    """Whether the C core loads, and how it was compiled."""
    from engine import native
    from engine.contracts import contracts

    build = native.build()
    revisions = ", ".join(f"{name} {value}" for name, value in contracts().items())
    return Finding(
        "core", "ok", f"{build.version}, {revisions}, kernels {build.kernel_set}, {build.compiler}"
    )


def check_selftest() -> Finding:
    """Whether this machine reproduces the known answers."""
    from engine import native

    native.selftest()
    return Finding("self-test", "ok", "the known answers are reproduced")


def check_template() -> Finding:
    """Whether the template process starts and renders."""
    from engine.template import Template

    rendered = Template({"default": "{{ 1 + 1 }}"}).render([])
    level = "ok" if rendered.text == "2" else "failure"
    return Finding("templates", level, "the rendering process works")


def check_cpus() -> Finding:
    """CPUs that this process may use."""
    from engine.machine import cgroup_quota, usable_cpus

    quota = cgroup_quota()
    limit = "" if quota is None else f", cgroup quota {quota:g}"
    return Finding("cpus", "ok", f"{usable_cpus()} usable of {os.cpu_count()}{limit}")


def check_memory() -> Finding:
    """Memory that is available now."""
    from engine.machine import available_bytes

    free = available_bytes()
    if free is None:
        return Finding("memory", "warning", "this system does not say how much is available")
    level = "ok" if free >= LOW_BYTES else "warning"
    return Finding("memory", level, f"{free // (1 << 20)} MiB available")


def check_compiler() -> Finding:
    """A C compiler, for building from source."""
    found = next((name for name in ("gcc", "clang", "cc") if shutil.which(name)), None)
    if found is None:
        return Finding("c compiler", "warning", "none found: needed only to build (apt install gcc)")
    return Finding("c compiler", "ok", found)


def check_packages(name: str, packages: tuple[str, ...], extra: str) -> Finding:
    """Optional packages of one extra."""
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        return Finding(name, "warning", f"{', '.join(missing)} absent: pip install 'gaugeblock[{extra}]'")
    shown = (f"{package} {importlib.metadata.version(package)}" for package in packages)
    return Finding(name, "ok", ", ".join(shown))


def check_cache() -> Finding:
    """The per-user cache of file hashes."""
    from engine.hashing import cache_path

    folder = cache_path().parent
    near = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not os.access(near, os.W_OK):
        return Finding("hash cache", "warning", f"{folder} cannot be written: models are hashed each time")
    return Finding("hash cache", "ok", str(folder))


def check_models() -> Finding:
    """Model files in the folder that tests and manifests use."""
    folder = Path(os.environ.get("GAUGEBLOCK_MODELS", "models"))
    count = len(list(folder.glob("*.gguf"))) if folder.is_dir() else 0
    if not count:
        hint = "gaugeblock fetch --manifest manifests/quickstart.yaml"
        return Finding("models", "warning", f"no .gguf file in {folder}: {hint}")
    return Finding("models", "ok", f"{count} .gguf file(s) in {folder}")


CHECKS: dict[str, Callable[[], Finding]] = {
    "python": check_python,
    "core": check_build,
    "self-test": check_selftest,
    "templates": check_template,
    "cpus": check_cpus,
    "memory": check_memory,
    "c compiler": check_compiler,
    "references": lambda: check_packages("references", REFERENCES, "reference"),
    "serving": lambda: check_packages("serving", SERVING, "serve"),
    "hash cache": check_cache,
    "models": check_models,
}


def examine() -> list[Finding]:
    """Run every check; one that raises is a failure and stops none of the others."""
    found = []
    for name, check in CHECKS.items():
        try:
            found.append(check())
        except (EngineError, ImportError, OSError, RuntimeError) as error:
            found.append(Finding(name, "failure", str(error)))
    return found


@click.command()
@json_option
@log_format_option
def doctor(as_json: bool) -> int:
    """Check this installation and this machine; ends in a verdict. Exit 1 where something is broken."""
    found = examine()
    broken = [finding.name for finding in found if finding.level == "failure"]
    doubtful = [finding.name for finding in found if finding.level == "warning"]
    verdict = "broken" if broken else "limited" if doubtful else "sound"
    if as_json:
        CONSOLE.document("doctor/1", verdict=verdict, checks=[vars(finding) for finding in found])
    else:
        for finding in found:
            CONSOLE.line(f"{finding.level:8} {finding.name:12} {printable(finding.detail, None)}")
        names = ", ".join(broken or doubtful)
        CONSOLE.line(f"verdict: {verdict}{f' ({names})' if names else ''}")
    return 1 if broken else 0
