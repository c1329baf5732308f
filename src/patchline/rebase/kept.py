"""Whether a resolution still holds every hunk of its patch: one that it dropped has to be said."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import NamedTuple

from patchline.rebase.judge import Rebased
from patchline.rebase.runs import substantial
from patchline.rebase.words import Fate, HunkFate
from patchline.series.hunks import Hunk
from patchline.series.place import split
from patchline.series.plan import Changes
from patchline.series.trees import Entry, Tree

_ALIKE = 0.6


class Dropped(NamedTuple):
    """A hunk of which nothing is left."""

    path: str
    hunk: int

    def __str__(self) -> str:
        return f"{self.path}:{self.hunk}"


def dropped(one: Rebased, before: Tree, resolved: Changes) -> list[Dropped]:
    """The hunks of a patch of which `resolved`, what changes on `before`, holds nothing.

    A hunk that upstream has needs nothing. A line counts as held where it, or a changed form of
    it, is among the lines that came (or went, for a hunk that only removes).
    """
    hunks = {(diff.path, number): hunk for diff in one.patch.files for number, hunk in enumerate(diff.hunks, 1)}
    olds = {diff.old: diff.path for diff in one.patch.files if diff.old}
    changed = _Changed(before, resolved)
    found = []
    for fate in one.judged.hunks:
        if fate.fate is Fate.UPSTREAM:
            continue
        hunk = hunks.get((fate.path, fate.hunk)) or hunks.get((olds.get(fate.path, ""), fate.hunk))
        if not _held(fate, hunk, changed):
            found.append(Dropped(fate.path, fate.hunk))
    return found


class _Changed:
    """The lines that came and went in all files together: a hunk may have been put into another one."""

    def __init__(self, before: Tree, resolved: Changes) -> None:
        self.resolved = resolved
        self.came: Counter[bytes] = Counter()
        self.went: Counter[bytes] = Counter()
        for path, entry in resolved.items():
            old, new = _lines(before.entry(path)), _lines(entry)
            self.came += new - old
            self.went += old - new


def _lines(entry: Entry | None) -> Counter[bytes]:
    return Counter(line.strip() for line in split(entry.data)) if entry else Counter()


def _held(fate: HunkFate, hunk: Hunk | None, changed: _Changed) -> bool:
    if hunk is None:  # a mode, a binary file, a rename
        return bool({fate.path, fate.to} & changed.resolved.keys())
    old, new = (Counter(line.strip() for line in side) for side in (hunk.old, hunk.new))
    added, removed = list(_telling(new - old)), list(_telling(old - new))
    if added:
        return any(_among(line, changed.came) for line in added)
    if removed:
        return any(line in changed.went for line in removed)
    return bool({fate.path, fate.to} & changed.resolved.keys())


def _telling(lines: Counter[bytes]) -> Iterator[bytes]:
    return (line for line in lines if substantial([line]))


def _among(line: bytes, came: Counter[bytes]) -> bool:
    if line in came:
        return True
    return any(SequenceMatcher(None, line, other, autojunk=False).ratio() >= _ALIKE for other in came)
