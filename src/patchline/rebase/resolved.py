"""A resolved patch, taken as a person left it: checked, recorded, committed; and the patches after it."""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from patchline.rebase import merge, resolutions, state
from patchline.rebase.complaints import check_markers, check_said, check_uncommitted
from patchline.rebase.course import Course, Progress
from patchline.rebase.edited import edited
from patchline.rebase.judge import Behaves, Rebased
from patchline.rebase.kept import dropped
from patchline.rebase.onto import explained
from patchline.rebase.state import State
from patchline.series.plan import Changes
from patchline.series.trees import CommitTree


def resolved(course: Course, found: State, dropping: Collection[str], behaves: Behaves | None) -> Progress:
    """Takes the resolved patch at hand and goes on."""
    tree = state.tree(course.room)
    check_uncommitted(tree, found.head)
    before = CommitTree(tree, found.head)
    one = course.judge.onto(before, found.onto, start=found.at)[0]
    changes = edited(tree, found.head)
    check_markers(tree, changes, one.labels)
    gone = dropped(one, before, changes)
    check_said(course.old.upstream.name, one, gone, dropping)
    taken = one._replace(changes=changes, marked={}, judged=one.judged._replace(conflicts=()))
    more = _recorded(one, changes)
    kept = [taken] if changes else []

    head, done = course.commit(tree, found, kept)
    left = found.left if changes else [*found.left, (one.patch.name, "dropped in its resolution")]
    rest: list[Rebased] = []
    if found.at + 1 < len(course.judge.steps):
        rest = course.judge.onto(CommitTree(tree, head), found.onto, behaves, found.at + 1)
        rest = explained(rest, course.old, course.new)
    following = replace(
        found, head=head, at=found.at + 1, patch="", done=done, left=left, dropped=[*found.dropped, *map(str, gone)],
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
