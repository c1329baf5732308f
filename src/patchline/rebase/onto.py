"""Takes a carried series to another version: verdicts, then the rebased series, or a tree to resolve."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from patchline.errors import Refused
from patchline.pins import GitPin
from patchline.rebase import state, upstream_log
from patchline.rebase.course import Course, Progress
from patchline.rebase.judge import Behaves, Judge, Rebased
from patchline.rebase.ported import ported
from patchline.rebase.state import State
from patchline.series import quilt
from patchline.series.carried import Carried
from patchline.series.trees import CommitTree


def judge_of(old: Carried) -> Judge:
    """The series, ready to be judged on other versions.

    Raises:
        DoesNotApply: it does not apply to its own pin.
        UsageError: there is no series, or folder and series file disagree.
    """
    patches = quilt.patches(quilt.files(old.series, own=True))
    return Judge(CommitTree(old.repo, old.base()), patches, old.name)


def verdicts(judge: Judge, old: Carried, new: Carried, behaves: Behaves | None = None) -> list[Rebased]:
    """The verdicts of a series on a pin, which is checked out where it is not yet; nothing else is written."""
    base = new.base()
    return ported(explained(judge.onto(CommitTree(new.repo, base), new.name, behaves), old, new), old, new)


def explained(done: list[Rebased], old: Carried, new: Carried) -> list[Rebased]:
    """The verdicts with what upstream's log says, where both versions are of git."""
    if isinstance(old.pin, GitPin) and isinstance(new.pin, GitPin):
        return upstream_log.explained(done, old.pin, new.pin)
    return done


def offered(judge: Judge, found: Progress, done: Sequence[Rebased], out: Path) -> Progress:
    """The rebased series of verdicts without a conflict, below the folder `out`; nothing where there is one."""
    if any(one.judged.conflicts for one in done):
        return found
    old, new = found.old, found.new
    folder = out / old.upstream.name / new.pin.version
    made = Course(old, new, judge, state.room(old.project, new.name), folder).complete(_begin(old, new), done)
    return made._replace(judged=found.judged)


def _begin(old: Carried, new: Carried, out: Path | None = None) -> State:
    digest, base = quilt.files(old.series, own=True).digest, new.base()
    return State(
        old=old.name, onto=new.name, series=digest, base=base, head=base, at=0, patch="", done=[], left=[],
        out=str(out.absolute()) if out else "",
    )  # fmt: skip


def rebase(old: Carried, new: Carried, behaves: Behaves | None = None, folder: Path | None = None) -> Progress:
    """Writes the series for `new` beside the old one (or in `folder`), or leaves a tree to resolve.

    Raises:
        Refused: a rebase onto that version waits already, or another series is there.
    """
    judge = judge_of(old)
    room = state.room(old.project, new.name)
    with state.held(room):
        if room.exists():
            raise Refused(
                f"a rebase onto {new.name} waits for hands; nothing was changed",
                where=str(room),
                next=f"python -m patchline rebase {old.upstream.name} --continue, or --abort",
            )
        done = verdicts(judge, old, new, behaves)
        return Course(old, new, judge, room, folder or new.folder).go(_begin(old, new, folder), done)
