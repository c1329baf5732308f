"""Where code went: renamed files by git, moved and reformatted code by its own lines."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import PurePosixPath

from patchline.git import git
from patchline.rebase.align import ended
from patchline.rebase.runs import substantial
from patchline.rebase.store import objects
from patchline.rebase.words import Where
from patchline.series.trees import CommitTree

_SAME = 0.6
"""Part of a hunk's telling lines that a file must hold to be where its code went."""
_FEWEST = 3
"""Telling lines below which nothing is said: such lines stand in many files."""


class Whither:
    """What upstream did with its files between two commits; git is asked when first needed."""

    def __init__(self, old: CommitTree, new: CommitTree) -> None:
        self.old, self.new = old, new

    @cached_property
    def _status(self) -> list[tuple[str, str, str]]:
        """Kind (`A`, `M`, `D`, `R`), old path and new path of every file that differs."""
        env = {"GIT_ALTERNATE_OBJECT_DIRECTORIES": str(objects(self.old.repo))}
        options = ("-r", "-z", "--name-status", "--find-renames=50%", "-l0", "--no-ext-diff")
        out = git(self.new.repo, "diff-tree", *options, self.old.commit, self.new.commit, env=env)
        return list(_statuses([os.fsdecode(word) for word in out.split(b"\0")[:-1]]))

    def renamed(self, path: str) -> str:
        """The new name of a file that upstream renamed; empty where git finds none."""
        return next((new for kind, old, new in self._status if kind == "R" and old == path), "")

    @cached_property
    def _candidates(self) -> dict[str, list[str]]:
        """Files that upstream made or changed, by the ending of their names."""
        found: dict[str, list[str]] = {}
        for kind, _, new in self._status:
            if kind != "D":
                found.setdefault(PurePosixPath(new).suffix, []).append(new)
        return found

    def whole(self, path: str, lines: Sequence[bytes]) -> Where | None:
        """The one other file, and line, where `lines` stand as they are, and did not before."""
        whole = b"".join(lines)
        text = b"\n" + whole
        having = (name for name, data in self._others(path) if text in data or data.startswith(whole))
        found = [name for name in having if text not in self._before(name)]
        if len(found) != 1:
            return None
        data = b"\n" + ended(self._data(self.new, found[0]))
        once = data.count(text) == 1
        return Where(found[0], data[: data.index(text) + 1].count(b"\n"), "moved") if once else None

    def about(self, path: str, lines: Sequence[bytes]) -> Where | None:
        """The other file that took most of `lines`, white space aside."""
        sought = {line.strip() for line in lines if substantial([line])}
        if len(sought) < _FEWEST:
            return None
        best: tuple[float, str] = (_SAME, "")
        longest = sorted(sought, key=len)[-_FEWEST:]
        for name, data in self._others(path):
            if not any(line in data for line in longest):
                continue
            share = len(sought & _stripped(data)) / len(sought)
            if share > best[0] and len(sought & _stripped(self._before(name))) / len(sought) < _SAME:
                best = (share, name)
        return Where(best[1], _line_of(self._data(self.new, best[1]), sought), "moved") if best[1] else None

    def _others(self, path: str) -> Iterator[tuple[str, bytes]]:
        names = [name for name in self._candidates.get(PurePosixPath(path).suffix, ()) if name != path]
        self.new.load(names)
        yield from ((name, ended(self._data(self.new, name))) for name in names)

    def _before(self, path: str) -> bytes:
        return b"\n" + ended(self._data(self.old, path))

    @staticmethod
    def _data(tree: CommitTree, path: str) -> bytes:
        entry = tree.entry(path)
        return entry.data if entry else b""


def _statuses(words: list[str]) -> Iterator[tuple[str, str, str]]:
    at = 0
    while at < len(words):
        kind = words[at][0]
        if kind in "RC":
            yield kind, words[at + 1], words[at + 2]
            at += 3
        else:
            yield kind, words[at + 1], words[at + 1]
            at += 2


def _stripped(data: bytes) -> set[bytes]:
    return {line.strip() for line in data.split(b"\n")}


def _line_of(data: bytes, sought: set[bytes]) -> int:
    """The line, from 1, with most of `sought` in the lines around it."""
    lines = [line.strip() in sought for line in data.split(b"\n")]
    size = len(sought)
    starts = [at for at, hit in enumerate(lines) if hit]
    return max(starts, key=lambda at: sum(lines[at : at + size]), default=0) + 1


_LAYOUT = re.compile(rb"\s+|,(?=\s*[)\]}])")


def reformatted(path: str, lines: Sequence[bytes], data: bytes) -> Where | None:
    """Where `lines` stand in `data` with other white space, quotes or trailing commas; None unless at one place."""
    sought = _squeezed(b"".join(lines))
    if not substantial([sought]) or _squeezed(data).count(sought) != 1:
        return None
    before = _squeezed(data).index(sought)
    seen = 0
    for number, line in enumerate(data.split(b"\n"), 1):
        seen += len(_squeezed(line))
        if seen > before:
            return Where(path, number, "reformatted")
    return None


def _squeezed(data: bytes) -> bytes:
    return _LAYOUT.sub(b"", data).replace(b"'", b'"')
