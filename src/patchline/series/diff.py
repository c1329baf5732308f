"""Reads unified diffs, git's and others', into files and hunks; judges nothing about any tree."""

from __future__ import annotations

import re
from typing import NamedTuple

from patchline.paths import PATH_BYTES
from patchline.series import names
from patchline.series.binary import Binary, decoded
from patchline.series.hunks import HEAD, Hunk, hunks, without_returns
from patchline.series.names import NULL
from patchline.series.refusals import BadPatch

# Seldom met, so compiled when met: rb"" and not re.compile.
_ED = rb"\d+(,\d+)?[acd]\r?\n?$"
_ED_SCRIPT = "an ed script; only unified diffs are taken"
_EXTENDED = re.compile(
    rb"(old mode |new mode |deleted file mode |new file mode |copy from |copy to |rename from |rename to "
    rb"|similarity index |dissimilarity index |index )"
)
_ORPHAN = (
    rb"((old|new|new file|deleted file) mode [0-7]{6}|(dis)?similarity index \d+%"
    rb"|index [0-9a-f]{4,}\.\.[0-9a-f]{4,}( [0-7]{6})?)\r?\n?$"
)
_ACTIONS = {
    "create": (b"new file mode ",),
    "delete": (b"deleted file mode ",),
    "rename": (b"rename from ", b"rename to "),
    "copy": (b"copy from ", b"copy to "),
}
_HALF = rb"(literal|delta) (\d{1,18})\n"
_LONGEST = 8 * PATH_BYTES + 8  # bytes of two quoted names


class FileDiff(NamedTuple):
    """What a patch does to one file. Names are stripped; a name of None is `/dev/null`."""

    old: str | None
    new: str | None
    line: int
    git: bool = False
    """Whether it says itself which file it means; else the tree decides between two names."""
    old_mode: int | None = None
    new_mode: int | None = None
    action: str = "modify"
    """`modify`, `create`, `delete`, `rename` or `copy`."""
    hunks: tuple[Hunk, ...] = ()
    binary: Binary | None = None
    unprefixed: tuple[bytes, ...] = ()
    """The names before stripping, for a hint when stripping was wrong."""

    @property
    def path(self) -> str:
        """The file as people call it."""
        return self.new or self.old or "/dev/null"


class Piece(NamedTuple):
    """Lines `begin` to `end` (counted from 0) of a patch: a file's diff, or why it is not one."""

    begin: int
    end: int
    diff: FileDiff | BadPatch


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

    def name(self, name: bytes) -> str | None:
        return names.stripped(name, self.strip, lenient=self.lenient)

    def heads(self) -> tuple[bytes, bytes]:
        """The `---` and `+++` lines."""
        return self.take(), self.take()

    def hunks(self, head: bytes) -> tuple[Hunk, ...]:
        """The hunks that follow `head`. A patch with carriage returns is the lenient reader's."""
        found, self.at = hunks(self.lines, self.at, lenient=self.lenient)
        return without_returns(found) if self.lenient and head.endswith(b"\r\n") else found


def scan(lines: list[bytes], begin: int, *, strip: int = 1, lenient: bool = False) -> list[Piece]:
    """Every place of a patch's `lines` (each with its newline) where a file's diff begins.

    After one that is not a whole diff the search goes on at its next line: it may be a quotation.
    `lenient` reads what `dpkg-source` reads, a chopped last blank line among it.
    """
    if lenient and not lines[-1].endswith(b"\n") and not lines[-1].startswith(b"\\"):
        lines = lines[:-1]  # GNU patch does not see a last line without its newline
    pieces, reader = [], _Reader(lines, begin, strip, lenient)
    while reader.at < len(lines):
        at = reader.at
        if not starts_file(lines, at):
            reader.at += 1
            continue
        try:
            diff: FileDiff | BadPatch | None = (_git_file if lines[at].startswith(b"d") else _plain_file)(reader)
        except BadPatch as bad:
            diff, reader.at = bad, at + 1
        if diff:
            pieces.append(Piece(at, reader.at, diff))
    return pieces


def starts_file(lines: list[bytes], at: int) -> bool:
    """Whether a file's diff begins at `lines[at]`."""
    line = lines[at]
    if not line.startswith(b"--- "):
        return line.startswith(b"diff --git ")
    following = lines[at + 1 : at + 3]
    return len(following) == 2 and following[0].startswith(b"+++ ") and following[1].startswith(b"@@ -")


def foreign_form(lines: list[bytes], at: int) -> str | None:
    """What kind of change, not taken, the line is that belongs to no diff; None for plain text."""
    line = lines[at]
    if line.startswith(b"*** ") and lines[at + 2 : at + 3] and lines[at + 2].startswith(b"***************"):
        return "a context diff; only unified diffs are taken (make it with diff -u)"
    if line.startswith(b"@@ -") and HEAD.match(line):
        return "a hunk that belongs to no file"
    return None


