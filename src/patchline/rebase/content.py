"""One file's text on the new version: each hunk placed, found there already, merged, or in conflict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from patchline.rebase.align import align
from patchline.rebase.merge import Block, Labels, Merged, merge
from patchline.rebase.runs import Run, places, runs, substantial
from patchline.rebase.there import Sides, region, replaced, sides, standing, stands
from patchline.rebase.words import Conflict, Fate, HunkFate
from patchline.series.hunks import Hunk
from patchline.series.place import place, split
from patchline.series.placement import Placement, Rule


class Settled(NamedTuple):
    """A file on the new version with a patch's hunks in it, as far as they have a place."""

    data: bytes
    """With our side of every conflict."""
    marked: bytes
    """With every conflict in markers."""
    hunks: tuple[HunkFate, ...]
    conflicts: tuple[Conflict, ...] = ()


def settle(path: str, base: bytes, new: bytes, ours: bytes, hunks: Sequence[Hunk], labels: Labels) -> Settled:
    """What becomes of `hunks`, which make `new` of `base`, in the new version's file `ours`.

    A hunk goes where its old lines stand, byte for byte, if they stand once in either file. The
    others are looked for as changes that upstream has made, too, and the rest is merged.
    """
    lines = split(ours)
    out, strict, refused = place(path, lines, hunks, Rule.UNIQUE)
    if not refused and all(certain(hunk, base, ours) for hunk in hunks):
        data = b"".join(out)
        return Settled(data, data, tuple(map(placed, strict)))
    return _Settling(path, base, new, ours, hunks, labels).run(strict)


def certain(hunk: Hunk, base: bytes, ours: bytes) -> bool:
    """Whether there is one place that a hunk can mean: its old lines stand once in either file, its new ones not yet.

    A hunk that upstream has taken can find its old lines again, in the end of what it added.
    """
    if not hunk.old:
        return not base and not ours
    text = b"\n" + b"".join(hunk.old)
    base, ours = b"\n" + base, b"\n" + ours
    once = base.count(text) == ours.count(text) == 1
    return once and b"\n" + b"".join(hunk.new) not in ours and not _come(hunk, base, ours)


def _come(hunk: Hunk, base: bytes, ours: bytes) -> bool:
    """Whether half of the lines that a hunk adds came to the new version by themselves."""
    added = [line for line in hunk.new[hunk.leading : len(hunk.new) - hunk.trailing] if substantial([line])]
    come = sum(b"\n" + line in ours and b"\n" + line not in base for line in added)
    return 2 * come > len(added)


def placed(one: Placement) -> HunkFate:
    """The fate of a hunk that the series engine placed."""
    moved = one.how == "unique" and one.offset
    note = f"offset {one.offset:+d}" if moved else ""
    return HunkFate(one.path, one.hunk, Fate.MOVED if moved else Fate.APPLIES, one.stated, one.line, note=note)


