"""The lines of a `git fast-import` stream: raw bytes in, no filters, no line ends changed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

REF = "refs/patchline/import"
"""Where a stream's commits hang while it is read; no such ref is left."""


def commit(who: str, message: bytes, *, mark: int = 0, parent: str = "") -> Iterator[bytes]:
    """The head of a commit; `who` is `Name <address> SECONDS ZONE`, author and committer in one."""
    person = who.encode("utf-8", "surrogateescape")
    yield b"commit %s\n" % REF.encode()
    if mark:
        yield b"mark :%d\n" % mark
    yield b"author %s\ncommitter %s\ndata %d\n%s\n" % (person, person, len(message), message)
    if parent:
        yield b"from %s\n" % parent.encode()


def file(path: str, mode: int, data: bytes) -> Iterator[bytes]:
    """A file with its bytes; `mode` is git's."""
    yield b"M %o inline %s\ndata %d\n" % (mode, quoted(path), len(data))
    yield data
    yield b"\n"


def removed(path: str) -> bytes:
    """A file that goes."""
    return b"D %s\n" % quoted(path)


def quoted(path: str) -> bytes:
    """`path` as fast-import reads it: in quotes, with C escapes, where it needs them."""
    name = os.fsencode(path)
    if not re.search(rb'["\\\x00-\x1f]', name):
        return name
    return b'"' + re.sub(rb'["\\\x00-\x1f]', lambda match: b"\\%03o" % match[0][0], name) + b'"'
