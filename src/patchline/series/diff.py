"""Reads unified diffs, git's and others', into files and hunks; judges nothing about any tree."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from patchline.series.binary import Binary, decoded
from patchline.series.refusals import BadPatch

_HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_ED = re.compile(rb"\d+(,\d+)?[acd]\r?\n?$")
_EPOCH = re.compile(rb"\t(1970-01-01 00:00:00|Thu Jan +1 00:00:00 1970|1969-12-31 )")
_ESCAPES = {b"a": 7, b"b": 8, b"t": 9, b"n": 10, b"v": 11, b"f": 12, b"r": 13, b'"': 34, b"\\": 92}
_EXTENDED = (
    b"old mode ", b"new mode ", b"deleted file mode ", b"new file mode ", b"copy from ", b"copy to ",
    b"rename from ", b"rename to ", b"similarity index ", b"dissimilarity index ", b"index ",
)  # fmt: skip


class Side(NamedTuple):
    """One line of a hunk: `mark` is a space, `+` or `-`; `text` has its newline, if it has one."""

    mark: int
    text: bytes


class Hunk(NamedTuple):
    """Lines to find and lines to put there."""

    old_start: int
    new_start: int
    lines: tuple[Side, ...]
    line: int
    """Line of the header in the patch file, counted from 1."""

    @property
    def old(self) -> list[bytes]:
        """What must stand in the file."""
        return [text for mark, text in self.lines if mark != 43]

    @property
    def new(self) -> list[bytes]:
        """What stands there afterwards."""
        return [text for mark, text in self.lines if mark != 45]

    @property
    def leading(self) -> int:
        """Context lines before the first change."""
        return next((at for at, (mark, _) in enumerate(self.lines) if mark != 32), len(self.lines))

    @property
    def trailing(self) -> int:
        """Context lines after the last change."""
        marks = reversed(self.lines)
        return next((at for at, (mark, _) in enumerate(marks) if mark != 32), len(self.lines))


class FileDiff(NamedTuple):
    """What a patch does to one file. Names are stripped; a name of None is `/dev/null`."""

    old: str | None
    new: str | None
    line: int
    git: bool = False
    old_mode: int | None = None
    new_mode: int | None = None
    action: str = "modify"
    """`modify`, `create`, `delete`, `rename` or `copy`."""
    hunks: tuple[Hunk, ...] = ()
    binary: Binary | None = None
    unprefixed: tuple[str, ...] = ()
    """The names before stripping, for a hint when stripping was wrong."""

    @property
    def path(self) -> str:
        """The file as people call it."""
        return self.new or self.old or "/dev/null"


class _Reader:
    def __init__(self, lines: list[bytes], at: int, strip: int, lenient: bool) -> None:
        self.lines, self.at, self.strip, self.lenient = lines, at, strip, lenient

    @property
    def number(self) -> int:
        return self.at + 1

    def peek(self, ahead: int = 0) -> bytes:
        at = self.at + ahead
        return self.lines[at] if at < len(self.lines) else b""

    def take(self) -> bytes:
        line = self.peek()
        self.at += 1
        return line

    def bad(self, why: str, line: int | None = None) -> BadPatch:
        return BadPatch(f"line {line or self.number}: {why}")


class Piece(NamedTuple):
    """Lines `begin` to `end` (counted from 0) of a patch: a file's diff, or why it is not one."""

    begin: int
    end: int
    diff: FileDiff | BadPatch


def scan(lines: list[bytes], begin: int, *, strip: int = 1, lenient: bool = False) -> list[Piece]:
    """Every place of a patch's `lines` (each with its newline) where a file's diff begins.

    After one that is not a whole diff the search goes on at its next line: it may be a quotation.
    `lenient` reads what `dpkg-source` reads, a chopped last blank line among it.
    """
    pieces, reader = [], _Reader(lines, begin, strip, lenient)
    while reader.at < len(lines):
        at = reader.at
        if not starts_file(lines, at):
            reader.at += 1
            continue
        try:
            diff: FileDiff | BadPatch = (
                _git_file(reader) if lines[at].startswith(b"diff --git ") else _plain_file(reader)
            )
        except BadPatch as bad:
            diff, reader.at = bad, at + 1
        pieces.append(Piece(at, reader.at, diff))
    return pieces


