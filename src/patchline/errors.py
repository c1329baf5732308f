"""The one error family and the one table of exit codes.

Every error says what failed, where, and the next command. `cli.main` is the only place that
turns an error into a line and an exit code.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar


class Exit(IntEnum):
    """What a process of this tool ends with; scripts and CI branch on these numbers."""

    DONE = 0
    UNFORESEEN = 1
    USAGE = 2
    DOES_NOT_APPLY = 3
    SOURCE_MISMATCH = 4
    REFUSED = 5
    PROOF_FAILED = 6
    UNREACHABLE = 7
    FINDINGS = 8


class PatchlineError(Exception):
    """An error that its reader can act on: `what` failed, `where`, and the `next` command."""

    exit: ClassVar[Exit] = Exit.UNFORESEEN

    def __init__(self, what: str, *, where: str = "", next: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.next = next

    def __str__(self) -> str:
        lines = [self.what]
        if self.where:
            lines.append(f"  where: {self.where}")
        if self.next:
            lines.append(f"  next:  {self.next}")
        return "\n".join(lines)


class CommandFailed(PatchlineError):
    """Another program ended with a status that we did not foresee."""

    exit = Exit.UNFORESEEN


class UsageError(PatchlineError):
    """A wrong argument, or a file of the project's configuration that is wrong."""

    exit = Exit.USAGE


class DoesNotApply(PatchlineError):
    """A patch does not apply, or is not allowed to write what it wants to write."""

    exit = Exit.DOES_NOT_APPLY


class SourceMismatch(PatchlineError):
    """A source or a file is not what its pin says."""

    exit = Exit.SOURCE_MISMATCH


class Refused(PatchlineError):
    """A gate or a safety rule says no; nothing was changed."""

    exit = Exit.REFUSED


class ProofFailed(PatchlineError):
    """A proof ran and did not show what it has to show, or did not run at all."""

    exit = Exit.PROOF_FAILED


class DidNotEnd(ProofFailed):
    """The tests of a proof took longer than they may, or died without a report."""


class Unreachable(PatchlineError):
    """A daemon, a registry or the network is not there."""

    exit = Exit.UNREACHABLE
