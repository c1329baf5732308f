"""One patch's verdict in words: a line for each thing to know."""

from __future__ import annotations

from collections.abc import Iterator

from patchline.rebase.words import Conflict, Fate, HunkFate, Judged

_FEW = 12
"""Lines of upstream's change that the text for people shows."""


def counts(one: Judged) -> str:
    """How many hunks have which fate, in brackets; nothing where all have one."""
    fates = [hunk.fate for hunk in one.hunks]
    counted = [f"{fates.count(fate)} {fate.value}" for fate in Fate if fate in fates]
    return f" ({', '.join(counted)})" if len(counted) > 1 else ""


def details(one: Judged, *, changes: bool = False) -> Iterator[str]:
    """The evidence, and every hunk that does not simply apply; with `changes`, what upstream changed there."""
    yield from one.evidence
    for hunk in one.hunks:
        if hunk.fate not in (Fate.APPLIES, Fate.CONFLICTS):
            yield _hunk(hunk)
    for each in one.conflicts:
        yield title(each)
        if changes and each.base and each.ours:
            yield from (f"  upstream: {line}" for line in _short(each.upstream_change))
    if one.contradicted:
        yield "its text is upstream, and its tests fail on stock: look at both"


def title(one: Conflict) -> str:
    """A conflict in one line: where it is, why, where the code went, and which commit did it."""
    hunks = f"hunk {', '.join(map(str, one.hunks))}" if one.hunks else "the whole file"
    place = f", line {one.line}" if one.line else ""
    went = "".join(f"; {where.how}: {where.path}:{where.line}" for where in one.where)
    commit = f"; changed by {one.commit}" if one.commit else ""
    return f"{one.path}{place}: conflict in {hunks}{f': {one.why}' if one.why else ''}{went}{commit}"


def _short(lines: list[str]) -> list[str]:
    return [*lines[:_FEW], f"… {len(lines) - _FEW} more lines"] if len(lines) > _FEW else lines


def _hunk(hunk: HunkFate) -> str:
    name = f"{hunk.path}: hunk {hunk.hunk}" if hunk.hunk else hunk.path
    to = f" in {hunk.to}" if hunk.to else ""
    place = f", line {hunk.line}" if hunk.line and hunk.line != hunk.stated else ""
    return f"{name}: {hunk.fate.value}{to}{place}{f' ({hunk.note})' if hunk.note else ''}"
