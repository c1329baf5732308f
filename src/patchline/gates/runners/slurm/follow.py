"""Follows a job of Slurm's to its end: its state, its output, and the exit status that it leaves."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

from patchline.errors import CommandFailed
from patchline.gates.runners.slurm import control
from patchline.gates.runners.slurm.control import Seen
from patchline.gates.stack import logs
from patchline.progress import EVERY, say

_LOOK = (0.2, 5.0)
"""Seconds between two looks, first and last: each is a question to the controller of the whole cluster."""
_SILENT = 600.0
"""Seconds for which the controller may not answer; it is restarted now and then, and jobs live on."""
_LAG = 60.0
"""Seconds until a file that was written on a node must be seen here: a network's file system may be late."""


class NeverStarted(Exception):
    """A job got no nodes in time."""


class Job(NamedTuple):
    """A submitted job; its files have its number, so that no two jobs share one."""

    number: str
    out: Path

    @property
    def log(self) -> Path:
        """What it prints."""
        return self.out / f"slurm-{self.number}.log"

    @property
    def status(self) -> Path:
        """The exit status of its command, written last."""
        return self.out / f"slurm-{self.number}.status"


class Follower:
    """Follows one job to its end; `pending` is how long it may wait for nodes, in seconds."""

    def __init__(self, job: Job, pending: float) -> None:
        self.job, self.pending = job, pending
        self.began = self.heard = self.told = time.monotonic()
        self.seen = Seen("SUBMITTED")
        self._place = 0

    def status(self) -> int:
        """Waits, and gives the exit status that the job's command ended with.

        Raises:
            NeverStarted: it got no nodes in time.
            CommandFailed: it ended without a status, or Slurm does not answer any more.
        """
        say(f"job {self.job.number} is submitted; its output: {self.job.log}")
        while not self.seen.ended:
            time.sleep(min(max(_LOOK[0], self.seconds / 20), _LOOK[1]))
            self._look()
            if self.seen.waits and self.seconds > self.pending:
                raise NeverStarted(f"job {self.job.number} got no nodes within {self.pending:.0f} s: {self.seen}")
        return self._kept()

    @property
    def seconds(self) -> float:
        """Since it was submitted."""
        return time.monotonic() - self.began

    def _look(self) -> None:
        before = self.seen.state
        try:
            self.seen = control.seen(self.job.number)
            self.heard = time.monotonic()
        except CommandFailed as failed:
            if time.monotonic() - self.heard > _SILENT:
                raise
            self._tell(f"Slurm's controller does not answer, asked again: {control.said(failed)}")
        if not self._copy():
            self._tell(f"job {self.job.number}, {self.seconds:.0f} s: {self.seen}", self.seen.state != before)

    def _tell(self, text: str, at_once: bool = False) -> None:
        if at_once or time.monotonic() - self.told >= EVERY:
            self.told = time.monotonic()
            say(text)

    def _copy(self, rest: bool = False) -> bool:
        """Says the whole lines that are new in the job's output, at the end the `rest`, too; whether there are any."""
        if not self.job.log.exists():
            return False
        with self.job.log.open("rb") as file:
            file.seek(self._place)
            data = file.read()
        whole = data if rest else data[: data.rfind(b"\n") + 1]
        self._place += len(whole)
        if whole:
            self.told = time.monotonic()
            say(whole.decode(errors="replace").rstrip("\n"))
        return bool(whole)

    def _kept(self) -> int:
        """The status in the job's file; the one of Slurm is lost after a while, and is not asked."""
        there = self.seen.by_itself and self._written()
        self._copy(rest=True)
        if not there:
            raise self._no_status()
        status = int(self.job.status.read_text())
        say(f"job {self.job.number} ended after {self.seconds:.0f} s with status {status}")
        return status

    def _written(self) -> bool:
        until = time.monotonic() + _LAG
        while not self.job.status.exists() and time.monotonic() < until:
            time.sleep(0.5)
            os.listdir(self.job.out)  # has a network's file system look again
        return self.job.status.exists()

    def _no_status(self) -> CommandFailed:
        return CommandFailed(
            f"job {self.job.number} ended without a status: {self.seen}\n{logs.shown(self.job.log)}",
            where=str(self.job.log),
            next="PATCHLINE_SLURM_TIME gives it more time" if self.seen.state == "TIMEOUT" else "",
        )
