"""Writes a plan as commits, one a patch, in one pass of `git fast-import`; touches no branch."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from patchline import fast_import
from patchline.errors import CommandFailed
from patchline.git import git, line
from patchline.series.mail import Header
from patchline.series.plan import Changes
from patchline.series.worktree import WorkTree

AUTHOR = ("patchline", "patchline@localhost")
"""Who a commit is by when its patch does not say."""


def write(tree: WorkTree, base: str, commits: Sequence[tuple[Header, Changes]]) -> list[str]:
    """Writes one commit a pair on top of `base`; returns their ids, in order.

    The ids depend on `base` and the pairs alone: the committer is the author, at the author's
    date, so the same series gives the same ids on every machine. No ref and no file of the work
    tree changes. New objects are written apart and join the others whole; killed half way,
    nothing can be seen of them.
    """
    fallback = None
    if any(header.seconds is None for header, _ in commits):
        fallback = line(tree.repo, "show", "-s", "--format=%at +0000", base)
    apart = tree.room() / "objects"
    (apart / "pack").mkdir(parents=True)
    with tempfile.TemporaryFile(dir=apart) as stream:  # a file, not memory: a series can be any size
        _stream(stream, base, commits, fallback)
        ids = _import(tree, apart, stream)
    for pack in sorted(apart.glob("pack/pack-*"), key=lambda path: path.suffix == ".idx"):  # git looks for the .idx
        pack.rename(tree.objects / "pack" / pack.name)
    return ids


def _stream(out: BinaryIO, base: str, commits: Sequence[tuple[Header, Changes]], fallback: str | None) -> None:
    parent = base
    for mark, (header, changes) in enumerate(commits, 1):
        _commit(out, mark, parent, header, changes, fallback)
        parent = f":{mark}"
    out.write(b"".join(b"get-mark :%d\n" % mark for mark in range(1, len(commits) + 1)))
    out.write(b"reset %s\nfrom %s\n\ndone\n" % (fast_import.REF.encode(), b"0" * len(base)))
    out.seek(0)


def _import(tree: WorkTree, apart: Path, stream: BinaryIO) -> list[str]:
    env = {"GIT_OBJECT_DIRECTORY": str(apart), "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(tree.objects)}
    crashes = set(tree.git_dir.glob("fast_import_crash_*"))
    try:
        answer = git(tree.repo, "fast-import", "--quiet", "--force", "--done", "--depth=0", stdin=stream, env=env)
    except CommandFailed:
        for crash in set(tree.git_dir.glob("fast_import_crash_*")) - crashes:
            crash.unlink()
        raise
    return answer.decode().split()


def _commit(out: BinaryIO, mark: int, parent: str, header: Header, changes: Changes, fallback: str | None) -> None:
    name, email = (header.name, header.email) if header.name or header.email else AUTHOR
    when = fallback if header.seconds is None else f"{header.seconds} {header.zone}"
    message = header.message.encode("utf-8", "surrogateescape")
    out.writelines(fast_import.commit(f"{name} <{email}> {when}".lstrip(), message, mark=mark, parent=parent))
    for path, entry in sorted(changes.items(), key=lambda item: item[1] is not None):
        if entry is None:
            out.write(fast_import.removed(path))
        else:
            out.writelines(fast_import.file(path, *entry))
    out.write(b"\n")
