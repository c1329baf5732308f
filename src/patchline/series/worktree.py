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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from patchline.errors import Refused, UsageError
from patchline.files import PART, locked, write_whole
from patchline.git import Top, git, start_work, top, work
from patchline.progress import say
from patchline.run import Started
from patchline.series.paths import ancestors

_UNFINISHED = {
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "rebase-merge": "a rebase",
    "rebase-apply": "an am or a rebase",
    "BISECT_LOG": "a bisection",
}


_PATIENCE = 2.0  # seconds that a live git may hold a ref's lock

_ROOM, _INDEX, _RECORD = "run-", "index", "applied"


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


class WorkTree:
    """One work tree while this run holds it."""

    def __init__(self, found: Top, checking: Started) -> None:
        self.repo, self.git_dir, self.objects, self.head = found
        self.own = self.git_dir / "patchline"
        self._checking = checking
        self.index, self.lock = self.git_dir / "index", self.git_dir / "index.lock"
        self.journal, self.applied = self.own / "journal.json", self.own / "applied.json"

    def check_clean(self) -> None:
        """Refuses a work tree with changes, or in the middle of something.

        Raises:
            Refused: with the changed files.
        """
        for name, what in _UNFINISHED.items():
            if (self.git_dir / name).exists():
                raise Refused(
                    f"{self.repo} is in the middle of {what}; nothing was changed", next=f"git -C {self.repo} status"
                )
        if self._checking.end(ok=(0, 1)).stdout == b"":
            return
        status = work(self.repo, "status", "--porcelain=v1", "-z", "--untracked-files=no")
        changed = [os.fsdecode(entry[3:]) for entry in status.split(b"\0") if entry[2:3] == b" "]
        if changed:
            raise Refused(
                f"{self.repo} has changes that are not committed; nothing was changed\n{_some(changed)}",
                next=f"commit or stash them: git -C {self.repo} stash",
            )

    def move(self, new: str, *, branch: str = "", record: str = "{}", in_place: bool = False) -> None:
        """Takes work tree, index and HEAD (or a new `branch`) from the present commit to `new`.

        `in_place`: the files of the work tree are those of `new` already; index and HEAD follow.

        Raises:
            Refused: untracked files are in the way, or git holds the index.
        """
        seen = self._stat()
        room = self.room()
        staged, removed = self._prepare(room, new, in_place)
        (room / _RECORD).write_text(record)
        self._take_lock(room)
        try:
            if self._stat() != seen:
                raise Refused(
                    f"{self.repo} changed under this run; nothing was changed", next="run the same command again"
                )
            digest = hashlib.sha256((room / _INDEX).read_bytes()).hexdigest()
            journal = Journal(self.head, new, branch, room.name, digest, staged, removed)
            write_whole(self.journal, json.dumps(journal).encode())
            self._move_head(journal)  # the last thing that can fail for want of space
        except BaseException:
            self.journal.unlink(missing_ok=True)
            self.lock.unlink()
            raise
        self._finish(journal)

    def room(self) -> Path:
        """A new folder for what this run prepares. A git of a run that died may still write in its own."""
        import tempfile

        return Path(tempfile.mkdtemp(prefix=_ROOM, dir=self.own))

    def _prepare(self, room: Path, new: str, in_place: bool) -> tuple[list[tuple[str, str]], list[str]]:
        """Writes the new index and the new files beside the old ones."""
        fields = git(self.repo, "diff-tree", "-r", "-z", "--no-renames", self.head, new).split(b"\0")[:-1]
        changes = [(head.split(b" "), path) for head, path in zip(fields[::2], fields[1::2], strict=True)]
        gone = [path for head, path in changes if head[4] == b"D"]
        there = [(head, path) for head, path in changes if head[4] != b"D"]
        removed = [os.fsdecode(path) for path in gone]
        added = [os.fsdecode(path) for head, path in there if head[4] == b"A"]
        if not in_place:
            self._check_room([os.fsdecode(path) for _, path in there], added, set(removed))
        (room / _INDEX).write_bytes(self.index.read_bytes())
        lines = [b"0 " + head[2] + b"\t" + path for head, path in changes if head[4] == b"D"]
        lines += [head[1] + b" " + head[3] + b"\t" + path for head, path in there]
        env = {"GIT_INDEX_FILE": str(room / _INDEX)}
        git(self.repo, "update-index", "-z", "--index-info", input=b"".join(line + b"\0" for line in lines), env=env)
        if in_place:
            return [], []
        return self._staged(room, {path: int(head[1], 8) for head, path in there}, env), removed

    def _staged(self, room: Path, modes: dict[bytes, int], env: dict[str, str]) -> list[tuple[str, str]]:
        """Lets git write the files: line ends and filters are what a checkout here gives."""
        env = env | {"GIT_DIR": str(self.git_dir), "GIT_WORK_TREE": str(room)}
        names = b"".join(path + b"\0" for path in modes)
        out = work(room, "checkout-index", "-z", "--temp", "--stdin", input=names, env=env)
        pairs = (os.fsdecode(record).partition("\t") for record in out.split(b"\0")[:-1])
        found = [(name, path) for name, _, path in pairs]
        mask = _umask()
        for name, path in found:  # git gives temporary files to their owner alone
            os.chmod(f"{room}/{name}", (0o777 if modes[os.fsencode(path)] & 0o100 else 0o666) & ~mask)
        if len(found) != len(modes):
            raise Refused(
                f"git wrote {len(found)} of {len(modes)} files (a sparse checkout?); nothing was changed",
                where=str(self.repo),
            )
        return found

    def _check_room(self, written: list[str], added: list[str], removed: set[str]) -> None:
        """Refuses to write over what git does not know, or through a symbolic link."""
        folders = {folder for path in written for folder in ancestors(path)}
        present = [path for path in (*added, *folders) if self._in_the_way(path, path in folders, removed)]
        if present:
            raise Refused(
                f"untracked files of {self.repo} are in the way; nothing was changed\n{_some(present)}",
                next="move them away",
            )

    def _in_the_way(self, path: str, as_folder: bool, removed: set[str]) -> bool:
        full = f"{self.repo}/{path}"
        if not os.path.lexists(full):
            return False
        if os.path.islink(full) or not os.path.isdir(full):
            return path not in removed
        left = (
            os.path.relpath(os.path.join(folder, name), self.repo)
            for folder, _, names in os.walk(full)
            for name in names
        )
        return not as_folder and any(name not in removed for name in left)

    def _take_lock(self, room: Path) -> None:
        try:
            os.link(room / _INDEX, self.lock)
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
            git(self.repo, "update-ref", "-m", why, "HEAD", journal.new, journal.old)
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
            if self.lock.exists() and any(self.lock.samefile(index) for index in self.own.glob(f"{_ROOM}*/{_INDEX}")):
                self.lock.unlink()
            self._clear()
            return
        journal = Journal(*json.loads(self.journal.read_bytes()))
        index = self.lock if self.lock.exists() else self.index
        ours = hashlib.sha256(index.read_bytes()).hexdigest() == journal.index_sha256
        if not ours or self.head not in (journal.old, journal.new):
            say(f"{self.repo}: another program changed it since a run of patchline died; that run is dropped")
            self.journal.unlink()
            self._clear()
            return
        say(f"{self.repo}: finishing the run that died")
        if self.head == journal.old:
            self._break_locks(journal)
            self._move_head(journal)
        self._finish(journal)
        self.head = journal.new

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


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _some(paths: list[str], most: int = 10) -> str:
    lines = [f"  {path}" for path in paths[:most]]
    return "\n".join([*lines, f"  … {len(paths) - most} more"] if len(paths) > most else lines)


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
