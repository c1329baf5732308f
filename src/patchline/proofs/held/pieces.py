"""The pieces of a patch: every run of changed lines in every hunk, and the file as it is without that one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from patchline.git import git
from patchline.overlay import Overlay
from patchline.series.trees import Entry

_CONTEXT = 3
"""Lines of context around a change in the form that patches are written in."""
_HEADER = re.compile(rb"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", re.MULTILINE)


class Piece(NamedTuple):
    """One run of removed and added lines, or what else a patch does to one file."""

    path: str
    """Inside the installed package."""
    hunk: int
    """Which hunk of the patch it lies in, counted over its installed files; 1 is the first."""
    line: int
    """Its first line in the patched file; of a removal, the line before it; 0 for a file as a whole."""
    added: int
    removed: int
    text: str
    """Its first line that says something, for people and for explanations."""
    comment: bool
    """Whether the program is the same without it: comments, docstrings, blank lines."""
    without: Entry | None
    """The patched file without it; None where the patch makes the file."""

    @property
    def name(self) -> str:
        """Stands for it in explanations, whatever its line."""
        return f"{self.path}: {self.text}"


def pieces(repo: Path, before: Overlay, after: Overlay) -> list[Piece]:
    """What one patch changes in the installed package, in the order of paths and lines.

    `before` and `after` are the overlays of the patches before it, and of those and itself.
    """
    old, new = entries(before), entries(after)
    found: list[Piece] = []
    for path in sorted(path for path in {*old, *new} if old.get(path) != new.get(path)):
        first = found[-1].hunk + 1 if found else 1
        origin = old[path] if path in old else _pinned(after, path)
        found += _of_file(repo, (before.head, after.head), path, origin, new.get(path), first)
    return found


def entries(made: Overlay) -> dict[str, Entry | None]:
    """The changed files of an overlay."""
    return {change.path: change.new for change in made.changes}


def _pinned(made: Overlay, path: str) -> Entry | None:
    return next(change.old for change in made.changes if change.path == path)


def _of_file(
    repo: Path, commits: tuple[str, str], path: str, old: Entry | None, new: Entry | None, first: int
) -> list[Piece]:
    if old is None or new is None or old.mode != new.mode or b"\0" in old.data + new.data:
        return [_whole(path, old, new, first)]
    was, now = old.data.splitlines(keepends=True), new.data.splitlines(keepends=True)
    found: list[Piece] = []
    end = None
    for removed, added in _runs(repo, commits, path):
        hunk = first if not found else found[-1].hunk + (added.start - (end or 0) > 2 * _CONTEXT)
        data = b"".join([*now[: added.start], *was[removed.start : removed.stop], *now[added.stop :]])
        text = _text(now[added.start : added.stop] or was[removed.start : removed.stop])
        same = path.endswith(".py") and _program(data) == _program(new.data)
        line = added.start + (1 if len(added) else 0)
        found.append(Piece(path, hunk, line, len(added), len(removed), text, same, Entry(new.mode, data)))
        end = added.stop
    return found


def _whole(path: str, old: Entry | None, new: Entry | None, hunk: int) -> Piece:
    what = "makes" if old is None else "removes" if new is None else "changes the bytes or the mode of"
    return Piece(path, hunk, 0, 0, 0, f"{what} the file", False, old)


def _runs(repo: Path, commits: tuple[str, str], path: str) -> Iterator[tuple[range, range]]:
    """The changed runs, as lines (from 0) of the old file and of the new one; either may be empty."""
    diff = git(repo, "diff-tree", "-p", "-U0", "--no-renames", *commits, "--", path)
    for match in _HEADER.finditer(diff):
        yield _range(match[1], match[2]), _range(match[3], match[4])


def _range(start: bytes, count: bytes | None) -> range:
    """Of a hunk header: an empty side names the line before it."""
    lines = 1 if count is None else int(count)
    first = int(start) - (1 if lines else 0)
    return range(first, first + lines)


def added_lines(repo: Path, before: Overlay, after: Overlay, path: str) -> set[int]:
    """The lines (from 1) of the patched file that one patch added or changed."""
    return {line + 1 for _, added in _runs(repo, (before.head, after.head), path) for line in added}


def _text(lines: list[bytes]) -> str:
    said = [line.decode(errors="backslashreplace").strip() for line in lines]
    return next((line for line in said if line), "blank lines")


def _program(source: bytes) -> str:
    """The syntax tree without docstrings, as text; the source itself where it is no Python."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return source.decode(errors="backslashreplace")
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and _documented(node):
            node.body = node.body[1:]
    return ast.dump(tree)


def _documented(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return ast.get_docstring(node, clean=False) is not None
