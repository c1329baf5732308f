"""Reads the hunks of a unified diff; every line of them is counted."""

from __future__ import annotations

import re
from typing import NamedTuple

from patchline.series.refusals import BadPatch

HEAD = re.compile(rb"@@ -(\d{1,18})(?:,(\d{1,18}))? \+(\d{1,18})(?:,(\d{1,18}))? @@")

_CHOPPED = 3  # blank context lines at the end of a patch that GNU patch takes as lost


class Hunk(NamedTuple):
    """Lines to find and lines to put there; each has its newline, if it has one."""

    old_start: int
    new_start: int
    old: list[bytes]
    """What must stand in the file."""
    new: list[bytes]
    """What stands there afterwards."""
    leading: int
    """Context lines before the first change."""
    trailing: int
    """Context lines after the last change."""
    line: int
    """Line of the header in the patch file, counted from 1."""


def hunks(lines: list[bytes], at: int, *, lenient: bool = False) -> tuple[tuple[Hunk, ...], int]:
    """The hunks that begin at `lines[at]`, one or more, and the place after them.

    `lenient` gives back blank lines that were chopped from the end of the patch.

    Raises:
        BadPatch: there is none, or one is not what its header says.
    """
    found = []
    while at < len(lines) and (match := HEAD.match(lines[at])):
        hunk, at = _hunk(lines, at, match, lenient)
        found.append(hunk)
    if not found:
        raise BadPatch(f"line {at + 1}: a file header without a hunk")
    return tuple(found), at


def without_returns(found: tuple[Hunk, ...]) -> tuple[Hunk, ...]:
    """The same hunks where each line lost the carriage return at its end."""

    def plain(lines: list[bytes]) -> list[bytes]:
        return [line[:-2] + b"\n" if line.endswith(b"\r\n") else line.removesuffix(b"\r") for line in lines]

    return tuple(hunk._replace(old=plain(hunk.old), new=plain(hunk.new)) for hunk in found)


def _hunk(lines: list[bytes], begin: int, match: re.Match[bytes], lenient: bool) -> tuple[Hunk, int]:
    old_count, new_count = int(match[2] or 1), int(match[4] or 1)
    old: list[bytes] = []
    new: list[bytes] = []
    leading, trailing, at = -1, 0, begin + 1
    last: tuple[list[bytes], ...] = ()
    while len(old) < old_count or len(new) < new_count:
        line = lines[at] if at < len(lines) else _chopped(lenient, old_count - len(old), new_count - len(new))
        at += 1
        mark = line[:1]
        if mark == b" " or line in (b"\n", b"\r\n"):  # the latter: a blank context line that lost its blank
            last, trailing = (old, new), trailing + 1
        elif mark == b"+":
            last, leading, trailing = (new,), trailing if leading < 0 else leading, 0
        elif mark == b"-":
            last, leading, trailing = (old,), trailing if leading < 0 else leading, 0
        elif line.startswith(b"\\ ") and last:
            _without_newline(last)
            continue
        else:
            got = f"{len(old)} of {old_count} old and {len(new)} of {new_count} new lines"
            raise BadPatch(f"line {begin + 1}: the hunk is cut short: {got} are there")
        text = line[1:] if mark in b" +-" else line
        for side in last:
            side.append(text)
    if at < len(lines) and lines[at].startswith(b"\\ "):
        _without_newline(last)
        at += 1
    _check(begin, at, lines, leading, (len(old), len(new)) == (old_count, new_count))
    return Hunk(int(match[1]), int(match[3]), old, new, leading, trailing, begin + 1), at


def _check(begin: int, at: int, lines: list[bytes], leading: int, adds_up: bool) -> None:
    if not adds_up:
        raise BadPatch(f"line {begin + 1}: the hunk's lines do not add up to what its header says")
    if leading < 0:
        raise BadPatch(f"line {begin + 1}: the hunk changes nothing")
    if at == len(lines) and not lines[-1].endswith(b"\n") and not lines[-1].startswith(b"\\"):
        raise BadPatch(
            f"line {at}: the patch file ends in the middle of a line, so more may be lost",
            next="take the patch from its origin again",
        )


def _without_newline(sides: tuple[list[bytes], ...]) -> None:
    r"""`\ No newline at end of file` speaks of the line before it."""
    for side in sides:
        side[-1] = side[-1].removesuffix(b"\n")


def _chopped(lenient: bool, old: int, new: int) -> bytes:
    return b"\n" if lenient and old == new <= _CHOPPED else b""
