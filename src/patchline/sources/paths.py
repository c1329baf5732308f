"""Which paths a source may have: those that stay inside the tree on every file system."""

from __future__ import annotations

import re

# Characters that HFS+ leaves out when it compares names, so that `.g\u200cit` opens `.git`.
_IGNORED = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")
_LONGEST = 255
"""Bytes that a file system allows for one name."""


def fault(path: str) -> str | None:
    """Why `path` may not be in a source; None for one that may."""
    if any(ord(char) < 0x20 or char == "\x7f" for char in path):
        return "it has a control character"
    if "\\" in path:
        return "it has a backslash"
    if path.startswith("/") or re.match(r"[A-Za-z]:", path):
        return "it is absolute"
    faults = (_fault_of_part(part) for part in path.split("/"))
    return next((found for found in faults if found), None)


def _fault_of_part(part: str) -> str | None:
    if part in ("", ".", ".."):
        return f"it has the component '{part}'"
    if len(part.encode("utf-8", "surrogateescape")) > _LONGEST:
        return f"a component is longer than {_LONGEST} bytes"
    if is_dot_git(part):
        return "it leads into a .git folder"
    return None


def is_dot_git(part: str) -> bool:
    """Whether some file system takes the name `part` for `.git`."""
    plain = _IGNORED.sub("", part).split(":")[0].rstrip(". ").lower()
    return plain in (".git", "git~1")
