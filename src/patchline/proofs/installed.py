"""Whether an installed package is still what its wheel brought: its files against their RECORD."""

from __future__ import annotations

import base64
import csv
import hashlib
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from patchline.errors import SourceMismatch


def check(site_packages: Path, tops: Iterable[str], when: str) -> int:
    """Compares every file of the packages `tops` with its sha256 (byte-code has none); returns how many.

    Raises:
        SourceMismatch: a file is another one, is gone or is nobody's, or no RECORD lists the package.
    """
    records = _records(site_packages)
    compared = 0
    for top in tops:
        wanted = {path: digest for path, digest in records.items() if path.startswith(f"{top}/")}
        if not wanted:
            raise SourceMismatch(
                f"no RECORD in the environment says what the files of {top} are", where=str(site_packages)
            )
        wrong = _wrong(site_packages, top, wanted)
        if wrong:
            raise SourceMismatch(
                f"{when}, the installed package is not what was installed: {len(wrong)} files are not those of its "
                f"RECORD\n{listed(wrong)}",
                where=str(site_packages),
                next="remove that environment; it is made again",
            )
        compared += len(wanted)
    return compared


def _records(site_packages: Path) -> dict[str, str]:
    """`sha256=…` by path, of all distributions."""
    found: dict[str, str] = {}
    for record in sorted(site_packages.glob("*.dist-info/RECORD")):
        with record.open(newline="", encoding="utf-8") as file:
            found |= {row[0]: row[1] for row in csv.reader(file) if len(row) > 1 and row[1]}
    return found


def _wrong(site_packages: Path, top: str, wanted: dict[str, str]) -> list[str]:
    with ThreadPoolExecutor() as pool:
        digests = pool.map(lambda path: _digest(site_packages / path), wanted)
        wrong = [path for (path, digest), real in zip(wanted.items(), digests, strict=True) if digest != real]
    return sorted({*wrong, *(files(site_packages, top) - wanted.keys())})


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").digest()
    except OSError:
        return ""
    return f"sha256={base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"


def files(folder: Path, top: str) -> set[str]:
    """Everything below `folder`/`top` but folders and cached byte-code, by its path from `folder`."""
    found = set()
    for at, folders, names in os.walk(folder / top):
        links = [name for name in folders if os.path.islink(os.path.join(at, name))]
        cached = os.path.basename(at) == "__pycache__"
        kept = [name for name in names if not (cached and name.endswith(".pyc"))]
        found |= {Path(at, name).relative_to(folder).as_posix() for name in (*kept, *links)}
    return found


def listed(paths: list[str]) -> str:
    """The first twenty, one a line."""
    more = [f"  … and {len(paths) - 20} more"] if len(paths) > 20 else []
    return "\n".join([*(f"  {path}" for path in paths[:20]), *more])
