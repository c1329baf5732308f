"""Three-way merges of one file by git, with each conflict's sides."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import NamedTuple

from patchline.git import git
from patchline.series.place import split

_SIZE = 7  # git's own; longer where a file has such lines itself


class Labels(NamedTuple):
    """What the sides of a conflict are called in its markers."""

    ours: str
    base: str
    theirs: str


class Block(NamedTuple):
    """One conflict in a merged file, whose lines `begin` to `end` (from 0) it takes, markers and all."""

    begin: int
    end: int
    ours: list[bytes]
    base: list[bytes]
    theirs: list[bytes]
    line: int
    """Where its lines stand in the file that they were merged into as `ours`, from 0, about."""


class Merged(NamedTuple):
    """A merged file."""

    data: bytes
    blocks: tuple[Block, ...]
    marker: int = _SIZE

    @property
    def with_ours(self) -> bytes:
        """The file with our side of every conflict."""
        lines, out, at = split(self.data), [], 0
        for block in self.blocks:
            out += [*lines[at : block.begin], *block.ours]
            at = block.end
        return b"".join([*out, *lines[at:]])


def merge(ours: bytes, base: bytes, theirs: bytes, labels: Labels) -> Merged:
    """What `git merge-file --diff3` makes of three files; conflicts are in the result, none is decided."""
    if base == theirs:
        return Merged(ours, ())
    if base == ours:
        return Merged(theirs, ())
    size = _marker(ours, base, theirs)
    with tempfile.TemporaryDirectory(prefix="patchline-") as folder:
        for name, data in (("ours", ours), ("base", base), ("theirs", theirs)):
            Path(folder, name).write_bytes(data)
        names = [word for label in labels for word in ("-L", label)]
        options = ("--diff3", "-p", "-q", f"--marker-size={size}", *names)
        data = git(Path(folder), "merge-file", *options, "ours", "base", "theirs", ok=range(128))
    return Merged(data, tuple(_blocks(split(data), size)), size)


def conflicts(data: bytes, labels: Labels) -> tuple[Block, ...]:
    """The conflicts that `merge` left in a file, once more; none where somebody took the markers out."""
    label = re.escape(labels.ours.encode("utf-8", "surrogateescape"))
    first = re.search(rb"^(<{7,}) " + label + rb"$", data, re.MULTILINE)
    return tuple(_blocks(split(data), len(first[1]))) if first else ()


def markers_left(data: bytes, labels: Labels) -> list[int]:
    """The lines, from 1, on which a marker of ours still stands."""
    names = b"|".join(re.escape(label.encode("utf-8", "surrogateescape")) for label in labels)
    left = re.compile(rb"(<{7,}|\|{7,}|>{7,}) (" + names + rb")\r?\n?")
    return [number for number, line in enumerate(split(data), 1) if left.fullmatch(line)]


def _marker(*files: bytes) -> int:
    size = _SIZE
    while any(b"\n" + mark * size in b"\n" + data for data in files for mark in (b"<", b"|", b"=", b">")):
        size += 8
    return size


def _blocks(lines: list[bytes], size: int) -> list[Block]:
    found: list[Block] = []
    marks = {mark * size: number for number, mark in enumerate((b"<", b"|", b"=", b">"))}
    parts: list[list[bytes]] = []
    begin, extra = 0, 0  # extra: lines of the merged file that ours does not have, so far
    for at, line in enumerate(lines):
        mark = marks.get(line[:size], -1)
        if mark == 0:
            begin, parts = at, [[]]
        elif parts and mark == len(parts) < 3:
            parts.append([])
        elif mark == 3 and len(parts) == 3:
            ours, base, theirs = parts
            found.append(Block(begin, at + 1, ours, base, theirs, begin - extra))
            extra += at + 1 - begin - len(ours)
            parts = []
        elif parts:
            parts[-1].append(line)
    return found
