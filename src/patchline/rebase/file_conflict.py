"""A file that is in conflict as a whole: both sides changed what cannot be merged, or one removed it."""

from __future__ import annotations

from typing import NamedTuple

from patchline.rebase.content import text
from patchline.rebase.file_fate import FileFate, alike
from patchline.rebase.merge import Labels, merge
from patchline.rebase.words import Conflict, Fate, Where
from patchline.series.diff import FileDiff
from patchline.series.trees import Entry


class Three(NamedTuple):
    """A file before and after its patch, and on the new version; None where there is no such file."""

    before: Entry | None
    present: Entry | None
    after: Entry | None

    @property
    def mode(self) -> int:
        """The mode that the file has or had, in git's numbers."""
        return (self.present or self.after or self.before or Entry(0o100644, b"")).mode


def conflict(
    diff: FileDiff, path: str, sides: Three, labels: Labels, why: str, where: tuple[Where, ...] = ()
) -> FileFate:
    """The whole file `path` in conflict; nothing of `diff` is done."""
    base, ours, theirs = (text([data]) if b"\0" not in data else f"{len(data)} bytes\n" for data in _shown(diff, sides))
    numbers = tuple(range(1, len(diff.hunks) + 1))
    found = Conflict(path, numbers, int(sides.present is not None), base, ours, theirs, why, where)
    return FileFate({}, alike(diff, Fate.CONFLICTS), (found,), _marked(path, sides, labels))


def _data(sides: Three) -> list[bytes]:
    return [entry.data if entry else b"" for entry in sides]


def _shown(diff: FileDiff, sides: Three) -> list[bytes]:
    """Base, ours and theirs; of a change of text only the lines of its hunks."""
    base, ours, theirs = _data(sides)
    if not (diff.hunks and sides.before and sides.after):
        return [base, ours, theirs]
    old = b"".join(line for hunk in diff.hunks for line in hunk.old)
    new = b"".join(line for hunk in diff.hunks for line in hunk.new)
    return [old, ours, new]


def _marked(path: str, sides: Three, labels: Labels) -> dict[str, Entry]:
    """The file with markers; nothing for a binary one, and for one that merges without a conflict."""
    base, ours, theirs = _data(sides)
    if b"\0" in base + ours + theirs:
        return {}
    merged = merge(ours, base, theirs, labels)
    return {path: Entry(sides.mode, merged.data)} if merged.blocks else {}