def starts_file(lines: list[bytes], at: int) -> bool:
    """Whether a file's diff begins at `lines[at]`."""
    if not lines[at].startswith(b"--- "):
        return lines[at].startswith(b"diff --git ")
    following = lines[at + 1 : at + 3]
    return len(following) == 2 and following[0].startswith(b"+++ ") and following[1].startswith(b"@@ -")


def foreign_form(lines: list[bytes], at: int) -> str | None:
    """What kind of change, not taken, the line is that belongs to no diff; None for plain text."""
    line = lines[at]
    if line.startswith(b"*** ") and lines[at + 2 : at + 3] and lines[at + 2].startswith(b"***************"):
        return "a context diff; only unified diffs are taken (make it with diff -u)"
    if _ED.match(line):
        return "an ed script; only unified diffs are taken"
    if line.startswith(b"Binary files ") and line.rstrip().endswith(b" differ"):
        return "a binary file's diff without its data; make it with git diff --binary"
    if line.startswith(b"@@ -") and _HUNK.match(line):
        return "a hunk that belongs to no file"
    return None


# Git's form


def _git_file(reader: _Reader) -> FileDiff:
    line, head = reader.number, reader.take()
    extended: dict[bytes, bytes] = {}
    while key := next((key for key in _EXTENDED if reader.peek().startswith(key)), None):
        extended[key] = reader.take()[len(key) :].rstrip(b"\n")
    old, new = _git_names(reader, head, line)
    diff = FileDiff(*_stripped(reader, old, new), line, git=True, unprefixed=_shown(old, new))
    diff = _with_action(reader, diff, extended)
    if reader.peek().startswith(b"GIT binary patch"):
        return diff._replace(binary=_binary(reader))
    if reader.peek().startswith(b"Binary files "):
        raise reader.bad("a binary file's diff without its data; make it with git diff --binary")
    if reader.peek().startswith(b"--- ") and reader.peek(1).startswith(b"+++ "):
        old, new = (_name(reader.take()[4:], git=True) for _ in range(2))
        diff = _named_by_header(reader, diff, old, new)
        diff = diff._replace(hunks=_hunks(reader))
    if not diff.hunks and diff.action == "modify" and diff.new_mode is None:
        raise reader.bad(f"{diff.path}: a header without a change", line)
    return diff


def _named_by_header(reader: _Reader, diff: FileDiff, old: bytes, new: bytes) -> FileDiff:
    """The `---` and `+++` lines name the files without doubt; they may not contradict the action."""
    null = (old == b"/dev/null", new == b"/dev/null")
    wanted = {"create": (True, False), "delete": (False, True)}.get(diff.action, (False, False))
    if null != wanted:
        raise reader.bad(f"{diff.path}: --- and +++ contradict the header ({diff.action})", diff.line)
    first, second = _stripped(reader, old, new)
    if diff.action in ("rename", "copy"):
        if (first, second) != (diff.old, diff.new):
            raise reader.bad(f"{diff.path}: --- and +++ name other files than the header", diff.line)
        return diff
    if first and second and first != second:
        raise reader.bad(f"{diff.path}: two names, {first} and {second}, and no rename", diff.line)
    return diff._replace(old=first, new=second, unprefixed=_shown(old, new))


