"""File names as diffs write them: quoted, dated, with components to strip."""

from __future__ import annotations

import os
import re

from patchline.series.refusals import BadPatch

NULL = b"/dev/null"

_ESCAPES = {b"a": 7, b"b": 8, b"t": 9, b"n": 10, b"v": 11, b"f": 12, b"r": 13, b'"': 34, b"\\": 92}
# Seldom met, so compiled when met: rb"" and not re.compile.
_ESCAPE = rb'\\([0-3][0-7]{2}|[abtnvfr"\\])'
_WHOLE = rb'"(?:[^"\\]|' + _ESCAPE + rb')*"'
_QUOTED = rb'"(?:[^"\\]|\\.)*"'
# A zone can take the epoch a day away from what is written; GNU patch reckons with that, too.
_EPOCH = (
    rb"\t *(?:19(?:69-12-31|70-01-0[12]) "
    rb"|[A-Z][a-z]{2} (?:Dec 31 [0-9:]{8} 1969|Jan +[12] [0-9:]{8} 1970))"
)


def is_epoch(head: bytes) -> bool:
    """Whether the date on a `---` or `+++` line is the one that stands for a file that is not there."""
    return re.search(_EPOCH, head) is not None


def of_head(head: bytes, *, git: bool) -> bytes:
    """The name on a `---` or `+++` line: up to a tab; without one and not git's, up to a blank."""
    rest = head[4:].rstrip(b"\n")
    if rest.startswith(b'"'):
        whole = re.match(_QUOTED + rb"(?=\s|$)", rest)
        return unquoted(whole[0] if whole else rest)
    if b"\t" in rest:
        name = rest.split(b"\t")[0]
        return name if git else name.rstrip()
    return rest if git else rest.split(b" ")[0].rstrip()


def unquoted(name: bytes) -> bytes:
    """A name as git quotes it: C escapes between double quotes.

    Raises:
        BadPatch: the quotes or the escapes are broken.
    """
    if not name.startswith(b'"'):
        return name
    if not re.fullmatch(_WHOLE, name):
        raise BadPatch(f"a name that is not quoted as git does it: {os.fsdecode(name)}")

    def value(match: re.Match[bytes]) -> bytes:
        escape = match[1]
        return bytes([_ESCAPES[escape] if escape in _ESCAPES else int(escape, 8) & 255])

    return re.sub(_ESCAPE, value, name[1:-1])


def stripped(name: bytes, count: int, *, lenient: bool = False) -> str | None:
    """`name` without its first `count` components; None for `/dev/null` and where it has not so many.

    An absolute name is kept as it is, so that it is refused by its own name. `lenient` strips its
    first slash as a component, as GNU patch does, and leaves out components that are a dot.
    """
    if name == NULL:
        return None
    if name.startswith(b"/") and not (lenient and count):
        return os.fsdecode(name)
    if b"//" in name:
        name = re.sub(b"/+", b"/", name)
    parts = name.split(b"/", count)
    if len(parts) <= count:
        return None
    rest = re.sub(rb"(^|/)(?:\./)+", rb"\1", parts[count]) if lenient else parts[count]
    return os.fsdecode(rest) or None


def same_twice(rest: bytes, strip: int) -> tuple[bytes, bytes] | None:
    """Both names of a `diff --git` line, where they are one name once stripped; None where they are not.

    Names with blanks are told apart by that only.
    """
    if rest.startswith(b'"') or rest.endswith(b'"'):
        words = [unquoted(word) for word in re.findall(_QUOTED + rb"|\S+", rest)]
        same = len(words) == 2 and _tail(words[0], strip) == _tail(words[1], strip)
        return (words[0], words[1]) if same else None
    found = None
    at = rest.find(b" ")
    while at >= 0:
        pair = rest[:at], rest[at + 1 :]
        if _tail(pair[0], strip) == _tail(pair[1], strip):
            if found:
                return None
            found = pair
        at = rest.find(b" ", at + 1)
    return found


def _tail(name: bytes, strip: int) -> bytes:
    return name.split(b"/", strip)[-1]
