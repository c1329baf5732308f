"""Where a hunk goes: strict by rule, and every departure from its stated line reported."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from patchline.series.hunks import Hunk
from patchline.series.placement import Placement, Rule
from patchline.series.refusals import HunkRefusal, sought


def split(data: bytes) -> list[bytes]:
    """The lines of a file, each with its newline; only the last may lack one."""
    if b"\r" not in data:
        return data.splitlines(keepends=True)  # much faster, but it also ends lines at CR
    lines = [line + b"\n" for line in data.split(b"\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def place(
    path: str, lines: list[bytes], hunks: Sequence[Hunk], rule: Rule
) -> tuple[list[bytes], list[Placement], list[HunkRefusal]]:
    """Puts `hunks` into `lines`: the new lines, where each hunk went, and those that had no place.

    With a refusal the new lines are of no use.
    """
    out: list[bytes] = []
    placements: list[Placement] = []
    refusals: list[HunkRefusal] = []
    file = _File(lines)
    written = done = shift = 0  # lines that stand in `out`, lines before the next hunk, offset of the last one
    for number, hunk in enumerate(hunks, 1):
        stated = hunk.old_start - 1 if hunk.old else hunk.old_start
        found, how = _Search(file, hunk, done, stated, shift, rule, first=number == 1).run()
        if found is None:
            refusals.append(HunkRefusal(path, number, hunk.line, how, sought(hunk.old)))
            continue
        placements.append(Placement(path, number, stated + 1, found + 1, how))
        shift = found - stated if hunk.old else shift
        out += lines[written:found]
        out += hunk.new[: len(hunk.new) - hunk.trailing]
        written = found + len(hunk.old) - hunk.trailing
        done = written if rule is Rule.NEAREST else written + hunk.trailing  # GNU patch lets contexts overlap
    out += lines[written:]
    if refusals or not _has_bare(out, lines, hunks):
        return out, placements, refusals
    if rule is Rule.NEAREST:
        return [*(line.removesuffix(b"\n") + b"\n" for line in out[:-1]), out[-1]], placements, []
    why = "it would leave a line without its newline in the middle of the file"
    return out, placements, [HunkRefusal(path, len(hunks), hunks[-1].line, why)]


def _has_bare(out: list[bytes], lines: list[bytes], hunks: Sequence[Hunk]) -> bool:
    """Whether a line before the last has no newline; only old last lines and new lines can lack it."""
    suspects = (*lines[-1:], *(line for hunk in hunks for line in hunk.new))
    return any(not line.endswith(b"\n") for line in suspects) and any(not line.endswith(b"\n") for line in out[:-1])


class _File:
    """The lines of a file, indexed when first searched: many hunks can have moved in a long file."""

    def __init__(self, lines: list[bytes]) -> None:
        self.lines = lines

    @cached_property
    def index(self) -> dict[bytes, list[int]]:
        """Where each line stands."""
        return _indexed(self.lines)

    @cached_property
    def trimmed(self) -> _File:
        """The same lines without the white space at their ends."""
        return _File([line.rstrip() for line in self.lines])

    def places(self, wanted: list[bytes]) -> list[int]:
        """Every place of `wanted`, in order."""
        index, count = self.index, len(wanted)
        if not all(line in index for line in wanted):
            return []
        rarest = min(range(count), key=lambda at: len(index[wanted[at]]))
        starts = (at - rarest for at in index[wanted[rarest]])
        return [at for at in starts if at >= 0 and self.lines[at : at + count] == wanted]


def _indexed(lines: list[bytes]) -> dict[bytes, list[int]]:
    index: dict[bytes, list[int]] = {}
    for at, line in enumerate(lines):
        index.setdefault(line, []).append(at)
    return index


class _Search:
    """One hunk's search in one file; places are counted from 0."""

    def __init__(self, file: _File, hunk: Hunk, done: int, stated: int, shift: int, rule: Rule, *, first: bool) -> None:
        self.file, self.old, self.new, self.rule = file, hunk.old, hunk.new, rule
        self.done, self.stated, self.shift, self.first = done, stated, shift, first
        self.at_start, self.at_end = self._anchors(hunk)

    def _anchors(self, hunk: Hunk) -> tuple[bool, bool]:
        """Whether short context says that the hunk sits at the start or the end of its file.

        GNU patch says so of a hunk at line 1, and of any at the end, wherever one side's context
        is shorter than the other's. Git says so for a hunk at line 1 and for one without trailing
        context. Where both do, so do we.
        """
        start = hunk.leading < hunk.trailing and hunk.old_start <= 1
        end = hunk.trailing < hunk.leading
        return start, end and (self.rule is Rule.NEAREST or not hunk.trailing)

    def run(self) -> tuple[int | None, str]:
        """The place and how it was found, or None and why not."""
        wanted = self.stated + self.shift
        if not self.old:
            return self._without_context(wanted)
        if self._fits(wanted):
            return wanted, "shifted" if self.shift else "stated"
        places = self._places()
        if self.rule is Rule.NEAREST:
            return self._nearest([at for at in places if at >= self.done], wanted)
        return self._unique(places)

    def _without_context(self, wanted: int) -> tuple[int | None, str]:
        if not self.file.lines and self.first:
            return 0, "unique" if self.stated else "stated"
        if self.rule is Rule.NEAREST and self.done <= wanted:
            return min(wanted, len(self.file.lines)), "nearest"
        return None, "it has no line to find its place by (a diff with -U0?), so it would fit anywhere"

    def _unique(self, places: list[int]) -> tuple[int | None, str]:
        if len(places) == 1 and places[0] >= self.done:
            return places[0], "unique"
        if len(places) > 1:
            return None, f"not at line {self.stated + 1}, and {len(places)} places match: lines {_listed(places)}"
        if places:
            return None, f"it matches only at line {places[0] + 1}, before the end of the hunk before it"
        return None, self._missing()

    def _nearest(self, places: list[int], wanted: int) -> tuple[int | None, str]:
        if places:
            return min(places, key=lambda at: (abs(at - wanted), at < wanted)), "nearest"
        return None, self._missing()

    def _missing(self) -> str:
        places = self.file.places(self.new) if self.new else []
        if places:
            return f"not found; its new text stands at line {places[0] + 1}: it looks already applied"
        if self.file.trimmed.places([line.rstrip() for line in self.old]):
            return f"not found at line {self.stated + 1} or elsewhere; it differs in white space or line ends only"
        return f"not found at line {self.stated + 1} or anywhere else"

    def _fits(self, at: int) -> bool:
        if at < self.done or not self._anchored(at):
            return False
        return self.file.lines[at : at + len(self.old)] == self.old

    def _anchored(self, at: int) -> bool:
        return not (self.at_start and at) and not (self.at_end and at + len(self.old) != len(self.file.lines))

    def _places(self) -> list[int]:
        """Every place of the old side in the whole file, also before the end of the hunk before."""
        return [at for at in self.file.places(self.old) if self._anchored(at)]


def _listed(places: list[int], most: int = 20) -> str:
    text = ", ".join(str(at + 1) for at in places[:most])
    return f"{text} and {len(places) - most} more" if len(places) > most else text