def _with_action(reader: _Reader, diff: FileDiff, extended: dict[bytes, bytes]) -> FileDiff:
    def mode(key: bytes) -> int | None:
        return _mode(reader, extended[key]) if key in extended else None

    if b"new file mode " in extended:
        return diff._replace(action="create", old=None, new_mode=mode(b"new file mode "))
    if b"deleted file mode " in extended:
        return diff._replace(action="delete", new=None, old_mode=mode(b"deleted file mode "))
    words = extended.get(b"index ", b"").split()
    if len(words) == 2:
        _mode(reader, words[1])  # a symlink or a submodule says so here, and nowhere else
    modes = mode(b"old mode "), mode(b"new mode ")
    for action in ("rename", "copy"):
        source, target = (extended.get(f"{action} {end} ".encode()) for end in ("from", "to"))
        if source is not None and target is not None:
            names = (_strip(os.fsdecode(_unquoted(name)), max(reader.strip - 1, 0)) for name in (source, target))
            old, new = names
            return diff._replace(action=action, old=old, new=new, old_mode=modes[0], new_mode=modes[1])
    return diff._replace(old_mode=modes[0], new_mode=modes[1])


def _mode(reader: _Reader, text: bytes) -> int:
    try:
        mode = int(text, 8)
    except ValueError:
        raise reader.bad(f"not a file mode: {text!r}") from None
    if mode & 0o170000 == 0o120000:
        raise reader.bad("a symbolic link; a patch writes regular files only")
    if mode & 0o170000 == 0o160000:
        raise reader.bad("a submodule; a patch writes regular files only")
    if mode & 0o170000 != 0o100000:
        raise reader.bad(f"not the mode of a regular file: {text.decode(errors='replace')}")
    return 0o100755 if mode & 0o100 else 0o100644


def _git_names(reader: _Reader, head: bytes, line: int) -> tuple[bytes, bytes]:
    """Both names of a `diff --git` line. Names with blanks are told apart by being the same name."""
    rest = head[len(b"diff --git ") :].rstrip(b"\n")
    if rest.startswith(b'"') or rest.endswith(b'"'):
        words = re.findall(rb'"(?:[^"\\]|\\.)*"|\S+', rest)
        if len(words) == 2:
            return _unquoted(words[0]), _unquoted(words[1])
    blanks = [at for at, byte in enumerate(rest) if byte == 32]
    pairs = [(rest[:at], rest[at + 1 :]) for at in blanks]
    same = [pair for pair in pairs if _tail(pair[0], reader.strip) == _tail(pair[1], reader.strip)]
    if len(same) == 1 or len(pairs) == 1:
        return (same or pairs)[0]
    if reader.peek().startswith((b"--- ", b"rename ", b"copy ")) or same or pairs:
        return (same or pairs)[0]  # only a first guess: the lines that follow name them without doubt
    raise reader.bad("two file names are expected", line)


def _tail(name: bytes, strip: int) -> bytes:
    return name.split(b"/", strip)[-1]


def _binary(reader: _Reader) -> Binary:
    start = reader.number
    reader.take()
    halves = []
    while match := re.match(rb"(literal|delta) (\d+)\n", reader.peek()):
        reader.take()
        data = []
        while reader.peek().strip():
            data.append(reader.take().rstrip(b"\n"))
        reader.take()
        halves.append(decoded(match[1].decode(), int(match[2]), data))
    if not halves:
        raise reader.bad("a binary patch without data", start)
    return halves[0]


# Everybody else's form


def _plain_file(reader: _Reader) -> FileDiff:
    line = reader.number
    heads = reader.take()[4:], reader.take()[4:]
    old, new = (_name(head, git=False) for head in heads)
    hunks = _hunks(reader)
    action = "modify"
    none_before = not hunks[0].old and hunks[0].old_start == 0 and len(hunks) == 1
    none_after = not hunks[0].new and hunks[0].new_start == 0 and len(hunks) == 1
    if old == b"/dev/null" or (none_before and _EPOCH.search(heads[0])):
        action = "create"
    elif new == b"/dev/null" or (none_after and _EPOCH.search(heads[1])):
        action = "delete"
    first, second = _stripped(reader, old, new)
    if first is None and second is None:
        raise reader.bad("no file is named", line)
    names = {"create": (None, second or first), "delete": (first or second, None)}.get(action, (first, second))
    return FileDiff(*names, line, action=action, hunks=hunks, unprefixed=_shown(old, new))


