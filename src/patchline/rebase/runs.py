"""The runs of a patch: each stretch of changed lines, by its place in the file before and after."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from patchline.series.hunks import Hunk
from patchline.series.place import place
from patchline.series.placement import Rule

_WORD = re.compile(rb"\w")


class Run(NamedTuple):
    """Lines `old` to `old_end` of the old file that became `new` to `new_end` of the new one, from 0."""

    hunk: int
    """The hunk that it belongs to, counted from 1."""
    old: int
    old_end: int
    new: int
    new_end: int


def runs(old: list[bytes], hunks: Sequence[Hunk]) -> list[Run]:
    """The runs of `hunks` in the file `old`, which they fit."""
    _, placements, refusals = place("", old, hunks, Rule.UNIQUE)
    if refusals:
        raise ValueError(f"the hunks do not fit their own file: {refusals[0]}")
    found, shift = [], 0
    for number, (hunk, placed) in enumerate(zip(hunks, placements, strict=True), 1):
        begin = placed.line - 1
        found += [
            Run(number, begin + a, begin + b, begin + shift + c, begin + shift + d) for a, b, c, d in _changed(hunk)
        ]
        shift += len(hunk.new) - len(hunk.old)
    return found


def _changed(hunk: Hunk) -> list[tuple[int, int, int, int]]:
    begin, old_end, new_end = hunk.leading, len(hunk.old) - hunk.trailing, len(hunk.new) - hunk.trailing
    if begin in (old_end, new_end):
        return [(begin, old_end, begin, new_end)]
    matcher = SequenceMatcher(None, hunk.old[begin:old_end], hunk.new[begin:new_end], autojunk=False)
    codes = matcher.get_opcodes()
    return [(begin + a, begin + b, begin + c, begin + d) for tag, a, b, c, d in codes if tag != "equal"]


def weight(lines: Sequence[bytes]) -> int:
    """Letters, digits and underscores in `lines`; below 3 they are brackets and blanks, which stand everywhere."""
    return len(_WORD.findall(b"".join(lines)))


def substantial(lines: Sequence[bytes]) -> bool:
    """Whether `lines` say enough to be told from others."""
    return weight(lines) >= 3


def places(lines: Sequence[bytes], wanted: Sequence[bytes]) -> list[int]:
    """Where `wanted` stands in `lines`, from 0."""
    count, sought = len(wanted), list(wanted)
    if not count:
        return []
    return [at for at in range(len(lines) - count + 1) if lines[at] == sought[0] and lines[at : at + count] == sought]
