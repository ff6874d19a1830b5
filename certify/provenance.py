"""What a report says about the engine that was measured, the machine, and the moment."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import subprocess
import uuid
from datetime import UTC, datetime
from pathlib import Path

import engine
from certify.report import EngineRecord, Host, RunRecord
from engine import native
from engine.contracts import contracts
from engine.machine import cpu_name

REFERENCE_PACKAGES = ("xllamacpp", "tokenizers", "sentencepiece")


def engine_record() -> EngineRecord:
    """The engine in this process: the library's own hash says which build it is."""
    build = native.build()
    commit, dirty = source_state(Path(engine.__file__).resolve().parent.parent)
    with Path(native.library_path()).open("rb") as file:
        library = hashlib.file_digest(file, "sha256").hexdigest()
    return EngineRecord(build.version, commit, dirty, library, build.compiler, build.flags, contracts())


def source_state(folder: Path) -> tuple[str | None, bool | None]:
    """Commit of the checkout that holds the engine, and whether it was changed; None outside one."""
    if not (folder / ".git").exists():
        return None, None
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        return commit, bool(_git(folder, "status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.SubprocessError):
        return None, None


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    return done.stdout.strip()


def reference_packages() -> dict[str, str | None]:
    """Installed versions of the packages behind the references."""
    found: dict[str, str | None] = {}
    for name in REFERENCE_PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


def now() -> str:
    """UTC, to the second, with Z."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def run_record(started: str, *, resumed: bool) -> RunRecord:
    """The part of a report that stays outside its digest."""
    build = native.build()
    return RunRecord(
        id=uuid.uuid4().hex,
        started=started,
        finished=now(),
        resumed=resumed,
        host=Host(platform.system().lower(), platform.machine(), cpu_name(), os.cpu_count() or 1),
        kernel_set=build.kernel_set,
        harness_version=build.version,
        python=platform.python_version(),
    )
