"""One patch file: its header, its diffs, and the boundary between the two."""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_right
from pathlib import Path
from typing import NamedTuple

from patchline.series import diff as diffs
from patchline.series.diff import FileDiff, Piece
from patchline.series.mail import Header, body_text, decode_body, person, read
from patchline.series.place import split
from patchline.series.refusals import BadPatch

_STAT = (
    rb"( .+ \| +(\d+|Bin)( .*)?|"
    rb" \d+ files? changed.*|"
    rb" (create|delete) mode \d+ .*|"
    rb" mode change .*|"
    rb" (rename|copy|rewrite) .*|"
    rb"\s*)\r?\n?$"
)


class Patch(NamedTuple):
    """A patch as its file says it."""

    name: str
    """Name in the series file."""
    path: Path
    strip: int
    header: Header
    files: tuple[FileDiff, ...]
    raw: bytes


def changes_digest(patch: Patch) -> str:
    """sha256 of what a patch does to files, whatever its message says."""
    import msgspec

    files = [one._replace(line=0, hunks=tuple(hunk._replace(line=0) for hunk in one.hunks)) for one in patch.files]
    return f"sha256:{hashlib.sha256(msgspec.msgpack.encode(files)).hexdigest()}"


def parsed(raw: bytes, path: Path, name: str, strip: int = 1, *, lenient: bool = False) -> Patch:
    """Reads the bytes of a patch file; `path` and `name` only say where they come from.

    `lenient` reads what `dpkg-source` reads: an empty file, prose between diffs, carriage returns
    at the ends of all lines, chopped last blank lines, headers that say nothing sensible.

    Raises:
        BadPatch: it is empty, holds no change, is cut short or of a form that is not taken.
    """
    if not raw and lenient:
        return Patch(name, path, strip, Header(subject=path.stem), (), raw)
    if not raw.strip():
        raise BadPatch("the patch file is empty")
    lines = split(raw)
    header, start = _header(lines, lenient)
    if not lenient:
        lines = decode_body(lines, start)
    pieces = diffs.scan(lines, start, strip=strip, lenient=lenient)
    end, begin = _boundary(lines, start, pieces, lenient or not header.subject)
    _check_message(lines, start if end == begin or lenient else end, begin, lenient)
    files = _meant(lines, [piece for piece in pieces if piece.begin >= begin], lenient)
    return Patch(name, path, strip, _with_body(header, lines[start:end], path), files, raw)


def _header(lines: list[bytes], lenient: bool) -> tuple[Header, int]:
    try:
        return read(lines)
    except BadPatch:
        if lenient:
            return Header(), 0
        raise


def _with_body(header: Header, lines: list[bytes], path: Path) -> Header:
    body = body_text(lines)
    first, _, rest = body.partition("\n")
    if first.startswith("From: ") and first.endswith(">"):  # the author, where another one sent the mail
        name, email = person(first[6:])
        header, body = header._replace(name=name, email=email), rest.lstrip("\n")
    if not header.subject:
        subject, _, body = body.partition("\n")
        header = header._replace(subject=subject.strip("# \r") or path.stem)
    both = "\n\n".join(text for text in (header.body, body.strip("\n")) if text)
    return header._replace(body=both)


def _boundary(lines: list[bytes], start: int, pieces: list[Piece], all_meant: bool) -> tuple[int, int]:
    """Where the message ends, and where the diffs begin.

    In a mail, a line `---` with nothing but a diffstat between it and a diff ends the message, so
    a message may quote diffs before it. Else, and where `all_meant` (GNU patch knows no such
    line), the diffs begin with the first one, and a `---` before it ends the message.
    """
    if not pieces:
        forms = (f"line {at + 1}: {why}" for at in range(start, len(lines)) if (why := diffs.lost_part(lines, at)))
        raise BadPatch(next(forms, "it holds no change"))
    first = pieces[0].begin
    rules = [at for at in range(start, len(lines)) if lines[at].rstrip(b"\r\n") == b"---"]
    for rule in () if all_meant else rules:
        begin = _after_stat(lines, rule + 1)
        if begin and not _inside(pieces, rule):
            return rule, begin
    return next((rule for rule in rules if rule < first), first), first


def _inside(pieces: list[Piece], at: int) -> bool:
    before = pieces[bisect_right(pieces, at, key=lambda piece: piece.begin) - 1]
    return before.begin <= at < before.end and isinstance(before.diff, FileDiff)


def _check_message(lines: list[bytes], at: int, begin: int, lenient: bool) -> None:
    """Where nothing marks the end of the message, a broken diff in it was perhaps meant."""
    quoted = "apply without --nearest" if lenient else "end the message with a line --- right before the diff"
    for number in range(at, begin):
        if why := diffs.indented(lines, number) if lenient else diffs.lost_part(lines, number):
            raise BadPatch(f"line {number + 1}: {why}", next=f"correct it; where it is only quoted, {quoted}")


def _after_stat(lines: list[bytes], at: int) -> int | None:
    """Where the diff begins that follows `at` with a blank line or a diffstat between."""
    first = at
    while at < len(lines) and not diffs.starts_file(lines, at):
        if lines[at].strip() and not re.match(_STAT, lines[at]):
            return None
        at += 1
    return at if first < at < len(lines) else None


def _meant(lines: list[bytes], pieces: list[Piece], lenient: bool) -> tuple[FileDiff, ...]:
    """The diffs of a patch, once nothing between and after them is left unexplained."""
    found: list[FileDiff] = []
    for piece, following in zip(pieces, [*pieces[1:], None], strict=True):
        if isinstance(piece.diff, BadPatch):
            raise piece.diff
        found.append(piece.diff)
        _check_rest(lines, piece.end, following.begin if following else len(lines), lenient, last=following is None)
    return tuple(found)


def _check_rest(lines: list[bytes], at: int, end: int, lenient: bool, *, last: bool) -> None:
    """Text after a diff. Between two: is the first one quoted, or meant? Nobody can tell, so nobody guesses."""
    signature = False
    for number in range(at, end):
        line = lines[number]
        if lenient:
            why = diffs.foreign_form(lines, number) or diffs.indented(lines, number)
        else:
            why = diffs.lost_part(lines, number)
        if why:
            raise BadPatch(f"line {number + 1}: {why}")
        if lenient or not line.strip():
            continue
        if last and line.rstrip(b"\r\n") in (b"-- ", b"--"):
            signature = True
        elif line.startswith(b"+") or (line[:1] in (b"-", b" ") and not signature):
            raise BadPatch(f"line {number + 1}: a line that no hunk counts: the hunk is longer than its header says")
        elif not last and not line.startswith((b"Index: ", b"====", b"diff ", b"Only in ")):
            raise BadPatch(
                f"line {number + 1}: prose between two diffs; is the diff before it quoted, or meant?",
                next="end the message with a line --- before the real diff, or indent the quoted one",
            )
