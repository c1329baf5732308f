"""The lines of a patch's hunks with their marks, as its file has them, and how many are added and removed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from patchline.series.diff import FileDiff
from patchline.series.hunks import Hunk
from patchline.series.mail import decode_body, read
from patchline.series.patch import Patch
from patchline.series.place import split


class Marked(NamedTuple):
    """One line of a hunk."""

    mark: str
    """` `, `+` or `-`."""
    text: bytes
    """Without its line end; a carriage return stays."""
    ends: bool
    """Whether a newline follows; without it the file ends there."""


class Counts(NamedTuple):
    """Lines of a file that a patch adds and removes; of a binary file no lines are counted."""

    path: str
    added: int
    removed: int
    binary: bool


def body(patch: Patch) -> list[bytes]:
    """The lines of a patch file, each with its newline, as `Hunk.line` counts them (from 1)."""
    lines = split(patch.raw)
    _, start = read(lines)
    return decode_body(lines, start)


def marked(lines: list[bytes], hunk: Hunk) -> Iterator[Marked]:
    """The lines of one hunk; `lines` are `body`'s."""
    old, new, at = len(hunk.old), len(hunk.new), hunk.line
    while old or new or (at < len(lines) and lines[at].startswith(b"\\ ")):
        line, at = lines[at], at + 1
        if line.startswith(b"\\ "):
            continue
        mark = line[:1].decode() if line[:1] in (b"+", b"-") else " "
        text = line[1:] if line[:1] in (b"+", b"-", b" ") else line
        ends = not (at < len(lines) and lines[at].startswith(b"\\ "))
        yield Marked(mark, text.removesuffix(b"\n"), ends)
        old, new = old - (mark != "+"), new - (mark != "-")


def counts(patch: Patch) -> list[Counts]:
    """Of every file of a patch, in its order."""
    lines = body(patch)
    return [_of(lines, diff) for diff in patch.files]


def _of(lines: list[bytes], diff: FileDiff) -> Counts:
    marks = [one.mark for hunk in diff.hunks for one in marked(lines, hunk)]
    return Counts(diff.path, marks.count("+"), marks.count("-"), diff.binary is not None)
