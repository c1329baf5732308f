"""Changes a series from its checked-out pin: a new patch, a refreshed one, another order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from patchline import git
from patchline.errors import Refused, UsageError
from patchline.series import applied, commits, history
from patchline.series.applied import record
from patchline.series.carried import Carried
from patchline.series.export import Exported, check_unchanged, file_name, names_of, prepare, present, publish
from patchline.series.mail import Header
from patchline.series.moves import held, move
from patchline.series.patch import Patch, parsed
from patchline.series.placement import Rule
from patchline.series.plan import Changes, Step, plan
from patchline.series.trees import CommitTree
from patchline.series.worktree import WorkTree


class _Open(NamedTuple):
    """A checked-out pin whose commits are its series, with what its work tree changes on top."""

    carried: Carried
    tree: WorkTree
    base: str
    names: list[str]
    patches: list[Patch]
    edits: Patch | None
    wanted: str
    """Id of the tree that the work tree's files make."""


def _open(carried: Carried, tree: WorkTree, base: str) -> _Open:
    tree.check_settled()
    if git.git(tree.repo, "ls-files", "-u"):
        raise Refused(f"{tree.repo} has unmerged files; nothing was changed", next=f"git -C {tree.repo} status")
    check_unchanged(carried, tree)
    old = present(carried)
    found = history.commits(tree.repo, base)
    if len(found) != len(old):
        raise Refused(
            f"{tree.repo} has {len(found)} commits on its base and the series has {len(old)} patches",
            next=f"python -m patchline apply {carried.upstream.name}, or export",
        )
    names = names_of(found, old, applied.load(tree.applied))
    patches = [history.patch(tree.repo, commit, name) for commit, name in zip(found, names, strict=True)]
    wanted = _tree_of_files(tree)
    change = history.diff(tree.repo, tree.head, wanted)
    edits = parsed(change, Path("the work tree's changes"), "the work tree's changes") if change else None
    return _Open(carried, tree, base, names, patches, edits, wanted)


def _tree_of_files(tree: WorkTree) -> str:
    """The id of the tree that the work tree's files make, new files included; the index stays as it is."""
    scratch = tree.room / "scratch"
    scratch.write_bytes(tree.index.read_bytes())
    env = {"GIT_INDEX_FILE": str(scratch)}
    git.work(tree.repo, "add", "-A", env=env)
    return git.git(tree.repo, "write-tree", env=env).decode().strip()


def _edits(opened: _Open) -> Patch:
    if opened.edits is None:
        raise Refused(
            f"the work tree of {opened.carried.name} has no changes",
            where=str(opened.tree.repo),
            next="change its files first, then run the same command again",
        )
    return opened.edits


def new(carried: Carried, header: Header) -> Exported:
    """Makes the work tree's changes a new patch at the end of the series.

    Raises:
        Refused: there are no changes, or the commits are not the series.
    """
    base = carried.base()
    with held(carried.repo) as tree:
        opened = _open(carried, tree, base)
        step = plan(CommitTree(tree.repo, tree.head), [_edits(opened)]).steps[0]
        name = file_name(len(opened.names) + 1, header.subject)
        steps = [*_steps(opened, opened.patches), Step(step.patch._replace(header=header, name=name), step.changes, [])]
        return _rewrite(opened, steps, [*opened.names, name])


def refresh(carried: Carried, name: str = "") -> Exported:
    """Puts the work tree's changes into the patch `name` (the last one if empty); later patches follow.

    Without changes, the patch files are written anew in the one form that we write.

    Raises:
        DoesNotApply: the changes do not fit that patch, or a later patch does not fit them.
        UsageError: there is no such patch.
    """
    base = carried.base()
    with held(carried.repo) as tree:
        opened = _open(carried, tree, base)
        at = _index(opened, name) if name else len(opened.names) - 1
        if opened.edits is None:
            ready = prepare(carried, tree.repo, base, tree.head, None, names=opened.names, canonical=True)
            publish(carried, tree, ready)
            return ready.done
        order = [*opened.patches[: at + 1], opened.edits, *opened.patches[at + 1 :]]
        steps = _steps(opened, order)
        both: Changes = steps[at].changes | steps[at + 1].changes
        steps[at : at + 2] = [Step(steps[at].patch, both, [])]
        return _rewrite(opened, steps, opened.names)


def reorder(carried: Carried, names: Sequence[str]) -> Exported:
    """Gives the series another order; the result must be the same tree.

    Raises:
        DoesNotApply: a patch does not apply in the new order.
        Refused: the work tree has changes.
        UsageError: `names` are not the names of the series, each once.
    """
    base = carried.base()
    with held(carried.repo) as tree:
        tree.check_clean()
        opened = _open(carried, tree, base)
        if sorted(names) != sorted(opened.names):
            raise UsageError(
                "give every patch of the series once, in the new order:\n"
                + "\n".join(f"  {name}" for name in opened.names)
            )
        order = [opened.patches[_index(opened, name)] for name in names]
        return _rewrite(opened, _steps(opened, order), _numbered(names))


def _index(opened: _Open, name: str) -> int:
    if name not in opened.names:
        raise UsageError(
            f"there is no patch {name} in {opened.carried.series}; it has:\n"
            + "\n".join(f"  {one}" for one in opened.names)
        )
    return opened.names.index(name)


def _numbered(names: Sequence[str]) -> list[str]:
    if not all(re.match(r"\d{4}-", name) for name in names):
        return list(names)
    return [f"{number:04d}{name[4:]}" for number, name in enumerate(names, 1)]


def _steps(opened: _Open, order: Sequence[Patch]) -> list[Step]:
    return plan(CommitTree(opened.tree.repo, opened.base), order, Rule.UNIQUE).steps


def _rewrite(opened: _Open, steps: list[Step], names: list[str]) -> Exported:
    """Commits the steps, checks that they make the tree that was wanted, and exports them.

    All that can be refused comes first. Killed after HEAD moved, the record says that the patch
    files are still to be written: `apply` refuses then, and `export` writes them.
    """
    tree = opened.tree
    ids = commits.write(tree, opened.base, [(step.patch.header, step.changes) for step in steps])
    made = git.line(tree.repo, "rev-parse", f"{ids[-1]}^{{tree}}")
    if made != opened.wanted:
        raise Refused(f"the series would make tree {made}, not the work tree's {opened.wanted}; nothing was changed")
    ready = prepare(opened.carried, tree.repo, opened.base, ids[-1], None, names=names)
    move(tree, ids[-1], record=record(opened.base, "", Rule.UNIQUE.value, names, ids).dumps(), in_place=True)
    publish(opened.carried, tree, ready)
    return ready.done._replace(taken=tuple(diff.path for diff in opened.edits.files) if opened.edits else ())
