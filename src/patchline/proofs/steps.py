"""What the first patches of a series make of the package: the trees before and after each patch."""

from __future__ import annotations

from patchline.git import git
from patchline.overlay import Overlay, between
from patchline.proofs.tree import tops
from patchline.series.carried import Carried


def steps(carried: Carried, made: Overlay) -> list[Overlay]:
    """The overlays of no patch, of the first, of the first two … and last of all, which is `made`.

    Raises:
        Refused: as `between`.
    """
    commits = [commit for _, commit in carried.apply().patches[:-1]]
    none = made._replace(head=made.base, changes=(), outside=())
    return [none, *(_until(carried, none, commit, tops(made)) for commit in commits), made]


def _until(carried: Carried, none: Overlay, head: str, packages: list[str]) -> Overlay:
    """The overlay at the commit `head`; `none` where it has changed nothing in `packages` yet."""
    if not git(carried.repo, "diff-tree", "-r", "--name-only", none.base, head, "--", *packages):
        return none
    return between(carried, none.base, head)
