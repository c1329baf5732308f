"""Which line of one file is which of another, as git's histogram diff pairs them."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import NamedTuple

from patchline.git import git

_HEAD = re.compile(rb"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", re.MULTILINE)
_DIFF = (
    "diff", "--no-index", "--text", "--histogram", "--unified=0", "--inter-hunk-context=0",
    "--no-ext-diff", "--no-textconv", "--no-color", "--no-renames",
)  # fmt: skip


class Pair(NamedTuple):
    """One line that both files have, by its place in each, counted from 0."""

    one: int
    other: int


class Alignment(NamedTuple):
    """The lines of `one` file paired with those of the `other`, in order."""

    changes: tuple[tuple[int, int, int, int], ...]
    """Lines `a` to `b` of one that lines `c` to `d` of the other stand for, each from 0, end left out."""
    pairs: list[int]
    """For each line of one its place in the other; -1 where it has none."""
    size: int
    """Lines of the other."""

    def before(self, at: int) -> Pair:
        """The nearest paired line before `at`; the files' starts, (-1, -1), are paired, too."""
        while at > 0:
            at -= 1
            if self.pairs[at] >= 0:
                return Pair(at, self.pairs[at])
        return Pair(-1, -1)

    def after(self, at: int) -> Pair:
        """The nearest paired line from `at` on; the files' ends are paired, too."""
        while at < len(self.pairs):
            if self.pairs[at] >= 0:
                return Pair(at, self.pairs[at])
            at += 1
        return Pair(len(self.pairs), self.size)

    def touched(self, begin: int, end: int) -> bool:
        """Whether a change begins, ends or lies in lines `begin` to `end` of one (an edge counts)."""
        return any(a <= end and b >= begin for a, b, _, _ in self.changes)


def align(one: bytes, other: bytes) -> Alignment:
    """Pairs the lines of two files; a last line counts as if it had its newline."""
    one, other = ended(one), ended(other)
    count, size = one.count(b"\n"), other.count(b"\n")
    changes = () if one == other else _changes(one, other)
    pairs: list[int] = []
    at = 0
    for a, b, c, d in (*changes, (count, count, size, size)):
        pairs += range(at, at + a - len(pairs))
        pairs += [-1] * (b - a)
        at = d
        assert len(pairs) == b, (a, b, c, d)
    return Alignment(changes, pairs, size)


def ended(data: bytes) -> bytes:
    """`data` with a newline at its end, unless it is empty."""
    return data if not data or data.endswith(b"\n") else data + b"\n"


def _changes(one: bytes, other: bytes) -> tuple[tuple[int, int, int, int], ...]:
    with tempfile.TemporaryDirectory(prefix="patchline-") as folder:
        Path(folder, "one").write_bytes(one)
        Path(folder, "other").write_bytes(other)
        out = git(Path(folder), *_DIFF, "--", "one", "other", ok=(0, 1))
    return tuple(_range(match) for match in _HEAD.finditer(out))


def _range(match: re.Match[bytes]) -> tuple[int, int, int, int]:
    """A hunk's two ranges from 0; where one is empty, git gives the line before it."""
    a, c = int(match[1]), int(match[3])
    removed, added = (int(count) if count else 1 for count in (match[2], match[4]))
    a, c = (a if not removed else a - 1), (c if not added else c - 1)
    return a, a + removed, c, c + added
