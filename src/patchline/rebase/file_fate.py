"""The fate of one file of a patch, and the ways to say it for the file as a whole."""

from __future__ import annotations

from typing import NamedTuple

from patchline.rebase.words import Conflict, Fate, HunkFate
from patchline.series.diff import FileDiff
from patchline.series.plan import Changes
from patchline.series.trees import Entry

REGULAR = (0o100644, 0o100755)
"""The modes of files that a patch may write."""


class FileFate(NamedTuple):
    """One file's part of a verdict."""

    changes: Changes
    """What the new version gets, our side where something is in conflict."""
    hunks: tuple[HunkFate, ...]
    conflicts: tuple[Conflict, ...] = ()
    marked: dict[str, Entry] = {}  # noqa: RUF012 - a tuple's field, never changed
    """The files in conflict, with markers; a file that cannot be marked is not among them."""


def alike(diff: FileDiff, fate: Fate) -> tuple[HunkFate, ...]:
    """One fate for all that the diff does."""
    to = diff.new if diff.action in ("rename", "copy") and diff.new else ""
    path = diff.old if to and diff.old else diff.path
    found = []
    for number, hunk in enumerate(diff.hunks, 1):
        size = len(hunk.old) + len(hunk.new) - 2 * (hunk.leading + hunk.trailing)
        standing = size if fate is Fate.UPSTREAM else 0
        found.append(HunkFate(path, number, fate, hunk.old_start, hunk.old_start, to, "", size, standing))
    return tuple(found) or (HunkFate(path, 0, fate, to=to),)


def elsewhere(one: HunkFate, path: str, to: str, note: str) -> HunkFate:
    """The fate of a hunk of `path` that is found in the file `to`."""
    fate = Fate.MOVED if one.fate is Fate.APPLIES else one.fate
    return one._replace(path=path, to=to, fate=fate, note=f"{note}; {one.note}" if one.note else note)
