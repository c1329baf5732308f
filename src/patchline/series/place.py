"""Where a hunk goes: strict by rule, and every departure from its stated line reported."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from patchline.series.diff import Hunk
from patchline.series.refusals import HunkRefusal, sought


class Rule(Enum):
    """How a hunk that does not match at its line finds its place."""

    UNIQUE = "unique"
    """Exactly one place in the file may match; several are a refusal. Ours."""
    NEAREST = "nearest"
    """The nearest place, the later one of two as near: what GNU patch does for `dpkg-source`."""


class Placement(NamedTuple):
    """Where one hunk went."""

    path: str
    hunk: int
    stated: int
    """Line that the hunk states, in the file before the patch, counted from 1."""
    line: int
    """Line where its old side stood."""
    how: str
    """`stated`, `shifted` (by the offset of the hunk before it), `unique` or `nearest`."""

    @property
    def offset(self) -> int:
        """Lines between the stated place and the real one."""
        return self.line - self.stated


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
    done = shift = 0
    for number, hunk in enumerate(hunks, 1):
        stated = hunk.old_start - 1 if hunk.old else hunk.old_start
        found, how = _Search(lines, hunk, done, stated, shift, rule).run()
        if found is None:
            refusals.append(HunkRefusal(path, number, hunk.line, how, sought(hunk.old)))
            continue
        placements.append(Placement(path, number, stated + 1, found + 1, how))
        shift = found - stated
        out += lines[done:found]
        out += hunk.new
        done = found + len(hunk.old)
    out += lines[done:]
    last_lines = [*lines[-1:], *(line for hunk in hunks for line in hunk.new)]
    bare = any(not line.endswith(b"\n") for line in last_lines)
    if bare and not refusals and any(not line.endswith(b"\n") for line in out[:-1]):
        why = "it would leave a line without its newline in the middle of the file"
        refusals.append(HunkRefusal(path, len(hunks), hunks[-1].line, why))
    return out, placements, refusals


class _Search:
    """One hunk's search in one file; places are counted from 0."""

    def __init__(self, lines: list[bytes], hunk: Hunk, done: int, stated: int, shift: int, rule: Rule) -> None:
        self.lines, self.old, self.new, self.rule = lines, hunk.old, hunk.new, rule
        self.done, self.stated, self.shift = done, stated, shift
        self.at_start, self.at_end = self._anchors(hunk)

    def _anchors(self, hunk: Hunk) -> tuple[bool, bool]:
        """Whether short context says that the hunk sits at the start or the end of its file.

        GNU patch says so wherever one side's context is shorter than the other's. Git says so
        for a hunk at line 1 and for one without trailing context. Where both do, so do we.
        """
        start, end = hunk.leading < hunk.trailing, hunk.trailing < hunk.leading
        if self.rule is Rule.NEAREST:
            return start, end
        return start and hunk.old_start <= 1, end and not hunk.trailing

    def run(self) -> tuple[int | None, str]:
        """The place and how it was found, or None and why not."""
        if not self.old:
            return self._without_context()
        wanted = self.stated + self.shift
        if self._fits(wanted):
            return wanted, "shifted" if self.shift else "stated"
        places = self._places(self.old)
        if self.rule is Rule.NEAREST:
            return self._nearest([at for at in places if at >= self.done], wanted)
        return self._unique(places)

    def _without_context(self) -> tuple[int | None, str]:
        if not self.lines:
            return 0, "stated"
        if self.rule is Rule.NEAREST and self.done <= self.stated <= len(self.lines):
            return self.stated, "nearest"
        return None, "it has no line to find its place by (a diff with -U0?), so it would fit anywhere"

    def _unique(self, places: list[int]) -> tuple[int | None, str]:
        if len(places) == 1 and places[0] >= self.done:
            return places[0], "unique"
        if len(places) > 1:
            listed = ", ".join(str(at + 1) for at in places)
            return None, f"not at line {self.stated + 1}, and {len(places)} places match: lines {listed}"
        if places:
            return None, f"it matches only at line {places[0] + 1}, before the end of the hunk before it"
        return None, self._missing()

    def _nearest(self, places: list[int], wanted: int) -> tuple[int | None, str]:
        if places:
            return min(places, key=lambda at: (abs(at - wanted), at < wanted)), "nearest"
        return None, self._missing()

    def _missing(self) -> str:
        places = self._places(self.new) if self.new else []
        if places:
            return f"not found; its new text stands at line {places[0] + 1}: it looks already applied"
        if [line.rstrip() for line in self.old] in self._windows():
            return f"not found at line {self.stated + 1} or elsewhere; it differs in white space or line ends only"
        return f"not found at line {self.stated + 1} or anywhere else"

    def _windows(self) -> list[list[bytes]]:
        bare, count = [line.rstrip() for line in self.lines], len(self.old)
        first = self.old[0].rstrip()
        return [bare[at : at + count] for at, line in enumerate(bare) if line == first]

    def _fits(self, at: int) -> bool:
        count = len(self.old)
        if at < self.done or (self.at_start and at) or (self.at_end and at + count != len(self.lines)):
            return False
        return self.lines[at : at + count] == self.old

    def _places(self, wanted: list[bytes]) -> list[int]:
        """Every place of `wanted` in the whole file, also before the end of the hunk before."""
        first, count = wanted[0], len(wanted)
        last = len(self.lines) - count
        return [
            at
            for at, line in enumerate(self.lines)
            if line == first
            and at <= last
            and self.lines[at : at + count] == wanted
            and not (self.at_start and at)
            and not (self.at_end and at != last)
        ]
