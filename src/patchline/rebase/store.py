"""Repositories of our own beside the pins': they read the pins' objects and write none there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from patchline import fast_import
from patchline.git import git, line
from patchline.series.commits import AUTHOR
from patchline.series.mail import Header
from patchline.series.plan import Changes


def objects(repo: Path) -> Path:
    """Where a repository keeps its objects."""
    answer = git(repo, "rev-parse", "--path-format=absolute", "--git-path", "objects")
    return Path(os.fsdecode(answer).rstrip("\n"))


def make(folder: Path, *pins: Path, bare: bool = True) -> Path:
    """Makes a repository in the empty `folder` that sees all objects of the repositories `pins`.

    Raises:
        CommandFailed: the pins' repositories have objects of two formats.
    """
    format = line(pins[0], "rev-parse", "--show-object-format")
    options = ("--bare",) if bare else ()
    git(folder, "init", "-q", "--template=", f"--object-format={format}", "-b", "patchline", *options)
    info = objects(folder) / "info"
    info.mkdir(exist_ok=True)
    (info / "alternates").write_text("".join(f"{objects(pin)}\n" for pin in pins))
    return folder


@contextmanager
def throwaway(*pins: Path) -> Iterator[Path]:
    """A repository as `make` makes it, for a while."""
    with tempfile.TemporaryDirectory(prefix="patchline-") as folder:
        yield make(Path(folder), *pins)


def write(repo: Path, base: str, commits: Sequence[tuple[Header, Changes]]) -> list[str]:
    """Writes one commit a pair on top of `base`, by and at the date of its author; their ids, in order."""
    if not commits:
        return []
    with os.fdopen(os.memfd_create("commits"), "w+b") as stream:
        _stream(stream, repo, base, commits)
        out = git(repo, "fast-import", "--quiet", "--force", "--done", "--depth=0", stdin=stream)
    return out.decode().split()


def _stream(out: BinaryIO, repo: Path, base: str, commits: Sequence[tuple[Header, Changes]]) -> None:
    parent = base
    for mark, (header, changes) in enumerate(commits, 1):
        name, email = (header.name, header.email) if header.name or header.email else AUTHOR
        when = f"{header.seconds} {header.zone}"
        if header.seconds is None:
            when = line(repo, "show", "-s", "--format=%at +0000", base)
        message = header.message.encode("utf-8", "surrogateescape")
        out.writelines(fast_import.commit(f"{name} <{email}> {when}".lstrip(), message, mark=mark, parent=parent))
        for path, entry in sorted(changes.items(), key=lambda item: item[1] is not None):
            out.writelines([fast_import.removed(path)] if entry is None else fast_import.file(path, *entry))
        out.write(b"\n")
        parent = f":{mark}"
    out.write(b"".join(b"get-mark :%d\n" % mark for mark in range(1, len(commits) + 1)))
    out.write(b"reset %s\nfrom %s\n\ndone\n" % (fast_import.REF.encode(), b"0" * len(base)))
    out.seek(0)
