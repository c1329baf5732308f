"""What the first patches of a series make of the package: the trees before and after each patch."""

from __future__ import annotations

import os

from patchline.git import git
from patchline.overlay import Change, Overlay
from patchline.proofs.tree import tops
from patchline.series.carried import Carried
from patchline.series.trees import CommitTree


def steps(carried: Carried, made: Overlay) -> list[Overlay]:
    """The overlays of no patch, of the first, of the first two … and last of all, which is `made`.

    Raises:
        As `Carried.apply`.
    """
    commits = [commit for _, commit in carried.apply().patches[:-1]]
    none = made._replace(head=made.base, changes=(), outside=())
    return [none, *(_until(carried, made, commit) for commit in commits), made]


def _until(carried: Carried, made: Overlay, head: str) -> Overlay:
    """The overlay at the commit `head` of the series, in the packages that the whole series changes."""
    names = git(carried.repo, "diff-tree", "-r", "-z", "--no-renames", "--name-only", made.base, head).split(b"\0")
    paths = [os.fsdecode(name) for name in names if name]
    packages = tops(made)
    inside = [path for path in paths if path.partition("/")[0] in packages and "/" in path]
    before, after = (CommitTree(carried.repo, commit) for commit in (made.base, head))
    for tree in (before, after):
        tree.load(inside)
    changes = tuple(Change(path, before.entry(path), after.entry(path)) for path in inside)
    return made._replace(head=head, changes=changes, outside=tuple(sorted(set(paths) - set(inside))))
