"""What speaks against going on with a resolved tree: each refusal leaves everything as it is."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from patchline.errors import Refused, UsageError
from patchline.git import line
from patchline.rebase import merge
from patchline.rebase.judge import Rebased
from patchline.rebase.kept import Dropped
from patchline.rebase.state import State
from patchline.series import quilt
from patchline.series.carried import Carried
from patchline.series.plan import Changes


def check_same(old: Carried, new: Carried, found: State) -> None:
    """The rest of the rebase is for the series and the pin that it began with.

    Raises:
        Refused: one of them is another one now.
    """
    name = old.upstream.name
    if quilt.files(old.series, own=True).digest != found.series:
        what, where = f"the patches of {old.name} changed since the rebase began", str(old.folder)
    elif new.base() != found.base:
        what, where = f"{new.name} is pinned to something else since the rebase began", str(new.repo)
    else:
        return
    raise Refused(
        f"{what}; nothing was changed",
        where=where,
        next=f"python -m patchline rebase {name} --abort, then --onto {new.pin.version}",
    )


def check_uncommitted(tree: Path, head: str) -> None:
    """Nobody committed in the tree: what is committed there has no patch's name.

    Raises:
        Refused: somebody did.
    """
    if line(tree, "rev-parse", "--verify", "HEAD^{commit}") != head:
        raise Refused(
            f"{tree} has commits that this rebase did not make; nothing was changed",
            where=str(tree),
            next=f"leave the resolution uncommitted: git -C {tree} reset --soft {head}",
        )


def check_markers(tree: Path, changes: Changes, labels: merge.Labels) -> None:
    """No marker of the rebase's own is left in the changed files.

    Raises:
        Refused: some are; each is named by file and line.
    """
    left = [
        f"  {path}: line {number}"
        for path, entry in changes.items()
        if entry
        for number in merge.markers_left(entry.data, labels)
    ]
    if left:
        raise Refused(
            "conflict markers are left; nothing was changed\n" + "\n".join(left),
            where=str(tree),
            next="resolve them, then run the same command again",
        )


def check_said(name: str, one: Rebased, gone: Sequence[Dropped], dropping: Collection[str]) -> None:
    """Every hunk that the resolution dropped, `gone`, is among those of which somebody said so, `dropping`.

    Raises:
        Refused: some are not.
        UsageError: a hunk of `dropping` is not dropped.
    """
    if strangers := set(dropping) - {str(each) for each in gone}:
        raise UsageError(
            f"{min(strangers)} is no hunk that the resolution of {one.patch.name} drops",
            next=f"dropped are: {', '.join(map(str, gone)) or 'none'}",
        )
    unsaid = [str(each) for each in gone if str(each) not in dropping]
    if unsaid:
        raise Refused(
            f"the resolution holds nothing of these hunks of {one.patch.name}; nothing was changed\n"
            + "\n".join(f"  {each}" for each in unsaid),
            where="a hunk is named FILE:NUMBER, as in the patch",
            next=f"put them back, or say that they may go: python -m patchline rebase {name} --continue "
            + " ".join(f"--drop-hunk {each}" for each in unsaid),
        )