def indented(lines: list[bytes], at: int) -> str | None:
    """What is wrong where an indented diff begins: GNU patch applies it, and git takes it for text."""
    three = [line.lstrip(b" \tX")[:4] for line in lines[at : at + 3]]
    if lines[at][:1] in b" \tX" and three == [b"--- ", b"+++ ", b"@@ -"]:
        return "an indented diff, which GNU patch applies; is it quoted, or meant?"
    return None


def lost_part(lines: list[bytes], at: int) -> str | None:
    """As `foreign_form`, and for what GNU patch takes for text: parts of changes that would be lost."""
    line = lines[at]
    if line[:1].isdigit() and re.match(_ED, line):
        return _ED_SCRIPT
    if line.startswith(b"Binary files ") and line.rstrip().endswith(b" differ"):
        return "a binary file's diff without its data; make it with git diff --binary"
    if line.startswith(b"--- ") and [two[:4] for two in lines[at + 1 : at + 2]] == [b"+++ "]:
        script = [re.match(_ED, three) for three in lines[at + 2 : at + 3]]
        return _ED_SCRIPT if any(script) else "the beginning of a diff whose rest is not there"
    if line.startswith(b"GIT binary patch"):
        return "a binary patch that belongs to no file"
    if _EXTENDED.match(line) and re.match(_ORPHAN, line):
        return "a line of git's that belongs to no diff"
    return foreign_form(lines, at)


# Git's form


def _git_file(reader: _Reader) -> FileDiff | None:
    line, head = reader.number, reader.take()
    extended = _extended(reader)
    _check_line_end(reader, head)
    if len(head) > _LONGEST:
        raise reader.bad("names longer than any file system takes", line)
    pair = names.same_twice(head[len(b"diff --git ") :].rstrip(b"\r\n" if reader.lenient else b"\n"), reader.strip)
    old, new = map(reader.name, pair) if pair else (None, None)
    diff = _with_action(reader, FileDiff(old, new, line, git=True, unprefixed=pair or ()), extended)
    if reader.lenient:
        _skip_to_heads(reader)
    if reader.peek().startswith(b"GIT binary patch"):
        diff = diff._replace(binary=_binary(reader, extended.get(b"index ", b"")))
    elif reader.peek().startswith(b"--- ") and reader.peek(1).startswith(b"+++ "):
        heads = reader.heads()
        found = reader.hunks(heads[1])
        return (_as_gnu_reads if reader.lenient else _named_by_heads)(reader, diff, heads)._replace(hunks=found)
    elif diff.action == "modify" and diff.new_mode is None:
        _check_without_change(reader, diff)
        return None
    if not pair and diff.action not in ("rename", "copy"):
        raise reader.bad("no file is named: two names are expected that differ in their prefixes only", line)
    return diff


def _extended(reader: _Reader) -> dict[bytes, bytes]:
    """The lines that git puts between `diff --git` and `---`."""
    found: dict[bytes, bytes] = {}
    while key := _EXTENDED.match(reader.peek()):
        if key[1] in found and not reader.lenient:
            raise reader.bad(f"{key[1].decode()}: said twice; two headers run into one")
        found[key[1]] = reader.take()[key.end() :].rstrip(b"\r\n" if reader.lenient else b"\n")
    return found


def _skip_to_heads(reader: _Reader) -> None:
    """GNU patch takes the next `---` for a header's own, whatever stands between."""
    at = reader.at
    while at < len(reader.lines) and not (starts_file(reader.lines, at) or reader.lines[at].startswith(b"GIT binary")):
        at += 1
    if at < len(reader.lines) and reader.lines[at].startswith(b"--- "):
        reader.at = at


def _check_without_change(reader: _Reader, diff: FileDiff) -> None:
    if reader.lenient:  # for GNU patch, a binary file's diff without its data is text
        return
    if reader.peek().startswith(b"Binary files "):
        raise reader.bad("a binary file's diff without its data; make it with git diff --binary")
    raise reader.bad(f"{diff.path}: a header without a change", diff.line)


def _check_line_end(reader: _Reader, head: bytes) -> None:
    if head.endswith(b"\r\n") and not reader.lenient:
        raise BadPatch(
            "the patch file was saved with CRLF line ends: its own headers end in CR", next="save it with LF line ends"
        )


