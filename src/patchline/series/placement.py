"""The words for where a hunk may go and went; `place` finds it. Light: every run passes through here."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Rule(Enum):
    """How a hunk that does not match at its line finds its place."""

    UNIQUE = "unique"
    """Exactly one place in the file may match; several are a refusal. Ours."""
    NEAREST = "nearest"
    """The nearest place, the later one of two as near: what GNU patch does for `dpkg-source`."""


class Placement(NamedTuple):
    """Where one hunk went."""

    path: str
    hunk: int
    stated: int
    """Line that the hunk states, in the file before the patch, counted from 1."""
    line: int
    """Line where its old side stood."""
    how: str
    """`stated`, `shifted` (by the offset of the hunk before it), `unique` or `nearest`."""

    @property
    def offset(self) -> int:
        """Lines between the stated place and the real one."""
        return self.line - self.stated
