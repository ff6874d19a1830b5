"""Where texts are: the corpora that a manifest declares, and the built-in ones, each pinned by hash."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from certify.manifest import Manifest
from certify.targets import Text

BUILT_IN = {
    "core-1": ("core-1.jsonl", "0712e061885a9fe17d5637d8f559d5267c2a0ed34db847db3c88cf9ad7ded57d"),
    "default-16": (
        "default-16.json",
        "8dd62f6d9179f1842b22e96adcbbe57da720d32b797eb8b7d86860749120bf3b",
    ),
    "prose": ("prose.txt", "aefce8933ae71ac45894cd6c68bb643617ce9660a016eed71d7e9d9aec3aeccf"),
}
CHECKOUT = Path(__file__).resolve().parent.parent / "fixtures"
INSTALLED = Path(sys.prefix) / "share" / "gaugeblock"  # data files of the wheel: see pyproject.toml
FOLDERS = (CHECKOUT / "corpora", INSTALLED / "corpora")
CAPTURE_FOLDERS = (CHECKOUT / "captures", INSTALLED / "captures")


def texts(manifest: Manifest) -> dict[str, Text]:
    """Every text by name; a declared one hides a built-in one. The file need not exist: see ``locate``."""
    found = {name: Text(str(locate(file, ())), digest) for name, (file, digest) in BUILT_IN.items()}
    for name, corpus in manifest.corpora.items():
        found[name] = Text(str(locate(corpus.file, (manifest.directory,))), corpus.sha256)
    return found


def locate(file: str, first: tuple[Path, ...]) -> Path:
    """The first folder that holds ``file``; where none does, its place in the first folder."""
    folders = (*first, *FOLDERS)
    return next((folder / file for folder in folders if (folder / file).is_file()), folders[0] / file)


def captures() -> str | None:
    """The folder of committed captures, if there is one."""
    return next((str(folder) for folder in CAPTURE_FOLDERS if folder.is_dir()), None)


def capture_digests() -> dict[str, str]:
    """SHA-256 of every committed capture by file name: what a check that uses one depends on."""
    folder = captures()
    files = sorted(Path(folder).glob("*.json*")) if folder else []
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