def _named_by_heads(reader: _Reader, diff: FileDiff, heads: tuple[bytes, bytes]) -> FileDiff:
    """The `---` and `+++` lines name the files without doubt; they may not contradict the rest."""
    for head in heads:
        _check_line_end(reader, head)
    old, new = (names.of_head(head, git=True) for head in heads)
    wanted = {"create": (True, False), "delete": (False, True)}.get(diff.action, (False, False))
    if (old == NULL, new == NULL) != wanted:
        raise reader.bad(f"{diff.path}: --- and +++ contradict the header ({diff.action})", diff.line)
    first, second = reader.name(old), reader.name(new)
    header = (diff.old, diff.new)
    if diff.action in ("rename", "copy"):
        if (first, second) != header:
            raise reader.bad(f"{diff.path}: --- and +++ name other files than the header", diff.line)
        return diff
    if any(name and said and name != said for name, said in zip((first, second), header, strict=True)):
        raise reader.bad(f"{diff.path}: --- and +++ name other files than the header", diff.line)
    if first and second and first != second:
        raise reader.bad(f"{diff.path}: two names, {first} and {second}, and no rename", diff.line)
    return diff._replace(old=first, new=second, unprefixed=(old, new))


def _as_gnu_reads(reader: _Reader, diff: FileDiff, heads: tuple[bytes, bytes]) -> FileDiff:
    """GNU patch compares nothing: the header says what is done, and the tree which name is meant."""
    old, new = (names.of_head(head, git=False) for head in heads)
    first, second = reader.name(old), reader.name(new)
    if diff.action == "create":
        return diff._replace(new=second or first, unprefixed=(old, new))
    if diff.action == "delete":
        return diff._replace(old=first or second, unprefixed=(old, new))
    if diff.action == "modify":
        return diff._replace(old=first, new=second, git=False, unprefixed=(old, new))
    return diff


def _with_action(reader: _Reader, diff: FileDiff, extended: dict[bytes, bytes]) -> FileDiff:
    def mode(key: bytes) -> int | None:
        return _mode(reader, extended[key]) if key in extended else None

    words = extended.get(b"index ", b"").split()
    if len(words) == 2:
        _mode(reader, words[1])  # a symlink or a submodule says so here, and nowhere else
    old_mode, new_mode = mode(b"old mode "), mode(b"new mode ")
    said = [action for action, keys in _ACTIONS.items() if any(key in extended for key in keys)]
    if new_mode and {"create", "delete"} & {*said}:
        said.append("new mode")
    if len(said) > 1:
        raise reader.bad(f"{diff.path}: the header says both {said[0]} and {said[1]}", diff.line)
    if said == ["create"]:
        return diff._replace(action="create", old=None, new_mode=mode(b"new file mode "))
    if said == ["delete"]:
        return diff._replace(action="delete", new=None, old_mode=mode(b"deleted file mode "))
    diff = diff._replace(old_mode=old_mode, new_mode=new_mode)
    if not said:
        return diff
    if not all(key in extended for key in _ACTIONS[said[0]]):
        raise reader.bad(f"{diff.path}: half of a {said[0]} is missing", diff.line)
    pair = (names.unquoted(extended[key]) for key in _ACTIONS[said[0]])
    old, new = (names.stripped(name, max(reader.strip - 1, 0)) for name in pair)  # these lines have no a/ and b/
    return diff._replace(action=said[0], old=old, new=new)


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


def _binary(reader: _Reader, index: bytes) -> Binary:
    start = reader.number
    reader.take()
    halves = []
    while match := re.match(_HALF, reader.peek()):
        reader.take()
        data = []
        while reader.peek().strip():
            data.append(reader.take().rstrip(b"\n"))
        reader.take()
        halves.append(decoded(match[1].decode(), int(match[2]), data))
    if not halves:
        raise reader.bad("a binary patch without data", start)
    ids = re.match(rb"([0-9a-f]{64}|[0-9a-f]{40})\.\.([0-9a-f]{64}|[0-9a-f]{40})(?: |$)", index)
    if not ids:
        raise reader.bad("a binary patch whose index line has no full ids; make it with git diff --binary", start)
    return halves[0]._replace(old_id=ids[1].decode(), new_id=ids[2].decode())


# Everybody else's form


def _plain_file(reader: _Reader) -> FileDiff:
    line = reader.number
    heads = reader.heads()
    for head in heads:
        _check_line_end(reader, head)
    old, new = (names.of_head(head, git=False) for head in heads)
    found = reader.hunks(heads[1])
    first, second = reader.name(old), reader.name(new)
    if first is None and second is None:
        raise reader.bad(f"no file is named, once -p{reader.strip} is stripped", line)
    before = not found[0].old and found[0].old_start == 0
    after = not found[0].new and found[0].new_start == 0
    action = "modify"
    if (old == NULL and (before or not reader.lenient)) or (before and names.is_epoch(heads[0])):
        action, first, second = "create", None, second or first
    elif (new == NULL and (after or not reader.lenient)) or (after and names.is_epoch(heads[1])):
        action, first, second = "delete", first or second, None
    return FileDiff(first, second, line, action=action, hunks=found, unprefixed=(old, new))
