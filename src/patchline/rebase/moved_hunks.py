"""Hunks whose code upstream moved to another file: found by their own lines, and taken there."""

from __future__ import annotations

from collections.abc import Sequence

from patchline.rebase.content import Settled, settle
from patchline.rebase.file_fate import REGULAR
from patchline.rebase.merge import Labels
from patchline.rebase.view import View
from patchline.rebase.whither import Whither, reformatted
from patchline.rebase.words import Conflict, Fate, HunkFate, Where
from patchline.series.hunks import Hunk
from patchline.series.place import place, split
from patchline.series.placement import Rule
from patchline.series.plan import Changes
from patchline.series.trees import Entry

Moved = tuple[dict[int, HunkFate], Changes]
"""The hunks that went to other files, by number from 1, and those files with them."""


class MovedHunks:
    """Looks for the code of one file's hunks in the other files of the new version."""

    def __init__(self, view: View, whither: Whither, labels: Labels) -> None:
        self.view, self.whither, self.labels = view, whither, labels

    def found(self, path: str, hunks: dict[int, Hunk]) -> Moved | None:
        """Those of `hunks` whose code stands whole in another file; None where none does."""
        fates: dict[int, HunkFate] = {}
        changes: Changes = {}
        for to, numbers in self._by_file(path, hunks).items():
            entry = self.view.entry(to)
            if entry is None or entry.mode not in REGULAR:
                continue
            lines, placed, refused = place(to, split(entry.data), [hunks[one] for one in numbers], Rule.UNIQUE)
            if not refused:
                changes[to] = Entry(entry.mode, b"".join(lines))
                for number, one in zip(numbers, placed, strict=True):
                    fates[number] = HunkFate(path, number, Fate.MOVED, one.stated, one.line, to, "its code moved")
        return (fates, changes) if fates else None

    def _by_file(self, path: str, hunks: dict[int, Hunk]) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for number, hunk in hunks.items():
            if where := self.whither.whole(path, hunk.old):
                found.setdefault(where.path, []).append(number)
        return found

    def in_conflict(self, path: str, hunks: Sequence[Hunk], settled: Settled) -> Moved | None:
        """As `found`, of the hunks that are in conflict in their own file."""
        met = {number for one in settled.conflicts for number in one.hunks}
        return self.found(path, {number: hunks[number - 1] for number in sorted(met)})

    def rest(
        self, path: str, before: Entry, present: Entry, hunks: Sequence[Hunk], moved: dict[int, HunkFate]
    ) -> Settled:
        """What becomes of the hunks that did not go to another file."""
        left = [number for number in range(1, len(hunks) + 1) if number not in moved]
        rest = [hunks[number - 1] for number in left]
        if not rest:
            return Settled(present.data, present.data, tuple(moved.values()))
        new = b"".join(place(path, split(before.data), rest, Rule.UNIQUE)[0])
        settled = settle(path, before.data, new, present.data, rest, self.labels)
        fates = moved | {left[one.hunk - 1]: one._replace(hunk=left[one.hunk - 1]) for one in settled.hunks}
        conflicts = tuple(
            one._replace(hunks=tuple(left[number - 1] for number in one.hunks)) for one in settled.conflicts
        )
        return settled._replace(hunks=tuple(fates[number] for number in sorted(fates)), conflicts=conflicts)

    def placed(self, conflict: Conflict, hunks: Sequence[Hunk], path: str, data: bytes) -> Conflict:
        """The conflict with where its code went, when git or its own lines can tell."""
        found: list[Where] = []
        for number in conflict.hunks:
            hunk = hunks[number - 1]
            core = hunk.old[max(hunk.leading - 1, 0) : len(hunk.old) - max(hunk.trailing - 1, 0)]
            where = reformatted(path, core, data) or self.whither.about(path, hunk.old)
            found += [where] if where else []
        return conflict._replace(where=tuple(dict.fromkeys(found)))
