"""The commits between a base and HEAD, as headers and diffs in the one form that we write."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from patchline.errors import PatchlineError, Refused
from patchline.git import git
from patchline.series.mail import Header, written
from patchline.series.patch import Patch, parsed

# Plumbing that reads no user configuration, with every choice that changes bytes made here.
DIFF = (
    "diff-tree", "-p", "-r", "--no-commit-id", "--binary", "--full-index", "--unified=3", "--inter-hunk-context=0",
    "--diff-algorithm=myers", "--find-renames=50%", "-l0", "--no-ext-diff", "--no-textconv", "--no-color",
    "--src-prefix=a/", "--dst-prefix=b/", "--submodule=short", "--ignore-submodules=none",
)  # fmt: skip


class Commit(NamedTuple):
    """One commit of a series."""

    id: str
    parent: str
    header: Header


def commits(repo: Path, base: str, head: str = "HEAD") -> list[Commit]:
    """The commits from `base` (left out) to `head`, the oldest first.

    Raises:
        Refused: a merge, or a `head` that does not stand on `base`.
    """
    form = "%H%x00%P%x00%an%x00%ae%x00%ad%x00%B%x00"
    out = git(repo, "log", "--reverse", "--date=raw", f"--format={form}", "--end-of-options", f"{base}..{head}")
    fields = os.fsdecode(out).split("\0")[:-1]
    found = [_commit(*(field.lstrip("\n") for field in fields[at : at + 6])) for at in range(0, len(fields), 6)]
    expected = base
    for commit in found:
        if commit.parent != expected:
            raise Refused(
                f"commit {commit.id} is a merge or does not stand on {expected}; a series is one line of commits",
                where=str(repo),
            )
        expected = commit.id
    return found


def _commit(id: str, parent: str, name: str, email: str, date: str, message: str) -> Commit:
    seconds, zone = date.split(" ")
    first, _, body = message.strip("\n").partition("\n\n")
    subject = " ".join(first.split("\n"))
    return Commit(id, parent, Header(name, email, int(seconds), zone, subject, body.strip("\n")))


def diff(repo: Path, old: str, new: str) -> bytes:
    """The difference of two trees or commits; the same bytes whatever git's configuration."""
    return git(repo, *DIFF, old, new)


def patch(repo: Path, commit: Commit, name: str) -> Patch:
    """The patch file of a commit, in the one form that we write.

    Raises:
        Refused: the commit changes nothing, or what it changes cannot be said as a patch.
    """
    change = diff(repo, commit.parent, commit.id)
    if not change:
        raise Refused(
            f"commit {commit.id} changes nothing: {commit.header.subject}",
            where=str(repo),
            next="drop it: git rebase -i",
        )
    raw = written(commit.header) + change
    try:
        found = parsed(raw, Path(name), name)
    except PatchlineError as bad:
        raise Refused(f"commit {commit.id} cannot be a patch: {bad.what}", where=str(repo), next=bad.next) from bad
    if found.header != commit.header:
        raise Refused(
            f"the message of commit {commit.id} would not come back from a patch file: {commit.header.subject}",
            where=str(repo),
            next="take [PATCH], a line --- or a diff out of the message",
        )
    return found
