"""A trained model's files: noted when it is kept, compared when it is found again."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import msgspec

from patchline.errors import SourceMismatch

MANIFEST = "files.json"
"""The sha256 of every other file, by name."""


def note(folder: Path) -> None:
    """Writes the manifest of a folder."""
    (folder / MANIFEST).write_text(json.dumps(_digests(folder), indent=1))


def check(folder: Path) -> None:
    """Refuses a folder that is not, file by file, what was kept.

    Raises:
        SourceMismatch: with every file that differs, is gone or came later.
    """
    try:
        wanted = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=dict[str, str])
        found = _digests(folder)
    except (OSError, ValueError) as bad:
        raise _other(folder, [str(bad)]) from bad
    wrong = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
    if wrong:
        raise _other(folder, wrong)


def _digests(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.iterdir() if path.name != MANIFEST)
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def _other(folder: Path, wrong: list[str]) -> SourceMismatch:
    return SourceMismatch(
        "\n".join(["a trained model is not what was kept:", *(f"  - {one}" for one in wrong)]),
        where=str(folder),
        next=f"rm -r {folder}; it is trained again",
    )
