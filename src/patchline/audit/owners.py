"""Which patch of a series each line of a file comes from, and which one took each of upstream's away."""

from __future__ import annotations

from collections.abc import Sequence

from patchline.audit.finding import Explained
from patchline.audit.runs import runs
from patchline.series.place import split
from patchline.series.plan import Step
from patchline.series.trees import Entry


class Owned:
    """A file as a series leaves it; `at` counts from 0, upstream's lines from 1."""

    def __init__(self, upstream: Entry | None) -> None:
        self.upstream = split(upstream.data) if upstream else []
        self.lines = self.upstream
        self.by: list[str] = [""] * len(self.lines)
        """The patch that wrote each line; nothing for upstream's."""
        self.origin = list(range(1, len(self.lines) + 1))
        """Which line of upstream's each line is; 0 for a patch's."""
        self.patches: list[str] = []
        self.removed: dict[int, str] = {}
        """The patch that took away a line of upstream's."""

    def step(self, patch: str, now: Sequence[bytes]) -> None:
        """The next patch makes the lines `now` of them."""
        self.patches.append(patch)
        by, origin, done = list[str](), list[int](), 0
        for run in runs(self.lines, now):
            by += [*self.by[done : run.a], *[patch] * (run.d - run.c)]
            origin += [*self.origin[done : run.a], *[0] * (run.d - run.c)]
            self.removed |= {line: patch for line in self.origin[run.a : run.b] if line}
            done = run.b
        self.by, self.origin = by + self.by[done:], origin + self.origin[done:]
        self.lines = list(now)

    def gap(self, begin: int, end: int) -> tuple[int, int]:
        """The lines of upstream's, from and to, that stand for lines `begin` to `end`; the end is left out."""
        before = next((self.origin[at] for at in range(begin - 1, -1, -1) if self.origin[at]), 0)
        after = next((self.origin[at] for at in range(end, len(self.origin)) if self.origin[at]), None)
        return before + 1, len(self.upstream) + 1 if after is None else after

    def owners(self, begin: int, end: int) -> list[str]:
        """The patches that wrote lines `begin` to `end`, or took away what stood there, in the series' order."""
        first, last = self.gap(begin, end)
        names = [*self.by[begin:end], *(self.removed.get(line, "") for line in range(first, last))]
        return sorted({name for name in names if name}, key=self.patches.index)

    def nearest(self, at: int) -> str:
        """The patch whose line lies nearest to line `at`; nothing where no patch changed the file."""
        near = min((abs(place - at), name) for place, name in self._places()) if self.removed or any(self.by) else None
        return near[1] if near else ""

    def _places(self) -> list[tuple[int, str]]:
        here = {line: at for at, line in enumerate(self.origin) if line}
        gone = [(here.get(line - 1, line), name) for line, name in self.removed.items()]
        return [(at, name) for at, name in enumerate(self.by) if name] + gone

    def hunks(self, path: str) -> list[Explained]:
        """Every run of lines that patches changed, with its patches."""
        found, at = [], 0
        while at <= len(self.lines):
            end = at
            while end < len(self.lines) and self.by[end]:
                end += 1
            old = self.gap(at, end)
            if end > at or old[1] > old[0]:
                found.append(Explained(path, old, (at + 1, end + 1), tuple(self.owners(at, end))))
            at = end + 1
        return found


def owned(path: str, upstream: Entry | None, steps: Sequence[Step]) -> Owned:
    """Follows a file through the steps of a series."""
    made = Owned(upstream)
    for step in steps:
        if path in step.changes:
            entry = step.changes[path]
            made.step(step.patch.name, split(entry.data) if entry else [])
    return made
