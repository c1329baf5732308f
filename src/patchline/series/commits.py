"""Writes a plan as commits, one a patch, in one pass of `git fast-import`; touches no branch."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from typing import BinaryIO

from patchline import fast_import
from patchline.errors import CommandFailed
from patchline.git import line, start
from patchline.series.mail import Header
from patchline.series.plan import Changes
from patchline.series.worktree import WorkTree

AUTHOR = ("patchline", "patchline@localhost")
"""Who a commit is by when its patch does not say."""


class Writing:
    """Commits on their way: git packs them while we do something else.

    The ids depend on the base and the commits alone: the committer is the author, at the author's
    date, so the same series gives the same ids on every machine. No ref and no file of the work
    tree changes. New objects are written apart and join the others whole; killed half way,
    nothing can be seen of them.
    """

    def __init__(self, tree: WorkTree, base: str, commits: Sequence[tuple[Header, Changes]]) -> None:
        fallback = None
        if any(header.seconds is None for header, _ in commits):
            fallback = line(tree.repo, "show", "-s", "--format=%at +0000", base)
        self.tree, self.apart = tree, tree.room / "objects"
        (self.apart / "pack").mkdir(parents=True)
        self.crashes = set(tree.git_dir.glob("fast_import_crash_*"))
        env = {"GIT_OBJECT_DIRECTORY": str(self.apart), "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(tree.objects)}
        with os.fdopen(os.memfd_create("series"), "w+b") as stream:  # git reads it at its own pace
            _stream(stream, base, commits, fallback)
            self.started = start(
                tree.repo, "fast-import", "--quiet", "--force", "--done", "--depth=0", stdin=stream, env=env
            )

    def stop(self) -> None:
        """Ends git: nobody wants the commits any more. What it wrote stays apart, and goes with the room."""
        self.started.stop()

    def ids(self) -> list[str]:
        """Waits for git: the ids of the commits, in order, whose objects are now the repository's."""
        try:
            answer = self.started.end().stdout
        except CommandFailed:
            for crash in set(self.tree.git_dir.glob("fast_import_crash_*")) - self.crashes:
                crash.unlink()
            raise
        packs = self.apart.glob("pack/pack-*")
        for pack in sorted(packs, key=lambda path: path.suffix == ".idx"):  # git looks for the .idx
            pack.rename(self.tree.objects / "pack" / pack.name)
        shutil.rmtree(self.apart)
        return answer.decode().split()


def write(tree: WorkTree, base: str, commits: Sequence[tuple[Header, Changes]]) -> list[str]:
    """Writes one commit a pair on top of `base`; returns their ids, in order."""
    return Writing(tree, base, commits).ids()


def _stream(out: BinaryIO, base: str, commits: Sequence[tuple[Header, Changes]], fallback: str | None) -> None:
    parent = base
    for mark, (header, changes) in enumerate(commits, 1):
        _commit(out, mark, parent, header, changes, fallback)
        parent = f":{mark}"
    out.write(b"".join(b"get-mark :%d\n" % mark for mark in range(1, len(commits) + 1)))
    out.write(b"reset %s\nfrom %s\n\ndone\n" % (fast_import.REF.encode(), b"0" * len(base)))
    out.seek(0)


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
