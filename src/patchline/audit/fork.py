"""The fork's own commits: which of them are patches of the series, by what git calls their patch-id."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from patchline.git import git, line
from patchline.series.patch import Patch

MOST = 2000
"""Commits of a fork whose patch-ids are taken; of more, the series is told by its trees only."""


class Commit(NamedTuple):
    """A commit that no patch of the series is."""

    id: str
    subject: str
    paths: frozenset[str]


class History(NamedTuple):
    """What lies between upstream and the fork."""

    own: int
    """Commits that are the fork's only, merges left out."""
    merges: tuple[str, ...]
    strange: tuple[Commit, ...]
    on_top: bool
    """Whether the fork's history holds upstream's commit."""

    @property
    def notes(self) -> list[str]:
        """What people should know of it."""
        said = [] if self.on_top else ["the fork's history does not hold upstream's commit; the trees were compared"]
        if self.merges:
            ids = ", ".join(one[:12] for one in self.merges[:5])
            said.append(f"{len(self.merges)} merge commits ({ids}): upstream was merged, not rebased on")
        if self.own > MOST:
            said.append(f"{self.own} commits are the fork's only: too many to hold each against the series")
        listed = [f"no patch is commit {one.id[:12]} {one.subject}" for one in self.strange[:20]]
        more = [f"… and {len(self.strange) - 20} more such commits"] if len(self.strange) > 20 else []
        return said + listed + more


def history(repo: Path, upstream: str, fork: str, patches: Sequence[Patch]) -> History:
    """Holds the commits that are the fork's only against the patches of the series."""
    between = f"{upstream}..{fork}"
    merges = tuple(git(repo, "rev-list", "--merges", between).decode().split())
    own = git(repo, "rev-list", "--no-merges", between).decode().split()
    known = {one for patch in patches for one, _ in _patch_ids(repo, patch.raw)}
    by_commit = {commit: one for one, commit in _patch_ids(repo, _log(repo, between))} if len(own) <= MOST else {}
    strange = [commit for commit in own if commit in by_commit and by_commit[commit] not in known]
    on_top = git(repo, "merge-base", "--all", upstream, fork, ok=(0, 1)).decode().split() == [upstream]
    return History(len(own), merges, tuple(_commit(repo, one) for one in strange), on_top)


def _log(repo: Path, between: str) -> bytes:
    fixed = ("--no-ext-diff", "--no-textconv", "--no-color", "--full-index", "--binary", "--unified=3")
    own = Path(line(repo, "rev-parse", "--absolute-git-dir"))  # as a bare one: no file's attribute hides its lines
    return git(own, "--bare", "log", "-p", "--no-merges", *fixed, "--format=commit %H", between)


def _patch_ids(repo: Path, diffs: bytes) -> list[tuple[str, str]]:
    out = git(repo, "patch-id", "--stable", input=diffs).decode().splitlines()
    return [(one, commit) for one, _, commit in (row.partition(" ") for row in out)]


def _commit(repo: Path, id: str) -> Commit:
    subject, _, rest = git(repo, "show", "-z", "--format=%s", "--name-only", "--no-renames", id).partition(b"\0")
    paths = frozenset(os.fsdecode(one.lstrip(b"\n")) for one in rest.split(b"\0") if one.strip())
    return Commit(id, subject.decode(errors="backslashreplace"), paths)
