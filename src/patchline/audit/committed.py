"""Whether a file of the project has certain bytes: as it lies there, or as any commit had it."""

from __future__ import annotations

from collections.abc import Iterator

from patchline.errors import CommandFailed
from patchline.git import git
from patchline.image import digests
from patchline.paths import fault
from patchline.progress import say
from patchline.project import Project


def has(project: Project, path: str, digest: str) -> bool:
    """Whether the project's file at `path` has, or once had, the digest; false where `path` leads out of it."""
    if fault(path) is not None:
        return False
    file = project.root / path
    if file.is_file() and digests.of(file.read_bytes()) == digest:
        return True
    return any(digests.of(data) == digest for data in _past(project, path))


def _past(project: Project, path: str) -> Iterator[bytes]:
    """The bytes of a file in every state that the project's history knows, the newest first."""
    try:
        rows = git(project.root, "log", "--all", "--raw", "--no-abbrev", "--no-renames", "--format=", "--", path)
    except CommandFailed as none:
        say(f"the project's history cannot be read, only its files: {none.what}")
        return
    blobs = dict.fromkeys(row.split()[3] for row in rows.decode(errors="replace").splitlines() if row.startswith(":"))
    for blob in blobs:
        if blob.strip("0"):  # it was not removed there
            yield git(project.root, "cat-file", "blob", blob)
