"""What becomes of a patch's diff of one file on the new version, whatever kind of change it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from patchline.errors import DoesNotApply
from patchline.rebase.content import Settled, settle, text
from patchline.rebase.merge import Labels, merge
from patchline.rebase.view import View
from patchline.rebase.whither import Whither, reformatted
from patchline.rebase.words import Conflict, Fate, HunkFate, Where
from patchline.series.diff import FileDiff
from patchline.series.hunks import Hunk
from patchline.series.patch import Patch
from patchline.series.place import place, split
from patchline.series.placement import Rule
from patchline.series.plan import Changes, plan
from patchline.series.trees import Entry

_REGULAR = (0o100644, 0o100755)


class FileFate(NamedTuple):
    """One file's part of a verdict."""

    changes: Changes
    """What the new version gets, our side where something is in conflict."""
    hunks: tuple[HunkFate, ...]
    conflicts: tuple[Conflict, ...] = ()
    marked: dict[str, Entry] = {}  # noqa: RUF012 - a tuple's field, never changed
    """The files in conflict, with markers; a file that cannot be marked is not among them."""


class Files:
    """Judges one patch's files against the new version as it is so far."""

    def __init__(self, patch: Patch, view: View, whither: Whither, labels: Labels) -> None:
        self.patch, self.view, self.whither, self.labels = patch, view, whither, labels

    def fate(self, diff: FileDiff, before: Entry | None, after: Entry | None) -> FileFate:
        """What becomes of `diff`, which makes `after` of `before` on its own pin."""
        by_action: dict[str, Callable[[FileDiff, Entry | None, Entry | None], FileFate]] = {
            "create": self._create, "delete": self._delete, "rename": self._move, "copy": self._move
        }  # fmt: skip
        return by_action.get(diff.action, self._modify)(diff, before, after)

    def _strictly(self, diff: FileDiff) -> Changes | str:
        """What the series engine makes of this file alone, or why it refuses."""
        try:
            return plan(self.view, [self.patch._replace(files=(diff,))]).steps[0].changes
        except DoesNotApply as refused:
            return refused.what.partition("\n")[2].strip() or refused.what

    def _create(self, diff: FileDiff, _: Entry | None, after: Entry | None) -> FileFate:
        assert after is not None
        path = diff.path
        present = self.view.entry(path)
        if present is None:
            made = self._strictly(diff)
            if not isinstance(made, str):
                return FileFate(made, _all(diff, Fate.APPLIES))
            return self._conflict(diff, path, None, None, after, made)
        if present.data == after.data:
            return FileFate({}, _all(diff, Fate.UPSTREAM))
        settled = settle(path, b"", after.data, present.data, diff.hunks, self.labels)
        if not settled.conflicts:
            return FileFate({}, settled.hunks)
        return self._conflict(diff, path, None, present, after, "upstream made a file of this name")

    def _delete(self, diff: FileDiff, before: Entry | None, _: Entry | None) -> FileFate:
        assert before is not None
        path = diff.path
        present = self.view.entry(path)
        if present is None and not (to := self.whither.renamed(path)):
            return FileFate({}, _all(diff, Fate.UPSTREAM))
        if present is None:
            where = (Where(to, 1, "renamed"),)
            return self._conflict(diff, path, before, None, None, "upstream renamed the file", where)
        made = self._strictly(diff)
        if not isinstance(made, str):
            return FileFate(made, _all(diff, Fate.APPLIES))
        return self._conflict(diff, path, before, present, None, "upstream changed the file that the patch removes")

    def _move(self, diff: FileDiff, before: Entry | None, after: Entry | None) -> FileFate:
        assert before is not None
        assert after is not None
        assert diff.old is not None
        assert diff.new is not None
        made = self._strictly(diff)
        if not isinstance(made, str):
            return FileFate(made, _all(diff, Fate.APPLIES))
        source, target = self.view.entry(diff.old), self.view.entry(diff.new)
        if source is None and target is not None and diff.action == "rename":
            moved = HunkFate(diff.old, 0, Fate.UPSTREAM, to=diff.new)
            found = self._content(diff, diff.new, before, after, target)
            return found._replace(hunks=(moved, *found.hunks))
        if source is not None and target is None:
            found = self._content(diff, diff.new, before, after, source)
            changes: Changes = {diff.new: found.changes.get(diff.new) or source}
            if diff.action == "rename":
                changes[diff.old] = None
            moved = HunkFate(diff.old, 0, Fate.APPLIES, to=diff.new)
            return found._replace(changes=changes, hunks=(moved, *found.hunks))
        to = self.whither.renamed(diff.old) if source is None else ""
        where = (Where(to, 1, "renamed"),) if to else ()
        return self._conflict(diff, diff.new, before, target, after, made, where)

    def _modify(self, diff: FileDiff, before: Entry | None, after: Entry | None) -> FileFate:
        assert before is not None
        assert after is not None
        path = diff.path if self.view.entry(diff.path) or not diff.old else diff.old
        present = self.view.entry(path)
        if present is None:
            return self._gone(diff, path, before, after)
        return self._content(diff, path, before, after, present)

    def _gone(self, diff: FileDiff, path: str, before: Entry, after: Entry) -> FileFate:
        """The file is no longer there: it was renamed, or its code went elsewhere, or it was removed."""
        to = self.whither.renamed(path)
        present = self.view.entry(to) if to else None
        if present is not None:
            found = self._content(diff, to, before, after, present)
            hunks = tuple(_elsewhere(one, path, to, "renamed") for one in found.hunks)
            where = Where(to, 1, "renamed")
            conflicts = tuple(
                one._replace(where=(where._replace(line=max(one.line, 1)), *one.where)) for one in found.conflicts
            )
            return found._replace(hunks=hunks, conflicts=conflicts)
        moved = self._moved(path, dict(enumerate(diff.hunks, 1)))
        if moved and len(moved[0]) == len(diff.hunks):
            return FileFate(moved[1], tuple(moved[0].values()))
        places = (self.whither.about(path, hunk.old) for hunk in diff.hunks)
        where_all = tuple(dict.fromkeys(place for place in places if place))
        return self._conflict(diff, path, before, None, after, "upstream removed the file", where_all)

    def _content(self, diff: FileDiff, path: str, before: Entry, after: Entry, present: Entry) -> FileFate:
        """The change of a file that is there, under `path`."""
        if present.mode not in _REGULAR:
            return self._conflict(diff, path, before, None, after, "it is no regular file there")
        if diff.binary or not diff.hunks:
            return self._whole(diff, path, before, after, present)
        mode = diff.new_mode if diff.new_mode and present.mode == before.mode else present.mode
        settled = settle(path, before.data, after.data, present.data, diff.hunks, self.labels)
        moved: Changes = {}
        if settled.conflicts and (found := self._moved_of(path, diff.hunks, settled)):
            settled, moved = self._without(path, before, present, diff.hunks, found[0]), found[1]
        conflicts = tuple(self._placed(one, diff.hunks, path, present.data) for one in settled.conflicts)
        changes = {} if (settled.data, mode) == (present.data, present.mode) else {path: Entry(mode, settled.data)}
        marked = {path: Entry(mode, settled.marked)} if conflicts else {}
        return FileFate({**changes, **moved}, settled.hunks, conflicts, marked)

    def _whole(self, diff: FileDiff, path: str, before: Entry, after: Entry, present: Entry) -> FileFate:
        """A binary file, or a mode: ours, theirs, or in conflict."""
        if (present.data, present.mode) == (after.data, after.mode):
            return FileFate({}, (HunkFate(path, 0, Fate.UPSTREAM),))
        if not diff.binary and diff.new_mode:
            fate = Fate.UPSTREAM if present.mode == after.mode else Fate.APPLIES
            changes: Changes = {} if fate is Fate.UPSTREAM else {path: Entry(after.mode, present.data)}
            return FileFate(changes, (HunkFate(path, 0, fate),))
        if present.data == before.data:
            return FileFate({path: after}, (HunkFate(path, 0, Fate.APPLIES),))
        return self._conflict(diff, path, before, None, after, "upstream changed the binary file")

    def _moved_of(
        self, path: str, hunks: Sequence[Hunk], settled: Settled
    ) -> tuple[dict[int, HunkFate], Changes] | None:
        """The hunks in conflict whose code stands whole in another file, and that file with them."""
        met = {number for one in settled.conflicts for number in one.hunks}
        return self._moved(path, {number: hunks[number - 1] for number in sorted(met)})

    def _moved(self, path: str, hunks: dict[int, Hunk]) -> tuple[dict[int, HunkFate], Changes] | None:
        by_file: dict[str, list[int]] = {}
        for number, hunk in hunks.items():
            if where := self.whither.whole(path, hunk.old):
                by_file.setdefault(where.path, []).append(number)
        fates: dict[int, HunkFate] = {}
        changes: Changes = {}
        for to, numbers in by_file.items():
            entry = self.view.entry(to)
            if entry is None or entry.mode not in _REGULAR:
                continue
            lines, placed, refused = place(to, split(entry.data), [hunks[one] for one in numbers], Rule.UNIQUE)
            if not refused:
                changes[to] = Entry(entry.mode, b"".join(lines))
                for number, one in zip(numbers, placed, strict=True):
                    fates[number] = HunkFate(path, number, Fate.MOVED, one.stated, one.line, to, "its code moved")
        return (fates, changes) if fates else None

    def _without(
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

    def _placed(self, conflict: Conflict, hunks: Sequence[Hunk], path: str, data: bytes) -> Conflict:
        """The conflict with where its code went, when git or its own lines can tell."""
        found: list[Where] = []
        for number in conflict.hunks:
            hunk = hunks[number - 1]
            core = hunk.old[max(hunk.leading - 1, 0) : len(hunk.old) - max(hunk.trailing - 1, 0)]
            place = reformatted(path, core, data) or self.whither.about(path, hunk.old)
            found += [place] if place else []
        return conflict._replace(where=tuple(dict.fromkeys(found)))

    def _conflict(
        self,
        diff: FileDiff,
        path: str,
        before: Entry | None,
        present: Entry | None,
        after: Entry | None,
        why: str,
        where: tuple[Where, ...] = (),
    ) -> FileFate:
        """The whole file in conflict."""
        numbers = tuple(range(1, len(diff.hunks) + 1))
        sides = [entry.data if entry else b"" for entry in (before, present, after)]
        shown = sides
        if diff.hunks and before and after:
            old, new = (b"".join(line for lines in side for line in lines) for side in _both(diff))
            shown = [old, sides[1], new]
        base, ours, theirs = (text([data]) if b"\0" not in data else f"{len(data)} bytes\n" for data in shown)
        conflict = Conflict(path, numbers, int(present is not None), base, ours, theirs, why, where)
        marked: dict[str, Entry] = {}
        if b"\0" not in b"".join(sides):
            merged = merge(sides[1], sides[0], sides[2], self.labels)
            mode = (present or after or before or Entry(0o100644, b"")).mode
            marked = {path: Entry(mode, merged.data)} if merged.blocks else {}
        return FileFate({}, _all(diff, Fate.CONFLICTS), (conflict,), marked)


def _both(diff: FileDiff) -> tuple[list[list[bytes]], list[list[bytes]]]:
    """The lines of every hunk before and after."""
    return [hunk.old for hunk in diff.hunks], [hunk.new for hunk in diff.hunks]


def _all(diff: FileDiff, fate: Fate) -> tuple[HunkFate, ...]:
    """One fate for all that the diff does."""
    to = diff.new if diff.action in ("rename", "copy") and diff.new else ""
    path = diff.old if to and diff.old else diff.path
    found = []
    for number, hunk in enumerate(diff.hunks, 1):
        size = len(hunk.old) + len(hunk.new) - 2 * (hunk.leading + hunk.trailing)
        standing = size if fate is Fate.UPSTREAM else 0
        found.append(HunkFate(path, number, fate, hunk.old_start, hunk.old_start, to, "", size, standing))
    return tuple(found) or (HunkFate(path, 0, fate, to=to),)


def _elsewhere(one: HunkFate, path: str, to: str, note: str) -> HunkFate:
    fate = Fate.MOVED if one.fate is Fate.APPLIES else one.fate
    return one._replace(path=path, to=to, fate=fate, note=f"{note}; {one.note}" if one.note else note)
