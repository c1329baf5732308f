"""A patch's diffs as HTML: every line with its numbers and an address of its own.

One form serves both ways of reading: removed and added lines of one place are two groups, which stand below each other
or side by side.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from markupsafe import Markup

from patchline.changelog.marks import Marked, body, marked
from patchline.page.highlight import highlighted
from patchline.page.visible import code
from patchline.series.diff import FileDiff
from patchline.series.hunks import Hunk
from patchline.series.patch import Patch

_GROUPS = {" ": ("<div class=x>", "</div>"), "-": ("<del>", "</del>"), "+": ("<ins>", "</ins>")}


class Code(NamedTuple):
    """One file's diff."""

    id: str
    path: str
    note: str
    """What happens to the file beside its lines: `new file`, a rename, a mode, binary data."""
    hunks: list[Markup]


class _Line(NamedTuple):
    mark: str
    old: int
    new: int
    html: str


def codes(patch: Patch, prefix: str) -> list[Code]:
    """The diffs of a patch; addresses begin with `prefix`: `PREFIX.2n80` is the new line 80 of the second file."""
    lines = body(patch)
    return [_code(lines, diff, f"{prefix}.{number}") for number, diff in enumerate(patch.files, 1)]


def _code(lines: list[bytes], diff: FileDiff, id: str) -> Code:
    hunks = [Markup(_hunk(lines, diff, hunk, id)) for hunk in diff.hunks]
    return Code(id, diff.path, "; ".join(_notes(diff)), hunks)


def _notes(diff: FileDiff) -> Iterator[str]:
    words = {"create": "new file", "delete": "deleted", "rename": "renamed from", "copy": "copied from"}
    if diff.action in words:
        yield f"{words[diff.action]} {diff.old}" if diff.action in ("rename", "copy") else words[diff.action]
    if diff.new_mode is not None and (diff.action != "create" or diff.new_mode == 0o100755):
        yield f"mode {diff.new_mode & 0o777:o}"
    if diff.binary:
        yield f"binary, {diff.binary.size:,} bytes of {'data' if diff.binary.kind == 'literal' else 'a delta'}"
        yield f"from {diff.binary.old_id[:12]} to {diff.binary.new_id[:12]}"


def _hunk(lines: list[bytes], diff: FileDiff, hunk: Hunk, id: str) -> str:
    found = list(_lines(diff, hunk, [*marked(lines, hunk)]))
    head = lines[hunk.line - 1].decode("utf-8", "backslashreplace").rstrip("\r\n")
    at = f"{id}h{hunk.line}"
    parts = [f"<a class=h id={at} href=#{at}>{code(head)}</a>"]
    both: list[str] = []
    for mark, group in groupby(found, key=lambda line: line.mark):
        opening, closing = _GROUPS[mark]
        rows = "".join(_row(line, id) for line in group)
        if mark == " ":
            parts += [*_pair(both), f"{opening}{rows}{closing}"]
            both = []
        else:
            both.append(f"{opening}{rows}{closing}")
    return "".join([*parts, *_pair(both)])


def _pair(both: list[str]) -> list[str]:
    return [f"<div class=g>{''.join(both)}</div>"] if both else []


def _lines(diff: FileDiff, hunk: Hunk, found: list[Marked]) -> Iterator[_Line]:
    """Old and new text are read as code each, so that neither colours the other."""
    sides = {
        side: iter(highlighted(diff.path, [_text(one) for one in found if one.mark != other]))
        for side, other in (("-", "+"), ("+", "-"))
    }
    old, new = hunk.old_start, hunk.new_start
    for one in found:
        coloured = next(sides["-"]) if one.mark == "-" else next(sides["+"])
        if one.mark == " ":
            next(sides["-"])
        ending = "" if one.ends else "<i>no newline at the end</i>"
        yield _Line(one.mark, old, new, coloured + ending)
        old, new = old + (one.mark != "+"), new + (one.mark != "-")


def _text(one: Marked) -> str:
    return one.text.decode("utf-8", "backslashreplace")


def _row(line: _Line, id: str) -> str:
    """A number is a link to its own line; of a line that stays, the new one is."""
    if line.mark == "-":
        at = f"{id}o{line.old}"
        numbers = f"<a id={at} href=#{at}>{line.old}</a>"
    else:
        at = f"{id}n{line.new}"
        old = f"<b>{line.old}</b>" if line.mark == " " else ""
        numbers = f"{old}<a id={at} href=#{at}>{line.new}</a>"
    return f"<div>{numbers}<code>{line.html}</code></div>"
