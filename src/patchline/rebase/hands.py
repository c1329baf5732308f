"""What a person does with a rebase that waits: look at it, resolve it, go on, or forget it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from patchline.errors import UsageError
from patchline.pins import name_of
from patchline.project import Project
from patchline.rebase import merge, resolutions, state, targets
from patchline.rebase.complaints import check_same
from patchline.rebase.course import Course, Progress
from patchline.rebase.edited import edited
from patchline.rebase.judge import Behaves
from patchline.rebase.onto import explained, judge_of
from patchline.rebase.resolved import resolved
from patchline.rebase.state import State
from patchline.series.carried import Carried, carried
from patchline.series.trees import CommitTree

Tests = Callable[[Carried, Carried], Behaves | None]
"""What runs the patches' tests on stock of the new version, for the old and the new series."""


def status(project: Project, name: str, onto: str = "") -> Progress:
    """The rebase that waits, with what is recorded for its conflicts.

    Raises:
        UsageError: none waits.
    """
    room, found = _waiting(project, name, onto)
    old, new = _both(project, found)
    judge = judge_of(old)
    rest = explained(judge.onto(CommitTree(state.tree(room), found.head), found.onto, start=found.at), old, new)
    stopped = Course(old, new, judge, room, new.folder).stopped(rest[0])
    return stopped._replace(judged=[one.judged for one in rest])


def again(
    project: Project, name: str, onto: str = "", dropping: Collection[str] = (), tests: Tests | None = None
) -> Progress:
    """Takes what a person made of the patch at hand, and goes on with the series; `tests` judge the patches after it.

    Raises:
        UsageError: no rebase waits.
        Refused: markers are left, a hunk is gone that nobody said may go, or the series is another one now.
    """
    room, found = _waiting(project, name, onto)
    old, new = _both(project, found)
    with state.held(room):
        check_same(old, new, found)
        course = Course(old, new, judge_of(old), room, Path(found.out) if found.out else new.folder)
        return resolved(course, found, dropping, tests(old, new) if tests else None)


def _both(project: Project, found: State) -> tuple[Carried, Carried]:
    old = carried(found.old, project)
    return old, targets.again(old, found.onto)


def _waiting(project: Project, spec: str, onto: str) -> tuple[Path, State]:
    old = carried(spec, project)
    name = name_of(old.upstream, old.pin)
    return state.waiting(project, name, f"{name}=={onto}" if onto and "==" not in onto else onto)


def abort(project: Project, name: str, onto: str = "") -> Path:
    """Forgets a rebase that waits; series and pins are as they were all the time."""
    room = _waiting(project, name, onto)[0]
    with state.held(room):
        state.remove(room)
    return room


def take(project: Project, name: str, chosen: str, onto: str = "") -> tuple[Path, int]:
    """Resolves the conflict with the key `chosen` in the waiting tree as it is recorded; file and line.

    Raises:
        UsageError: no such resolution is recorded, or no conflict in the tree is that one.
    """
    room, found = _waiting(project, name, onto)
    old = carried(found.old, project)
    offers = resolutions.recorded(project, old.upstream.name)
    if chosen not in offers:
        raise UsageError(f"no resolution {chosen} is recorded", next=f"python -m patchline rebase {name} --status")
    with state.held(room):
        labels = merge.Labels(found.onto, f"{found.old} before {found.patch}", found.patch)
        for path in edited(state.tree(room), found.head):
            file = state.tree(room) / path
            data = file.read_bytes() if file.is_file() else b""
            blocks = merge.conflicts(data, labels)
            if (made := resolutions.take(data, blocks, offers[chosen].resolution)) is not None:
                file.write_bytes(made)
                return file, _first_difference(data, made)
    raise UsageError(
        f"no conflict in {state.tree(room)} is the one of resolution {chosen}",
        next=f"python -m patchline rebase {name} --status",
    )


def _first_difference(one: bytes, other: bytes) -> int:
    """The first line, from 1, on which two files differ."""
    pairs = enumerate(zip(one.split(b"\n"), other.split(b"\n"), strict=False), 1)
    return next((number for number, (old, new) in pairs if old != new), 1)
