"""A checked-out work tree while this run holds it: what it is, whether it is clean, what is prepared."""

from __future__ import annotations

import os
import time
from pathlib import Path

from patchline.errors import Refused
from patchline.files import PART, write_whole
from patchline.git import Top, work
from patchline.run import Started
from patchline.series.staging import INDEX, some

_UNFINISHED = {
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "rebase-merge": "a rebase",
    "rebase-apply": "an am or a rebase",
    "BISECT_LOG": "a bisection",
}
_ROOM = "run-"  # begins the name of every folder in which a run prepares something


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

    @property
    def room(self) -> Path:
        """A folder for what this run prepares. A git of a run that died may still write in its own."""
        if self._room is None or not self._room.exists():
            self._room = self.own / f"{_ROOM}{os.getpid()}-{time.time_ns()}"
            self._room.mkdir(mode=0o700)
        return self._room

    def write_record(self, record: str) -> None:
        """Replaces the record of what is applied."""
        write_whole(self.applied, record.encode())

    def drop_lock(self) -> None:
        """Removes git's lock on the index where a dead run of ours left it."""
        if self.lock.exists() and any(self.lock.samefile(index) for index in self.own.glob(f"{_ROOM}*/{INDEX}")):
            self.lock.unlink()

    def tidy(self) -> None:
        """Removes what this run prepared and did not use; what a journal speaks of stays."""
        if not self.journal.exists():
            self.clear()

    def clear(self) -> None:
        """Removes all that was prepared, by this run and by dead ones."""
        rooms = list(self.own.glob(f"{_ROOM}*"))
        if rooms:
            import shutil

            for room in rooms:
                shutil.rmtree(room, ignore_errors=True)
        for part in self.own.glob(f"{PART}*"):
            part.unlink()

    def stat(self) -> tuple[int, int, int]:
        """What tells whether somebody wrote the index."""
        status = self.index.stat()
        return status.st_ino, status.st_mtime_ns, status.st_size
