"""What a patch is refused for, in words that say the patch, the file, the hunk and the line."""

from __future__ import annotations

from typing import NamedTuple

from patchline.errors import DoesNotApply


class BadPatch(DoesNotApply):
    """The patch file itself is wrong: cut short, of a form that is not taken, or unsafe."""


class HunkRefusal(NamedTuple):
    """One hunk that has no place, or more than one."""

    path: str
    hunk: int
    """Counted from 1 within its file."""
    line: int
    """Line of the hunk's header in the patch file, counted from 1."""
    why: str
    sought: str = ""

    def __str__(self) -> str:
        text = f"{self.path}: hunk {self.hunk} (line {self.line} of the patch): {self.why}"
        return f"{text}\n{self.sought}" if self.sought else text


def sought(lines: list[bytes], most: int = 8) -> str:
    """The lines that a hunk looked for, indented, cut after `most`."""
    shown = ["    | " + line.decode("utf-8", "backslashreplace").rstrip("\n") for line in lines[:most]]
    if len(lines) > most:
        shown.append(f"    | … {len(lines) - most} more")
    return "\n".join(shown)
