"""Runs of lines that two files do not share."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

_LONG = 4000  # lines; in longer files lines that stand there very often pair nothing, as that would take minutes


class Run(NamedTuple):
    """Lines `a` to `b` of one file, for which lines `c` to `d` of the other stand; from 0, ends left out."""

    a: int
    b: int
    c: int
    d: int


def runs(one: Sequence[bytes], other: Sequence[bytes]) -> list[Run]:
    """The runs in which two files differ, in order."""
    front = _same(one, other)
    back = _same(one[front:][::-1], other[front:][::-1])
    mine, theirs = one[front : len(one) - back], other[front : len(other) - back]
    if not mine or not theirs:
        return [Run(front, front + len(mine), front, front + len(theirs))] if mine or theirs else []
    pairs = SequenceMatcher(None, mine, theirs, autojunk=max(len(mine), len(theirs)) > _LONG)
    found = (where for kind, *where in pairs.get_opcodes() if kind != "equal")
    return [Run(a + front, b + front, c + front, d + front) for a, b, c, d in found]


def _same(one: Sequence[bytes], other: Sequence[bytes]) -> int:
    """How many lines are the same at the beginning."""
    count = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        count += 1
    return count


def shown(gone: Sequence[bytes], come: Sequence[bytes], most: int = 12) -> tuple[str, ...]:
    """Both sides as a diff shows them, at most so many lines of each."""
    return (*_side("-", gone, most), *_side("+", come, most))


def _side(mark: str, lines: Sequence[bytes], most: int) -> list[str]:
    texts = [mark + line.decode(errors="backslashreplace").rstrip("\n") for line in lines[:most]]
    return texts + ([f"{mark} … {len(lines) - most} lines more"] if len(lines) > most else [])
