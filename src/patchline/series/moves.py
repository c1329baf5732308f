"""Moves a checked-out, clean work tree from one commit to another, whole or not at all.

Everything that needs space or can fail is done first, beside the work tree: the new files, and
the new index. Then a journal is written and HEAD moves, and from there on only renames are left.
A run that dies before the journal has changed nothing; one that dies after it is finished by the
next run, which needs no space for it. While it lasts, `index.lock` keeps git itself out.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from patchline.errors import CommandFailed, Refused, UsageError
from patchline.files import locked, remove_empty_above, write_whole
from patchline.git import commit_of, git, start_work, top, work
from patchline.progress import say
from patchline.series.drafts import Draft
from patchline.series.index_entries import freshen
from patchline.series.staging import INDEX, Change, changes_between, check_replaced, some, stage
from patchline.series.worktree import WorkTree

_PATIENCE = 2.0  # seconds that a live git may hold a ref's lock
_RECORD = "applied"


class Journal(NamedTuple):
    """A move that is decided: what is left of it are renames."""

    old: str
    new: str
    branch: str
    """Branch to make and to check out; empty where HEAD itself moves."""
    room: str
    """Folder in which everything was prepared."""
    index_sha256: str
    """Of the new index: whether `index.lock` is still ours, and `index` not yet somebody's."""
    staged: list[tuple[str, str]]
    """Staged file and its path in the work tree."""
    removed: list[str]
    seen: dict[str, list[int]]
    """Time (in ns) and size of the files that are replaced or removed, as they were when this was decided."""


@contextmanager
def held(repo: Path) -> Iterator[WorkTree]:
    """The work tree of `repo`, for this run alone, after whatever a dead run left was dealt with.

    Raises:
        UsageError: `repo` is not the top folder of a git work tree.
        Refused: another run of ours holds it.
    """
    if not repo.is_dir():
        raise UsageError(f"there is no folder {repo}", next="give the top folder of a git repository")
    # What git calls changed by the index's own times; it looks while we do something else.
    checking = start_work(repo, "diff-index", "--name-only", "-z", "HEAD")
    try:
        found = top(repo)
        if found.work_tree.stat().st_dev != found.git_dir.stat().st_dev:
            raise Refused(
                f"{found.work_tree} and its repository {found.git_dir} lie on two file systems; nothing was changed",
                next="use a clone on one",
            )
        with locked(found.git_dir / "patchline" / "lock", str(repo)):
            tree = WorkTree(found, checking)
            _recover(tree)
            try:
                yield tree
            finally:
                tree.tidy()
    finally:
        checking.stop()


def move(
    tree: WorkTree,
    new: str,
    *,
    branch: str = "",
    record: str = "{}",
    changes: Sequence[Change] | None = None,
    drafts: Mapping[str, Draft] | None = None,
    in_place: bool = False,
) -> None:
    """Takes work tree, index and HEAD (or a new `branch`) from the present commit to `new`.

    `changes` are those between the two, where they are known; `drafts` are files that lie in
    `room` already. `in_place`: the files of the work tree are those of `new` already; index and
    HEAD follow.

    Raises:
        Refused: untracked files are in the way, or git holds the index.
    """
    stat = tree.stat()
    room = tree.room
    if changes is None:
        changes = changes_between(tree.repo, tree.head, new)
    staged = stage(tree.repo, tree.git_dir, room, changes, drafts=drafts or {}, in_place=in_place)
    (room / _RECORD).write_text(record)
    _take_lock(tree, room)
    try:
        if tree.stat() != stat:
            raise Refused(f"{tree.repo} changed under this run; nothing was changed", next="run the same command again")
        if branch and commit_of(tree.repo, "HEAD") != tree.head:  # where HEAD itself moves, git compares
            raise Refused(f"HEAD of {tree.repo} moved under this run; nothing was changed", next="run it again")
        check_replaced(tree.repo, tree.index.read_bytes(), staged.replaced)
        digest = hashlib.sha256((room / INDEX).read_bytes()).hexdigest()
        seen = {one.path: _state(f"{tree.repo}/{one.path}") for one in staged.replaced}
        journal = Journal(tree.head, new, branch, room.name, digest, staged.files, staged.removed, seen)
        write_whole(tree.journal, json.dumps(journal).encode())
        _move_head(tree, journal)  # the last thing that can fail for want of space
    except BaseException:
        if commit_of(tree.repo, "HEAD") != new:  # else it is decided, and the next run finishes it
            tree.journal.unlink(missing_ok=True)
            tree.lock.unlink()
        raise
    _finish(tree, journal)
    if in_place or not freshen(tree.index, tree.repo, staged.placed, tree.room / INDEX):
        _refresh(tree)


