"""The three sides of a file in an audit of a tree: upstream's, what the series makes of it, and the fork's."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from patchline.git import git
from patchline.series.plan import Plan, Step
from patchline.series.trees import CommitTree, Entry


class Side(NamedTuple):
    """A file in one tree."""

    mode: int
    """Git's."""
    id: str
    """Of its blob, or of a submodule's commit."""
    data: bytes

    @property
    def what(self) -> str:
        """What it is, for people."""
        return {0o120000: "a symbolic link", 0o160000: "a submodule"}.get(self.mode, f"a file of mode {self.mode:o}")


class Sides(NamedTuple):
    """One path in the three trees; None where it has no file."""

    path: str
    upstream: Side | None
    wanted: Side | None
    """What the series makes of it."""
    fork: Side | None
    steps: tuple[Step, ...]
    """Those of the series that change it."""

    @property
    def patches(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(step.patch.name for step in self.steps)


def sides(upstream: CommitTree, made: Plan | None, fork: CommitTree) -> Iterator[Sides]:
    """Every path that differs between upstream's tree and the fork's, or that the series changes."""
    total = made.total if made else {}
    differing = git(
        fork.repo, "diff-tree", "-r", "-z", "--no-renames", "--name-only", upstream.commit, fork.commit
    ).split(b"\0")[:-1]
    paths = sorted({*map(os.fsdecode, differing), *total})
    for tree in (upstream, fork):
        tree.load(paths)
    for path in paths:
        before = _side(upstream, path)
        wanted = _made(upstream, total[path]) if path in total else before
        steps = tuple(step for step in made.steps if path in step.changes) if made else ()
        yield Sides(path, before, wanted, _side(fork, path), steps)


def _side(tree: CommitTree, path: str) -> Side | None:
    entry, known = tree.entry(path), tree.known(path)
    return Side(entry.mode, known[1], entry.data) if entry and known else None


def _made(tree: CommitTree, entry: Entry | None) -> Side | None:
    return Side(entry.mode, tree.id_of(entry.data), entry.data) if entry else None


def count(repo: Path, trees: Sequence[str]) -> int:
    """The files of several trees together, each path once."""
    names: set[bytes] = set()
    for tree in trees:
        names.update(git(repo, "ls-tree", "-r", "-z", "--name-only", "--full-tree", tree).split(b"\0")[:-1])
    return len(names)
