"""Applies a series: to the pin that it is carried on, to any git repository, or to any folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from patchline import git
from patchline.errors import CommandFailed, Refused, UsageError
from patchline.progress import say
from patchline.series import quilt
from patchline.series.applied import Applied, load, record
from patchline.series.moves import held, move
from patchline.series.placement import Placement, Rule
from patchline.series.worktree import WorkTree

if TYPE_CHECKING:  # a run that finds nothing to do imports neither
    from patchline.series.plan import Plan


OURS = "patchline"
"""The branch of a checked-out pin that the series lies on."""
DISCARDED = "refs/patchline/discarded"
"""Where `--discard` keeps what it dropped last."""


class Result(NamedTuple):
    """What an application came to."""

    tree: Path
    patches: list[tuple[str, str]]
    """Name and commit, in order; the commit is empty where no repository is written."""
    placements: Sequence[tuple[str, Placement]] = ()
    """Patch and hunk, for every hunk that is not where its patch says."""
    base: str = ""
    done: bool = True
    """False where the result was there already."""


def to_folder(source: Path, series: Path, out: Path, rule: Rule) -> Result:
    """Writes at `out` what the series makes of the folder `source`.

    Raises:
        DoesNotApply: with every refusal of the first patch that has one; nothing was written.
        UsageError: series file or folders are wrong.
        Refused: `out` is there already.
    """
    from patchline.series import folder
    from patchline.series.plan import plan
    from patchline.series.trees import FolderTree

    patches = quilt.patches(quilt.files(series), lenient=rule is Rule.NEAREST)
    made = plan(FolderTree(source), patches, rule)
    folder.write(source, out, made.total)
    return Result(out, [(patch.name, "") for patch in patches], _moved(made))


def to_repo(repo: Path, series: Path, rule: Rule, branch: str = "") -> Result:
    """Puts the series as commits on the checked-out, clean HEAD of `repo`, or changes nothing.

    Raises:
        DoesNotApply: with every refusal of the first patch that has one.
        Refused: the work tree is not clean, or somebody else holds it.
    """
    with held(repo) as tree:
        found = quilt.files(series)
        before = load(tree.applied)
        if before and not branch and (before.head, before.series, before.rule) == (tree.head, found.digest, rule.value):
            tree.check_clean()
            return Result(tree.repo, before.patches, base=before.base, done=False)
        if branch:
            _check_free(tree.repo, branch)
        return put(tree, tree.head, found, rule, branch)


def put(
    tree: WorkTree, base: str, found: quilt.Files, rule: Rule, branch: str = "", *, discard: bool = False
) -> Result:
    """Writes the series on `base` and takes the held work tree there, if it is clean.

    `discard`: also if it is not; what its files held is kept as a stash, `DISCARDED`.
    """
    from patchline.series import commits, drafts
    from patchline.series.plan import plan
    from patchline.series.staging import changes_planned
    from patchline.series.trees import CommitTree

    patches = quilt.patches(found, lenient=rule is Rule.NEAREST)
    named = {name for patch in patches for diff in patch.files for name in (diff.old, diff.new) if name}
    question = drafts.Question(tree.repo, sorted(named))
    try:
        tree.check_settled() if discard else tree.check_clean()
        source = CommitTree(tree.repo, base)
        made = plan(source, patches, rule)
        writing = commits.Writing(tree, base, [(step.patch.header, step.changes) for step in made.steps])
        try:
            changes = changes_planned(source, made.total) if base == tree.head else None
            ready = drafts.write(tree.room, made.total, question.answer(), source.id_of)
        except BaseException:
            writing.stop()
            raise
    finally:
        question.stop()
    ids = writing.ids()
    if discard:
        _discard(tree)
    done = record(base, found.digest, rule.value, [patch.name for patch in patches], ids)
    move(tree, ids[-1], branch=branch, record=done.dumps(), changes=changes, drafts=ready)
    return Result(tree.repo, done.patches, _moved(made), base)


def _discard(tree: WorkTree) -> None:
    """Drops uncommitted work, after keeping it where it can be found again."""
    kept = git.work(tree.repo, "stash", "create", "dropped by patchline apply --discard").decode().strip()
    if kept:
        git.git(tree.repo, "update-ref", DISCARDED, kept)
        say(f"what was not committed is kept: git -C {tree.repo} stash apply {DISCARDED}")
    git.work(tree.repo, "reset", "-q", "--hard", tree.head)


def _moved(made: Plan) -> list[tuple[str, Placement]]:
    return [
        (step.patch.name, one) for step in made.steps for one in step.placements if one.offset or one.how == "nearest"
    ]


def _check_free(repo: Path, branch: str) -> None:
    name = f"refs/heads/{branch}"
    try:
        git.git(repo, "check-ref-format", name)
    except CommandFailed as wrong:
        raise UsageError(f"{branch!r} cannot be a branch's name", next="git help check-ref-format") from wrong
    if git.git(repo, "for-each-ref", "--format=%(refname)", name):
        raise Refused(
            f"there is a branch {branch} already; nothing was changed", where=str(repo), next="give another --branch"
        )


def to_pin(repo: Path, base: str, series: Path, *, discard: bool = False) -> Result:
    """Takes the checked-out pin at `repo` to what its series makes of `base`; same input, same commits.

    Raises:
        DoesNotApply: with every refusal of the first patch that has one.
        Refused: the work tree holds work that is not in the series, and `discard` is not given.
    """
    with held(repo) as tree:
        found = quilt.files(series, own=True)
        before = load(tree.applied)
        _check_branch(tree)
        if not discard:
            _check_known(repo, base, before, tree.head)
            if before and (before.base, before.head, before.series) == (base, tree.head, found.digest):
                tree.check_clean()
                return Result(repo, before.patches, base=base, done=False)
        return put(tree, base, found, Rule.UNIQUE, discard=discard)


def _check_branch(tree: WorkTree) -> None:
    """A branch that somebody made, or `base`, is not ours to move."""
    branch = tree.branch()
    if branch not in ("", OURS):
        raise Refused(
            f"{tree.repo} is on branch {branch}, not on {OURS}; nothing was changed",
            next=f"git -C {tree.repo} checkout {OURS}",
        )


def _check_known(repo: Path, base: str, before: Applied | None, head: str) -> None:
    """A head that is neither the base nor what the series gave is work that is not in the series."""
    if head == base or (before and before.head == head and before.series):
        return
    name = repo.name.rpartition("-")[0]
    raise Refused(
        f"{repo} has commits that are not in the series; nothing was changed",
        where=f"HEAD {head}",
        next=f"keep them: python -m patchline export {name}; or drop them: python -m patchline apply {name} --discard",
    )
