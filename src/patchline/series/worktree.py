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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from patchline.errors import CommandFailed, Refused, UsageError
from patchline.files import PART, locked, write_whole
from patchline.git import Top, commit_of, git, start_work, top, work
from patchline.progress import say
from patchline.run import Started
from patchline.series.drafts import Draft
from patchline.series.index_entries import freshen
from patchline.series.staging import INDEX, check_replaced, some, stage

_UNFINISHED = {
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "rebase-merge": "a rebase",
    "rebase-apply": "an am or a rebase",
    "BISECT_LOG": "a bisection",
}


_PATIENCE = 2.0  # seconds that a live git may hold a ref's lock

_ROOM, _RECORD = "run-", "applied"


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


class WorkTree:
    """One work tree while this run holds it."""

    def __init__(self, found: Top, checking: Started) -> None:
        self.repo, self.git_dir, self.objects, self.head = found
        self.own = self.git_dir / "patchline"
        self._checking = checking
        self._room: Path | None = None
        self.index, self.lock = self.git_dir / "index", self.git_dir / "index.lock"
        self.journal, self.applied = self.own / "journal.json", self.own / "applied.json"

    def branch(self) -> str:
        """Name of the checked-out branch; empty where HEAD is detached."""
        text = (self.git_dir / "HEAD").read_text("utf-8", "surrogateescape").strip()
        return text.removeprefix("ref: refs/heads/") if text.startswith("ref: ") else ""

    def check_settled(self) -> None:
        """Refuses a work tree in the middle of a merge, a rebase or the like, or with unmerged files.

        Raises:
            Refused: with what it is in the middle of.
        """
        for name, what in _UNFINISHED.items():
            if (self.git_dir / name).exists():
                raise Refused(
                    f"{self.repo} is in the middle of {what}; nothing was changed", next=f"git -C {self.repo} status"
                )

    def check_clean(self) -> None:
        """Refuses a work tree with changes, or in the middle of something.

        Raises:
            Refused: with the changed files.
        """
        self.check_settled()
        if self._checking.end(ok=(0, 1)).stdout == b"":
            return
        status = work(self.repo, "status", "--porcelain=v1", "-z", "--untracked-files=no")
        changed = [os.fsdecode(entry[3:]) for entry in status.split(b"\0") if entry[2:3] == b" "]
        if changed:
            raise Refused(
                f"{self.repo} has changes that are not committed; nothing was changed\n{some(changed)}",
                next=f"commit or stash them: git -C {self.repo} stash",
            )

    def move(
        self,
        new: str,
        *,
        branch: str = "",
        record: str = "{}",
        drafts: Mapping[str, Draft] | None = None,
        in_place: bool = False,
    ) -> None:
        """Takes work tree, index and HEAD (or a new `branch`) from the present commit to `new`.

        `drafts` are files that lie in `room` already. `in_place`: the files of the work tree are
        those of `new` already; index and HEAD follow.

        Raises:
            Refused: untracked files are in the way, or git holds the index.
        """
        stat = self._stat()
        room = self.room
        staged = stage(self.repo, self.git_dir, room, self.head, new, drafts=drafts or {}, in_place=in_place)
        (room / _RECORD).write_text(record)
        self._take_lock(room)
        try:
            if self._stat() != stat:
                raise Refused(
                    f"{self.repo} changed under this run; nothing was changed", next="run the same command again"
                )
            if branch and commit_of(self.repo, "HEAD") != self.head:  # where HEAD itself moves, git compares
                raise Refused(f"HEAD of {self.repo} moved under this run; nothing was changed", next="run it again")
            check_replaced(self.repo, self.index.read_bytes(), staged.replaced)
            digest = hashlib.sha256((room / INDEX).read_bytes()).hexdigest()
            seen = {one.path: _state(f"{self.repo}/{one.path}") for one in staged.replaced}
            journal = Journal(self.head, new, branch, room.name, digest, staged.files, staged.removed, seen)
            write_whole(self.journal, json.dumps(journal).encode())
            self._move_head(journal)  # the last thing that can fail for want of space
        except BaseException:
            if commit_of(self.repo, "HEAD") != new:  # else it is decided, and the next run finishes it
                self.journal.unlink(missing_ok=True)
                self.lock.unlink()
            raise
        self._finish(journal)
        if in_place or not freshen(self.index, self.repo, staged.placed, self.room / INDEX):
            self._refresh()

    @property
    def room(self) -> Path:
        """A folder for what this run prepares. A git of a run that died may still write in its own."""
        if self._room is None or not self._room.exists():
            import tempfile

            self._room = Path(tempfile.mkdtemp(prefix=_ROOM, dir=self.own))
        return self._room

    def _take_lock(self, room: Path) -> None:
        try:
            os.link(room / INDEX, self.lock)
        except FileExistsError as held:
            raise Refused(
                f"git holds the index of {self.repo}; nothing was changed",
                where=str(self.lock),
                next="let the other git command end; remove the lock only when none runs",
            ) from held

    def _finish(self, journal: Journal) -> None:
        """The renames. Each can be done twice, so a run that died here is finished by calling it again."""
        for gone in map(self.repo.joinpath, journal.removed):
            if os.path.lexists(gone) and (gone.is_symlink() or not gone.is_dir()):
                gone.unlink()
                self._remove_empty(gone)
        room = self.own / journal.room
        for name, path in journal.staged:
            self._replace(f"{room}/{name}", f"{self.repo}/{path}")
        self._replace(str(self.lock), str(self.index))
        self._replace(str(room / _RECORD), str(self.applied))
        self.journal.unlink()
        self._clear()

    def _refresh(self) -> None:
        work(self.repo, "update-index", "-q", "--refresh", ok=(0, 1))

    def _replace(self, source: str, target: str) -> None:
        try:
            os.replace(source, target)
        except FileNotFoundError:
            if not os.path.lexists(source):
                return  # done before this run died
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.replace(source, target)

    def _remove_empty(self, path: Path) -> None:
        with suppress(OSError):  # the first folder that is not empty ends it
            for folder in path.parents:
                if folder == self.repo:
                    break
                folder.rmdir()

    def _move_head(self, journal: Journal) -> None:
        why = "patchline: apply"
        if not journal.branch:
            try:
                git(self.repo, "update-ref", "-m", why, "HEAD", journal.new, journal.old)
            except CommandFailed as failed:
                if commit_of(self.repo, "HEAD") == journal.old:
                    raise
                raise Refused(
                    f"HEAD of {self.repo} moved under this run", next="run the same command again"
                ) from failed
            return
        name = f"refs/heads/{journal.branch}"
        git(self.repo, "update-ref", "-m", why, name, journal.new)
        try:
            git(self.repo, "symbolic-ref", "-m", why, "HEAD", name)
        except BaseException:
            git(self.repo, "update-ref", "-d", name, journal.new)
            raise

    def write_record(self, record: str) -> None:
        """Replaces the record of what is applied."""
        write_whole(self.applied, record.encode())

    def recover(self) -> None:
        """Finishes what a run that died had decided, or clears away what it had prepared."""
        if not self.journal.exists():
            if self.lock.exists() and any(self.lock.samefile(index) for index in self.own.glob(f"{_ROOM}*/{INDEX}")):
                self.lock.unlink()
            self._clear()
            return
        journal = self._read_journal()
        index = self.lock if self.lock.exists() else self.index
        ours = hashlib.sha256(index.read_bytes()).hexdigest() == journal.index_sha256
        if not ours or self.head not in (journal.old, journal.new):
            say(f"{self.repo}: another program changed it since a run of patchline died; that run is dropped")
            self.journal.unlink()
            self._clear()
            return
        self._check_untouched(journal)
        say(f"{self.repo}: finishing the run that died")
        if self.head == journal.old:
            self._break_locks(journal)
            self._move_head(journal)
        self._finish(journal)
        self._refresh()
        self.head = journal.new

    def _read_journal(self) -> Journal:
        try:
            return Journal(*json.loads(self.journal.read_bytes()))
        except (ValueError, TypeError) as broken:
            raise Refused(
                f"a run of patchline died half way in {self.repo}, and what it left is not understood",
                where=str(self.journal),
                next=f"git -C {self.repo} status, put it right, then remove that file and index.lock",
            ) from broken

    def _check_untouched(self, journal: Journal) -> None:
        """Refuses to finish over files that somebody changed since the run died."""
        room = self.own / journal.room
        left = [path for name, path in journal.staged if os.path.lexists(room / name)] + journal.removed
        states = {path: _state(f"{self.repo}/{path}") for path in left}
        changed = [path for path, state in states.items() if state and state != journal.seen.get(path)]
        if changed:
            raise Refused(
                f"a run of patchline died half way in {self.repo}, and these files were changed since\n{some(changed)}",
                where=str(self.journal),
                next="move them elsewhere, then run the same command again: it finishes that run first",
            )

    def _break_locks(self, journal: Journal) -> None:
        """Removes the ref locks that the dead run's git left; a live git's are gone in a moment."""
        on = git(self.repo, "symbolic-ref", "-q", "HEAD", ok=(0, 1)).decode().strip()
        names = {"HEAD", on or "HEAD", f"refs/heads/{journal.branch}" if journal.branch else "HEAD"}
        locks = [folder / f"{name}.lock" for name in names for folder in (self.git_dir, self.objects.parent)]
        until = time.monotonic() + _PATIENCE
        while any(lock.exists() for lock in locks) and time.monotonic() < until:
            time.sleep(0.05)
        for lock in locks:
            if lock.exists():
                say(f"{self.repo}: removing {lock.name}, which the run that died left")
                lock.unlink()

    def tidy(self) -> None:
        """Removes what this run prepared and did not use; what a journal speaks of stays."""
        if not self.journal.exists():
            self._clear()

    def _clear(self) -> None:
        rooms = list(self.own.glob(f"{_ROOM}*"))
        if rooms:
            import shutil

            for room in rooms:
                shutil.rmtree(room, ignore_errors=True)
        for part in self.own.glob(f"{PART}*"):
            part.unlink()

    def _stat(self) -> tuple[int, int, int]:
        status = self.index.stat()
        return status.st_ino, status.st_mtime_ns, status.st_size


def _state(path: str) -> list[int]:
    """Time (in ns) and size of a file; empty where there is none."""
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [status.st_mtime_ns, status.st_size]


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
            tree.recover()
            try:
                yield tree
            finally:
                tree.tidy()
    finally:
        checking.stop()
