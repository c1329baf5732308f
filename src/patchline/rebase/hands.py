"""What a person does with a rebase that waits: look at it, resolve it, go on, or forget it."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path

from patchline.errors import Refused, UsageError
from patchline.git import git, line
from patchline.pins import name_of
from patchline.project import Project
from patchline.rebase import merge, resolutions, state
from patchline.rebase.course import Course, Progress
from patchline.rebase.judge import Behaves, Rebased
from patchline.rebase.kept import Dropped, dropped
from patchline.rebase.onto import judge_of
from patchline.rebase.state import State
from patchline.series import quilt
from patchline.series.carried import Carried, carried
from patchline.series.plan import Changes
from patchline.series.trees import CommitTree


def status(project: Project, name: str, onto: str = "") -> Progress:
    """The rebase that waits, with what is recorded for its conflicts.

    Raises:
        UsageError: none waits.
    """
    room, found = _waiting(project, name, onto)
    old, new = carried(found.old, project), carried(found.onto, project)
    judge = judge_of(old)
    rest = judge.onto(CommitTree(state.tree(room), found.head), found.onto, start=found.at)
    stopped = Course(old, new, judge, room, new.folder).stopped(rest[0])
    return stopped._replace(judged=[one.judged for one in rest])


def again(
    project: Project, name: str, onto: str = "", dropping: Collection[str] = (), behaves: Behaves | None = None
) -> Progress:
    """Takes what a person made of the patch at hand, and goes on with the series.

    Raises:
        UsageError: no rebase waits.
        Refused: markers are left, a hunk is gone that nobody said may go, or the series is another one now.
    """
    room, found = _waiting(project, name, onto)
    old, new = carried(found.old, project), carried(found.onto, project)
    with state.held(room):
        _check_same(old, new, found)
        course = Course(old, new, judge_of(old), room, new.folder)
        return _resolved(course, found, dropping, behaves)


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
        labels = _labels(found)
        for path in _changed(state.tree(room), found.head):
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


def _labels(found: State) -> merge.Labels:
    return merge.Labels(found.onto, f"{found.old} before {found.patch}", found.patch)


def _check_same(old: Carried, new: Carried, found: State) -> None:
    """The rest of the rebase is for the series and the pin that it began with."""
    name = old.upstream.name
    if quilt.files(old.series, own=True).digest != found.series:
        what, where = f"the patches of {old.name} changed since the rebase began", str(old.folder)
    elif new.base() != found.base:
        what, where = f"{new.name} is pinned to something else since the rebase began", str(new.repo)
    else:
        return
    raise Refused(
        f"{what}; nothing was changed",
        where=where,
        next=f"python -m patchline rebase {name} --abort, then --onto {new.pin.version}",
    )


def _changed(tree: Path, head: str) -> Changes:
    """What the files of a tree are, where they are not what `head` says; new files included."""
    index = tree / ".git" / "patchline-index"
    index.write_bytes((tree / ".git" / "index").read_bytes())
    env = {"GIT_INDEX_FILE": str(index)}
    try:
        git(tree, "add", "-A", env=env)
        made = git(tree, "write-tree", env=env).decode().strip()
    finally:
        index.unlink()
    names = git(tree, "diff-tree", "-r", "-z", "--no-renames", "--name-only", head, made)
    paths = [os.fsdecode(name) for name in names.split(b"\0")[:-1]]
    found = CommitTree(tree, made)
    found.load(paths)
    return {path: found.entry(path) for path in paths}


def _resolved(course: Course, found: State, dropping: Collection[str], behaves: Behaves | None) -> Progress:
    """Takes the resolved patch at hand and goes on."""
    tree = state.tree(course.room)
    if line(tree, "rev-parse", "--verify", "HEAD^{commit}") != found.head:
        raise Refused(
            f"{tree} has commits that this rebase did not make; nothing was changed",
            where=str(tree),
            next=f"leave the resolution uncommitted: git -C {tree} reset --soft {found.head}",
        )
    before = CommitTree(tree, found.head)
    one = course.judge.onto(before, found.onto, start=found.at)[0]
    changes = _changed(tree, found.head)
    _check_markers(tree, changes, one.labels)
    gone = dropped(one, before, changes)
    _check_said(course.old.upstream.name, one, gone, dropping)
    taken = one._replace(changes=changes, marked={}, judged=one.judged._replace(conflicts=()))
    more = _recorded(one, changes)
    kept = [taken] if changes else []

    head, done = course.commit(tree, found, kept)
    left = found.left if changes else [*found.left, (one.patch.name, "dropped in its resolution")]
    rest: list[Rebased] = []
    if found.at + 1 < len(course.judge.steps):
        rest = course.judge.onto(CommitTree(tree, head), found.onto, behaves, found.at + 1)
    following = State(
        old=found.old, onto=found.onto, series=found.series, base=found.base, head=head, at=found.at + 1,
        patch="", done=done, left=left, dropped=[*found.dropped, *map(str, gone)],
        resolutions=resolutions.as_json([*resolutions.decoded(found.resolutions), *more]),
    )  # fmt: skip
    gone_now = tuple(f"{one.patch.name}: {name}" for name in gone)
    return course.go(following, rest)._replace(dropped=gone_now)


def _recorded(one: Rebased, changes: Changes) -> list[resolutions.Resolution]:
    found: list[resolutions.Resolution] = []
    for path, entry in one.marked.items():
        now = changes.get(path)
        if now is not None:
            blocks = merge.conflicts(entry.data, one.labels)
            found += resolutions.record(one.patch.name, path, entry.data, blocks, now.data)
    return found


def _check_markers(tree: Path, changes: Changes, labels: merge.Labels) -> None:
    left = [
        f"  {path}: line {number}"
        for path, entry in changes.items()
        if entry
        for number in merge.markers_left(entry.data, labels)
    ]
    if left:
        raise Refused(
            "conflict markers are left; nothing was changed\n" + "\n".join(left),
            where=str(tree),
            next="resolve them, then run the same command again",
        )


def _check_said(name: str, one: Rebased, gone: Sequence[Dropped], dropping: Collection[str]) -> None:
    if strangers := set(dropping) - {str(each) for each in gone}:
        raise UsageError(
            f"{min(strangers)} is no hunk that the resolution of {one.patch.name} drops",
            next=f"dropped are: {', '.join(map(str, gone)) or 'none'}",
        )
    unsaid = [str(each) for each in gone if str(each) not in dropping]
    if unsaid:
        raise Refused(
            f"the resolution holds nothing of these hunks of {one.patch.name}; nothing was changed\n"
            + "\n".join(f"  {each}" for each in unsaid),
            where="a hunk is named FILE:NUMBER, as in the patch",
            next=f"put them back, or say that they may go: python -m patchline rebase {name} --continue "
            + " ".join(f"--drop-hunk {each}" for each in unsaid),
        )