def _name(rest: bytes, *, git: bool) -> bytes:
    """The name on a `---` or `+++` line: up to a tab; without one and not git's, up to a blank."""
    rest = rest.rstrip(b"\n")
    if rest.startswith(b'"'):
        return _unquoted(rest.split(b'"\t')[0] + (b'"' if b'"\t' in rest else b""))
    if b"\t" in rest or git:
        return rest.split(b"\t")[0]
    return rest.split(b" ")[0]


def _unquoted(name: bytes) -> bytes:
    """A name as git quotes it: C escapes between double quotes."""
    if not (name.startswith(b'"') and name.endswith(b'"') and len(name) > 1):
        return name

    def value(match: re.Match[bytes]) -> bytes:
        escape = match[1]
        return bytes([_ESCAPES[escape] if escape in _ESCAPES else int(escape, 8) & 255])

    return re.sub(rb'\\([0-3][0-7]{2}|[abtnvfr"\\])', value, name[1:-1])


def _stripped(reader: _Reader, old: bytes, new: bytes) -> tuple[str | None, str | None]:
    names = (None if name == b"/dev/null" else _strip(os.fsdecode(name), reader.strip) for name in (old, new))
    first, second = names
    return first, second


def _strip(name: str, count: int) -> str | None:
    """`name` without its first `count` components; None where it has not so many.

    An absolute name is kept as it is, so that it is refused by its own name.
    """
    if name.startswith("/"):
        return name
    parts = re.sub("/+", "/", name).split("/", count)
    return parts[count] or None if len(parts) > count else None


def _shown(*names: bytes) -> tuple[str, ...]:
    return tuple(os.fsdecode(name) for name in names if name != b"/dev/null")


# Hunks


def _hunks(reader: _Reader) -> tuple[Hunk, ...]:
    hunks = []
    while match := _HUNK.match(reader.peek()):
        hunks.append(_hunk(reader, match))
    if not hunks:
        raise reader.bad("a file header without a hunk")
    return tuple(hunks)


def _hunk(reader: _Reader, match: re.Match[bytes]) -> Hunk:
    start = reader.number
    old_start, old_count, new_start, new_count = (int(group or b"1") for group in match.groups())
    reader.take()
    sides: list[Side] = []
    olds = news = 0
    while olds < old_count or news < new_count:
        side = _side(reader, olds == old_count - 1 and news == new_count - 1)
        if side is None:
            got = f"{olds} of {old_count} old and {news} of {new_count} new lines"
            raise reader.bad(f"the hunk is cut short: {got} are there", start)
        olds, news = olds + (side.mark != 43), news + (side.mark != 45)
        sides.append(side)
        _take_marker(reader, sides)
    if olds != old_count or news != new_count:
        raise reader.bad("the hunk's lines do not add up to what its header says", start)
    if all(side.mark == 32 for side in sides):
        raise reader.bad("the hunk changes nothing", start)
    return Hunk(old_start, new_start, tuple(sides), start)


def _side(reader: _Reader, last: bool) -> Side | None:
    line = reader.peek()
    if line in (b"\n", b"\r\n"):  # a blank context line that lost its leading blank
        reader.take()
        return Side(32, line)
    if not line and last and reader.lenient:  # the last blank line was chopped
        return Side(32, b"\n")
    if line[:1] not in (b" ", b"+", b"-"):
        return None
    reader.take()
    return Side(line[0], line[1:])


def _take_marker(reader: _Reader, sides: list[Side]) -> None:
    r"""`\ No newline at end of file` belongs to the line before it."""
    if reader.peek().startswith(b"\\ "):
        reader.take()
        mark, text = sides[-1]
        sides[-1] = Side(mark, text.removesuffix(b"\n"))
