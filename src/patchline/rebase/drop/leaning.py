"""The rest of a series without one patch: applied again in memory, strictly; whoever leans on the patch is named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from patchline.errors import DoesNotApply
from patchline.rebase import store
from patchline.series import quilt
from patchline.series.carried import Carried
from patchline.series.export import prepare
from patchline.series.patch import Patch
from patchline.series.placement import Rule
from patchline.series.plan import Step, plan
from patchline.series.trees import CommitTree, Tree


class Rest(NamedTuple):
    """What is left of a series."""

    files: dict[str, bytes]
    """Patch files by name, in order; empty where none is left."""
    series: bytes
    """The series file."""
    written: list[str]
    """Those whose lines stand elsewhere without the patch: they are written anew."""


def rest(of: Carried, name: str) -> Rest:
    """The series without the patch `name`, ready to be written.

    Raises:
        DoesNotApply: later patches do not apply without it; all of them are named. Or the series does
            not apply as it is.
    """
    patches = quilt.patches(quilt.files(of.series, own=True))
    base = of.base()
    tree = CommitTree(of.repo, base)
    plan(tree, patches)
    left = [patch for patch in patches if patch.name != name]
    return _written(of, base, _steps(of, tree, left, name)) if left else Rest({}, b"", [])


def _steps(of: Carried, tree: Tree, left: Sequence[Patch], name: str) -> list[Step]:
    try:
        return plan(tree, left, Rule.UNIQUE).steps
    except DoesNotApply:
        lean = leaning(tree, left)
        listed = "\n".join(f"  {patch}: {why}" for patch, why in lean.items())
        first = next(iter(lean))
        raise DoesNotApply(
            f"{name} cannot be dropped from {of.name}: {len(lean)} later "
            f"{'patch leans on it and does' if len(lean) == 1 else 'patches lean on it and do'} not apply without it; "
            f"nothing was changed\n{listed}",
            where=str(of.series),
            next=f"drop {first} first, or rework it: python -m patchline checkout {of.name}",
        ) from None


def leaning(tree: Tree, left: Sequence[Patch]) -> dict[str, str]:
    """The patches of `left` that do not apply on top of those before them that do, with the first refusal."""
    kept: list[Patch] = []
    found: dict[str, str] = {}
    for patch in left:
        try:
            plan(tree, [*kept, patch])
            kept.append(patch)
        except DoesNotApply as no:
            found[patch.name] = " ".join(no.what.split("\n")[1:2]).strip() or no.what
    return found


def _written(of: Carried, base: str, steps: Sequence[Step]) -> Rest:
    with store.throwaway(of.repo) as repo:
        ids = store.write(repo, base, [(step.patch.header, step.changes) for step in steps])
        ready = prepare(of, repo, base, ids[-1], None, names=[step.patch.name for step in steps])
    return Rest(ready.new, ready.series, ready.done.written)
