"""The places in patch files that a person has to look at, for the systems that show remarks beside lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from patchline.rebase.course import Progress
from patchline.rebase.report.details import title
from patchline.rebase.words import Conflict, Judged, Verdict

_FITS = (Verdict.APPLIES, Verdict.MOVED)


class Spot(NamedTuple):
    """A remark on one line of a patch file."""

    needs_hands: bool
    path: str
    """From the project's top, with `/`."""
    line: int
    """Counted from 1."""
    said: str


def spots(found: Sequence[Progress]) -> list[Spot]:
    """One a conflict, at its hunk; else one a patch that is not simply rebased; those that need hands first."""
    each = [spot for one in found for judged in one.judged for spot in _of(one, judged)]
    return sorted(each, key=lambda spot: not spot.needs_hands)


def _of(found: Progress, one: Judged) -> Iterator[Spot]:
    file = found.old.folder / one.name
    path = file.relative_to(found.old.project.root).as_posix()
    head = f"{one.verdict.value} on {found.new.name}"
    if one.conflicts:
        lines = file.read_text("utf-8", "surrogateescape").splitlines()
        for each in one.conflicts:
            yield Spot(one.needs_hands, path, _line(lines, one, each), f"{head}; {title(each)}")
    elif one.needs_hands or one.verdict not in _FITS:
        yield Spot(one.needs_hands, path, 1, "; ".join([head, *one.evidence]))


def _line(lines: Sequence[str], one: Judged, conflict: Conflict) -> int:
    """The line of the patch file at which the conflict's first hunk begins; of a change without hunks, its file's."""
    renamed = {hunk.path for hunk in one.hunks if hunk.to == conflict.path}
    begin, wanted, hunks = 1, False, 0
    for number, line in enumerate(lines, 1):
        if line.startswith("diff --git "):
            wanted = any(line.endswith((f" b/{path}", f" a/{path}")) for path in {conflict.path, *renamed})
            begin, hunks = (number, 0) if wanted else (begin, hunks)
        elif wanted and line.startswith("@@ -"):
            hunks += 1
            if not conflict.hunks or hunks == conflict.hunks[0]:
                return number
    return begin
