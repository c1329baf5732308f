"""The words for what a patch is on another version, and the records that say why."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Verdict(Enum):
    """What a patch is on another upstream version."""

    APPLIES = "applies"
    """Every hunk finds its lines, byte for byte, at its stated line, shifted by the hunks before it."""
    MOVED = "moved"
    """It fits as it is, at other lines, in a renamed file, in another file, or beside changed context."""
    CONFLICTS = "conflicts"
    PARTLY_UPSTREAM = "partly-upstream"
    UPSTREAM = "upstream"
    NOT_NEEDED = "not-needed"
    """Its tests pass on stock: said on that evidence only, never from text."""


class Fate(Enum):
    """What becomes of one hunk."""

    APPLIES = "applies"
    MOVED = "moved"
    MERGED = "merged"
    """Its own lines are untouched, its context changed: a three-way merge from its own pin is clean."""
    UPSTREAM = "upstream"
    PARTLY = "partly-upstream"
    CONFLICTS = "conflicts"


class Behaviour(Enum):
    """What a patch's tests do on stock of the new version."""

    PASSES = "passes"
    FAILS = "fails"
    NOTHING = "collects nothing"
    """No test ran: that shows nothing, and somebody has to look."""


class Where(NamedTuple):
    """Where code went that is no longer where the patch looks for it; `line` is counted from 1."""

    path: str
    line: int
    how: str
    """`renamed`, `moved` or `reformatted`."""


class Conflict(NamedTuple):
    """One place that needs hands."""

    path: str
    hunks: tuple[int, ...]
    """The patch's hunks in that file that meet there, counted from 1."""
    line: int
    """Line in the new version's file, counted from 1; 0 where there is no such file."""
    base: str
    """The lines as the patch knows them."""
    ours: str
    """The lines of the new version, with the patches before this one."""
    theirs: str
    """The lines that the patch makes of its base."""
    why: str = ""
    where: tuple[Where, ...] = ()
    commit: str = ""
    """The upstream commit that changed the lines, for git pins: its id and subject."""

    @property
    def upstream_change(self) -> list[str]:
        """What upstream changed there, as lines of a diff."""
        import difflib

        lines = difflib.ndiff(self.base.splitlines(), self.ours.splitlines())
        return [line for line in lines if line[:2] in ("- ", "+ ")]


class HunkFate(NamedTuple):
    """One hunk on the new version."""

    path: str
    """File that the patch names."""
    hunk: int
    fate: Fate
    stated: int = 0
    """Line that the hunk states, counted from 1."""
    line: int = 0
    """Line where it stands, or would go, in the new version; 0 where it has no place."""
    to: str = ""
    """File that it goes to, where that is another one."""
    note: str = ""
    changed: int = 0
    """Lines that it adds and removes."""
    standing: int = 0
    """Those of them that the new version has already."""


class Judged(NamedTuple):
    """One patch on another version."""

    name: str
    verdict: Verdict
    hunks: tuple[HunkFate, ...]
    conflicts: tuple[Conflict, ...] = ()
    evidence: tuple[str, ...] = ()
    behaviour: Behaviour | None = None
    resolved: str = ""
    """The patch of the other version's series, from the project's top, that was made of this very patch by hand."""

    @property
    def needs_hands(self) -> bool:
        """Whether a person has to look before the series can stand on that version."""
        return (bool(self.conflicts) and not self.resolved) or self.behaviour is Behaviour.NOTHING or self.contradicted

    @property
    def contradicted(self) -> bool:
        """Whether its text is upstream while its tests say that stock does not do what it does."""
        return self.verdict is Verdict.UPSTREAM and self.behaviour is Behaviour.FAILS
