"""Which paths a source may have: stricter than a patch's, since a whole package needs nothing odd."""

from __future__ import annotations

import re

from patchline import paths


def fault(path: str) -> str | None:
    """Why `path` may not be in a source; None for one that may."""
    if any(ord(char) < 0x20 or char == "\x7f" for char in path):
        return "it has a control character"
    if "\\" in path:
        return "it has a backslash"
    if re.match(r"[A-Za-z]:", path):
        return "it is absolute"
    return paths.fault(path)