def _take_lock(tree: WorkTree, room: Path) -> None:
    try:
        os.link(room / INDEX, tree.lock)
    except FileExistsError as held:
        raise Refused(
            f"git holds the index of {tree.repo}; nothing was changed",
            where=str(tree.lock),
            next="let the other git command end; remove the lock only when none runs",
        ) from held


def _finish(tree: WorkTree, journal: Journal) -> None:
    """The renames. Each can be done twice, so a run that died here is finished by calling it again."""
    for gone in map(tree.repo.joinpath, journal.removed):
        if os.path.lexists(gone) and (gone.is_symlink() or not gone.is_dir()):
            gone.unlink()
            remove_empty_above(gone, tree.repo)
    room = tree.own / journal.room
    for name, path in journal.staged:
        _replace(f"{room}/{name}", f"{tree.repo}/{path}")
    _replace(str(tree.lock), str(tree.index))
    _replace(str(room / _RECORD), str(tree.applied))
    tree.journal.unlink()
    tree.clear()


def _replace(source: str, target: str) -> None:
    try:
        os.replace(source, target)
    except FileNotFoundError:
        if not os.path.lexists(source):
            return  # done before this run died
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.replace(source, target)


def _move_head(tree: WorkTree, journal: Journal) -> None:
    why = "patchline: apply"
    if not journal.branch:
        try:
            git(tree.repo, "update-ref", "-m", why, "HEAD", journal.new, journal.old)
        except CommandFailed as failed:
            if commit_of(tree.repo, "HEAD") == journal.old:
                raise
            raise Refused(f"HEAD of {tree.repo} moved under this run", next="run the same command again") from failed
        return
    name = f"refs/heads/{journal.branch}"
    git(tree.repo, "update-ref", "-m", why, name, journal.new)
    try:
        git(tree.repo, "symbolic-ref", "-m", why, "HEAD", name)
    except BaseException:
        git(tree.repo, "update-ref", "-d", name, journal.new)
        raise


def _recover(tree: WorkTree) -> None:
    """Finishes what a run that died had decided, or clears away what it had prepared."""
    if not tree.journal.exists():
        tree.drop_lock()
        tree.clear()
        return
    journal = _read_journal(tree)
    index = tree.lock if tree.lock.exists() else tree.index
    ours = hashlib.sha256(index.read_bytes()).hexdigest() == journal.index_sha256
    if not ours or tree.head not in (journal.old, journal.new):
        say(f"{tree.repo}: another program changed it since a run of patchline died; that run is dropped")
        tree.journal.unlink()
        tree.clear()
        return
    _check_untouched(tree, journal)
    say(f"{tree.repo}: finishing the run that died")
    if tree.head == journal.old:
        _break_locks(tree, journal)
        _move_head(tree, journal)
    _finish(tree, journal)
    _refresh(tree)
    tree.head = journal.new


def _read_journal(tree: WorkTree) -> Journal:
    try:
        return Journal(*json.loads(tree.journal.read_bytes()))
    except (ValueError, TypeError) as broken:
        raise Refused(
            f"a run of patchline died half way in {tree.repo}, and what it left is not understood",
            where=str(tree.journal),
            next=f"git -C {tree.repo} status, put it right, then remove that file and index.lock",
        ) from broken


def _check_untouched(tree: WorkTree, journal: Journal) -> None:
    """Refuses to finish over files that somebody changed since the run died."""
    room = tree.own / journal.room
    left = [path for name, path in journal.staged if os.path.lexists(room / name)] + journal.removed
    states = {path: _state(f"{tree.repo}/{path}") for path in left}
    changed = [path for path, state in states.items() if state and state != journal.seen.get(path)]
    if changed:
        raise Refused(
            f"a run of patchline died half way in {tree.repo}, and these files were changed since\n{some(changed)}",
            where=str(tree.journal),
            next="move them elsewhere, then run the same command again: it finishes that run first",
        )


def _break_locks(tree: WorkTree, journal: Journal) -> None:
    """Removes the ref locks that the dead run's git left; a live git's are gone in a moment."""
    on = git(tree.repo, "symbolic-ref", "-q", "HEAD", ok=(0, 1)).decode().strip()
    names = {"HEAD", on or "HEAD", f"refs/heads/{journal.branch}" if journal.branch else "HEAD"}
    locks = [folder / f"{name}.lock" for name in names for folder in (tree.git_dir, tree.objects.parent)]
    until = time.monotonic() + _PATIENCE
    while any(lock.exists() for lock in locks) and time.monotonic() < until:
        time.sleep(0.05)
    for lock in locks:
        if lock.exists():
            say(f"{tree.repo}: removing {lock.name}, which the run that died left")
            lock.unlink()


def _refresh(tree: WorkTree) -> None:
    work(tree.repo, "update-index", "-q", "--refresh", ok=(0, 1))


def _state(path: str) -> list[int]:
    """Time (in ns) and size of a file; empty where there is none."""
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [status.st_mtime_ns, status.st_size]