class _Settling:
    """A file whose hunks do not all have a sure place."""

    def __init__(self, path: str, base: bytes, new: bytes, ours: bytes, hunks: Sequence[Hunk], labels: Labels) -> None:
        self.path, self.base, self.new, self.hunks, self.labels = path, base, new, hunks, labels
        self.sides: Sides = sides(base, new, ours)
        self.ours = ours
        self.runs = runs(split(base), hunks)

    def run(self, strict: Sequence[Placement]) -> Settled:
        """The file with all that has a place in it."""
        there = self._there()
        sure = {one.hunk: one for one in strict if certain(self.hunks[one.hunk - 1], self.base, self.ours)}
        sure = {number: one for number, one in sure.items() if not any(run.hunk == number for run in there)}
        start, sure = self._with(sure)
        rest = [run for run in self.runs if run not in there and run.hunk not in sure]
        merged = merge(start, self._without(rest), self.new, self.labels) if rest else Merged(start, ())
        met = self._met(merged.blocks, rest)
        there |= self._adding_nothing(start, merged, [run for run in rest if run not in met])
        if not met and len(strict) == len(self.hunks) and merged.data == self._strictly():
            return Settled(merged.data, merged.data, tuple(map(placed, strict)))
        fates = tuple(self._fate(number, there, sure, met) for number in range(1, len(self.hunks) + 1))
        return Settled(merged.with_ours, merged.data, fates, tuple(self._conflicts(merged, met)))

    def _strictly(self) -> bytes:
        return b"".join(place(self.path, split(self.ours), self.hunks, Rule.UNIQUE)[0])

    def _there(self) -> set[Run]:
        """The runs that stand in the new version."""
        there = {run for run in self.runs if stands(run, self.sides)}
        backed = {run.hunk for run in there if substantial(self.sides.new[run.new : run.new_end])}
        rest = (run for run in self.runs if run not in there and run.hunk in backed)
        return there | {run for run in rest if replaced(run, self.sides)}

    def _with(self, sure: dict[int, Placement]) -> tuple[bytes, dict[int, Placement]]:
        """The new version's file with the hunks that have a sure place."""
        numbers = sorted(sure)
        out, found, refused = place(
            self.path, split(self.ours), [self.hunks[number - 1] for number in numbers], Rule.UNIQUE
        )
        if refused:  # two of them meet in one place
            return self.ours, {}
        return b"".join(out), {number: one._replace(hunk=number) for number, one in zip(numbers, found, strict=True)}

    def _without(self, rest: Sequence[Run]) -> bytes:
        """The patched file without the runs `rest`: what a merge of them begins with."""
        base, new, out, at = split(self.base), split(self.new), list[bytes](), 0
        for run in rest:
            out += [*new[at : run.new], *base[run.old : run.old_end]]
            at = run.new_end
        return b"".join([*out, *new[at:]])

    def _met(self, blocks: Sequence[Block], rest: Sequence[Run]) -> dict[Run, Block]:
        """Which run is in conflict in which block; both are in the file's order."""
        met: dict[Run, Block] = {}
        left = list(rest)
        for block in blocks:
            within = [run for run in left if self._is_in(run, block)]
            met |= dict.fromkeys(within or left[:1], block)
            last = max((left.index(run) for run in within), default=0)
            left = left[last + 1 :]
        return met

    def _is_in(self, run: Run, block: Block) -> bool:
        added = self.sides.new[run.new : run.new_end]
        removed = self.sides.base[run.old : run.old_end]
        theirs, base = _ended(block.theirs), _ended(block.base)
        return bool((not added or places(theirs, added)) and (not removed or places(base, removed)))

    def _adding_nothing(self, start: bytes, merged: Merged, clean: Sequence[Run]) -> set[Run]:
        """Runs that the merge took without changing anything: both sides had made the same change."""
        if not clean:
            return set()
        if merged.data == start:
            return set(clean)
        changes = align(self.ours, merged.with_ours)
        untouched = {run for run in clean if not changes.touched(*region(run, self.sides))}
        # The merge pairs lines by another diff than ours, so a run may have come in at another place.
        before, after = (Counter(split(data)) for data in (start, merged.with_ours))
        differ = (after - before) + (before - after)
        return {run for run in untouched if not any(line in differ for line in self._lines(run))}

    def _lines(self, run: Run) -> list[bytes]:
        return [*self.sides.base[run.old : run.old_end], *self.sides.new[run.new : run.new_end]]

    def _fate(self, number: int, there: set[Run], sure: dict[int, Placement], met: dict[Run, Block]) -> HunkFate:
        if number in sure:
            return placed(sure[number])
        mine = [run for run in self.runs if run.hunk == number]
        kept = [_size(run) if run in there else standing(run, self.sides) for run in mine]
        counted = sum(map(_size, mine)), sum(kept)
        stated = self.hunks[number - 1].old_start
        line = region(mine[0], self.sides)[0] + 1
        made = [run for run in mine if run in there]
        telling = [run for run in mine if self._telling(run)] or mine
        if all(run in there for run in telling):
            return HunkFate(self.path, number, Fate.UPSTREAM, stated, line, "", "", *counted)
        note = "its context changed"
        if any(run in made for run in telling) or (counted[1] and any(run in met for run in mine)):
            note = f"{counted[1]} of its {counted[0]} changed lines stand there"
            return HunkFate(self.path, number, Fate.PARTLY, stated, line, "", note, *counted)
        if any(run in met for run in mine):
            return HunkFate(self.path, number, Fate.CONFLICTS, stated, line, "", "", *counted)
        return HunkFate(self.path, number, Fate.MERGED, stated, line, note=note)

    def _telling(self, run: Run) -> bool:
        return substantial(self._lines(run))

    def _conflicts(self, merged: Merged, met: dict[Run, Block]) -> list[Conflict]:
        if not merged.blocks:
            return []
        where = align(merged.with_ours, self.ours)
        found, extra = [], 0
        for block in merged.blocks:
            numbers = tuple(sorted({run.hunk for run, other in met.items() if other is block}))
            line = where.after(block.begin - extra).other + 1
            texts = (text(block.base), text(block.ours), text(block.theirs))
            found.append(Conflict(self.path, numbers, line, *texts))
            extra += block.end - block.begin - len(block.ours)
        return found


def _size(run: Run) -> int:
    return run.old_end - run.old + run.new_end - run.new


def _ended(lines: list[bytes]) -> list[bytes]:
    return [*lines[:-1], lines[-1].removesuffix(b"\n") + b"\n"] if lines else lines


def text(lines: Sequence[bytes]) -> str:
    """Lines for people and for JSON; bytes that are no UTF-8 are escaped."""
    return b"".join(lines).decode("utf-8", "backslashreplace")
