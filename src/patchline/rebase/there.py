"""Whether a change that a patch makes stands in a file already: reverse application, one run at a time.

The two files are paired line by line, so a run is looked for where it would stand, between the
lines around it, and not anywhere in the file.
"""

from __future__ import annotations

from difflib import SequenceMatcher
from typing import NamedTuple

from patchline.rebase.align import Alignment, Pair, align, ended
from patchline.rebase.runs import Run, places, substantial, weight
from patchline.series.place import split

_ALIKE = 0.6
"""From here on two lines are one line that was changed; difflib's own measure of a close match."""
_LONG = 12
"""Letters from which lines say by themselves which lines they are."""
_AROUND = 3
"""Lines of context on each side, as git's diffs have."""


class Sides(NamedTuple):
    """A file before and after its patch, and on the new version, as lines; all with their newlines."""

    base: list[bytes]
    new: list[bytes]
    ours: list[bytes]
    from_base: Alignment
    from_new: Alignment


def sides(base: bytes, new: bytes, ours: bytes) -> Sides:
    """The three files, paired with the new version's."""
    one, two, three = (split(ended(data)) for data in (base, new, ours))
    return Sides(one, two, three, align(base, ours), align(new, ours))


class _Gap(NamedTuple):
    """What lies between the nearest lines around a run that both files have."""

    before: Pair
    after: Pair
    theirs: list[bytes]
    ours: list[bytes]


def stands(run: Run, of: Sides) -> bool:
    """Whether `run` is made in the new version's file, its neighbours changed or not."""
    added, removed = of.new[run.new : run.new_end], of.base[run.old : run.old_end]
    gap = _gap(run, of)
    if _left(run, of, gap):
        return False
    near = gap.before.one == run.new - 1, gap.after.one == run.new_end
    if all(near) and gap.ours == added:
        return (bool(added) and substantial(added)) or _supported(run, of)
    if any(near) and _only_neighbours_changed(run, of, gap, removed):
        return True
    if not added:
        return False
    if not substantial(added):
        return near[0] and gap.ours[: len(added)] == added and _gone(removed, gap.ours[len(added) :])
    return _among_changed(of, gap, added, removed, near)


def replaced(run: Run, of: Sides) -> bool:
    """Whether what a run takes away is gone, and nothing like it came in its place.

    By itself that says little, since upstream may have rewritten the lines: only for a hunk whose
    other changes stand.
    """
    gap = _gap(run, of)
    near = gap.before.one == run.new - 1, gap.after.one == run.new_end
    removed = of.base[run.old : run.old_end]
    return run.new == run.new_end and all(near) and not _left(run, of, gap) and _gone(removed, gap.ours)


def standing(run: Run, of: Sides) -> int:
    """How many of the lines that a run changes are as it wants them, where it does not stand as a whole."""
    gap = _gap(run, of)
    pairs = zip(of.new[run.new : run.new_end], of.from_new.pairs[run.new : run.new_end], strict=True)
    added = sum(pair >= 0 and substantial([line]) for line, pair in pairs)
    if not added or _left(run, of, gap):
        return 0
    return added + run.old_end - run.old


def _gone(removed: list[bytes], lines: list[bytes]) -> bool:
    """Whether none of `lines` is a form of what was removed."""
    return substantial(removed) and all(_likeness(line, gone) < _ALIKE for line in lines for gone in removed)


def region(run: Run, of: Sides) -> tuple[int, int]:
    """The lines of the new version's file, from 0, between which the run's old lines stood or would stand."""
    before, after = of.from_base.before(run.old), of.from_base.after(run.old_end)
    return before.other + 1, max(after.other, before.other + 1)


def _gap(run: Run, of: Sides) -> _Gap:
    before, after = of.from_new.before(run.new), of.from_new.after(run.new_end)
    return _Gap(
        before,
        after,
        of.new[before.one + 1 : after.one],
        of.ours[before.other + 1 : max(after.other, before.other + 1)],
    )


def _left(run: Run, of: Sides, gap: _Gap) -> bool:
    """Whether a line that the run takes away is still there."""
    pairs = of.from_base.pairs[run.old : run.old_end]
    near = any(
        gap.before.other < pair < gap.after.other and substantial([of.ours[pair]]) for pair in pairs if pair >= 0
    )
    return near or _kept(run, of)


def _kept(run: Run, of: Sides) -> bool:
    """Whether most of what the run takes away is paired, wherever the blank lines around it are: it stands.

    Of two blocks that are alike the one that is left is not the one that went.
    """
    removed = of.base[run.old : run.old_end]
    pairs = zip(removed, of.from_base.pairs[run.old : run.old_end], strict=True)
    telling = [pair >= 0 for line, pair in pairs if substantial([line])]
    twins = len(places(of.new, removed))
    return 2 * sum(telling) > len(telling) and not (twins and len(places(of.ours, removed)) <= twins)


def _supported(run: Run, of: Sides) -> bool:
    """Whether the lines around a run that says nothing by itself are those of the new version, too."""
    pairs = of.from_new.pairs
    before = range(max(0, run.new - _AROUND), run.new)
    after = range(run.new_end, min(len(pairs), run.new_end + _AROUND))
    return all(sum(pairs[at] >= 0 for at in around) * 2 > len(around) or not around for around in (before, after))


def _among_changed(of: Sides, gap: _Gap, added: list[bytes], removed: list[bytes], near: tuple[bool, bool]) -> bool:
    """Whether the added lines stand whole between changed neighbours, and the removed ones do not."""
    found = places(gap.ours, added)
    if len(found) < len(places(gap.theirs, added)):
        return False  # the same lines stood there before
    for at in found:
        rest = [*gap.ours[:at], b"", *gap.ours[at + len(added) :]]
        if substantial(removed) and places(rest, removed):
            continue
        if (near[0] and at == 0) or (near[1] and at + len(added) == len(gap.ours)):
            return True
        if weight(added) >= _LONG and len(places(of.ours, added)) == 1 and not places(of.base, added):
            return True
    return False


def _only_neighbours_changed(run: Run, of: Sides, gap: _Gap, removed: list[bytes]) -> bool:
    """Whether the run is there and around it are changed forms of its neighbours, and none of what it removed."""
    first = run.new - gap.before.one - 1
    added = of.new[run.new : run.new_end]
    left, right = gap.theirs[:first], gap.theirs[first + len(added) :]
    if len(gap.theirs) != len(gap.ours) or gap.ours[first : first + len(added)] != added:
        return False
    if not added and not substantial(removed):
        return False
    now = [*gap.ours[:first], *gap.ours[first + len(added) :]]
    return all(
        _likeness(line, neighbour) >= _ALIKE
        and all(_likeness(line, neighbour) > _likeness(line, gone) for gone in removed)
        for line, neighbour in zip(now, [*left, *right], strict=True)
    )


def _likeness(one: bytes, other: bytes) -> float:
    return SequenceMatcher(None, one, other, autojunk=False).ratio()
