"""What the fork has in one file instead of what the series makes of it, run by run."""

from __future__ import annotations

from patchline.audit.finding import Explained, Finding
from patchline.audit.owners import Owned, owned
from patchline.audit.runs import Run, runs, shown
from patchline.audit.sides import Side, Sides
from patchline.series.place import split
from patchline.series.trees import Entry

_REGULAR = (0o100644, 0o100755)


def explained(one: Sides) -> list[Explained]:
    """The changes of a file in which the fork is what the series makes of it."""
    if one.upstream == one.wanted:
        return []
    if not _is_text(one.upstream, one.wanted):
        return [Explained(one.path, (0, 0), (0, 0), one.patches)]
    return _owned(one).hunks(one.path) or [Explained(one.path, (0, 0), (0, 0), one.patches)]  # only its mode


def differing(one: Sides) -> tuple[list[Finding], list[Explained]]:
    """Findings for each thing in which the fork is not what the series makes of the file, and what is explained."""
    if one.fork is None or one.wanted is None:
        return [_one_sided(one)], []
    found = [_mode(one, one.wanted, one.fork)] if one.fork.mode != one.wanted.mode else []
    if one.fork.id == one.wanted.id:
        return found, explained(one)
    if not _is_text(one.upstream, one.wanted, one.fork):
        return [*found, _whole(one, one.wanted, one.fork)], []
    if _line_ends(one.wanted.data) == _line_ends(one.fork.data):
        what = "its line ends differ, and nothing else"
        return [*found, _finding(one, "unexplained", what, found=one.fork.id)], []
    made = _owned(one)
    differ = runs(made.lines, split(one.fork.data))
    return found + [_run(one, made, run, one.fork) for run in differ], _around(one, made, differ)


def _owned(one: Sides) -> Owned:
    upstream = Entry(one.upstream.mode, one.upstream.data) if one.upstream else None
    return owned(one.path, upstream, one.steps)


def _one_sided(one: Sides) -> Finding:
    """The file is on one side only."""
    by = ", ".join(one.patches)
    if one.fork is not None and one.upstream is not None:
        return _finding(one, "carried-missing", f"{by} removes this file, and it is there")
    if one.fork is not None:
        lines = one.fork.data.count(b"\n")
        return _finding(one, "unexplained", f"{one.fork.what} that no patch adds, {lines} lines", found=one.fork.id)
    if one.upstream is None:
        return _finding(one, "carried-missing", f"{by} adds this file, and it is not there")
    return _finding(one, "unexplained", "the file is gone, and no patch removes it")


def _mode(one: Sides, wanted: Side, fork: Side) -> Finding:
    undone = one.upstream is not None and one.upstream.mode == fork.mode
    kind = "carried-missing" if undone and one.patches else "unexplained"
    return _finding(one, kind, f"it is {fork.what}, and has to be {wanted.what}")


def _whole(one: Sides, wanted: Side, fork: Side) -> Finding:
    """What is no text is not compared line by line."""
    if one.upstream and one.upstream.id == fork.id:
        return _finding(
            one, "carried-missing", f"it is upstream's: the change of {', '.join(one.patches)} is not there"
        )
    if 0o160000 in (wanted.mode, fork.mode):
        return _finding(one, "unexplained", f"it points at {fork.id}, and no patch takes it from {wanted.id}")
    what = f"other bytes, {len(wanted.data)} before and {len(fork.data)} now, that no patch accounts for"
    return _finding(one, "unexplained", what, found=fork.id)


def _run(one: Sides, made: Owned, run: Run, fork: Side) -> Finding:
    lines = split(fork.data)
    here, wanted = lines[run.c : run.d], made.lines[run.a : run.b]
    first, last = made.gap(run.a, run.b)
    owners = made.owners(run.a, run.b)
    at = (run.c + 1, max(run.d, run.c + 1))
    near = owners[0] if owners else made.nearest(run.a)
    detail = shown(wanted, here)
    if owners and here == made.upstream[first - 1 : last - 1]:
        what = f"a change of {', '.join(owners)} is not there: {_count(wanted)} wanted, {_count(here)} of upstream's"
        return Finding("carried-missing", one.path, what, *at, near, detail, fork.id)
    what = f"{_count(here)} for {_count(wanted)}, and no patch accounts for that"
    return Finding("unexplained", one.path, what, *at, near, detail, fork.id)


def _around(one: Sides, made: Owned, differ: list[Run]) -> list[Explained]:
    """The patches' changes that are in place, at their lines in the fork's file."""
    kept = []
    for hunk in made.hunks(one.path):
        begin, end = hunk.new[0] - 1, hunk.new[1] - 1
        if any(run.a <= end and run.b >= begin for run in differ):
            continue
        shift = sum((run.d - run.c) - (run.b - run.a) for run in differ if run.b <= begin)
        kept.append(hunk._replace(new=(hunk.new[0] + shift, hunk.new[1] + shift)))
    return kept


def _finding(one: Sides, kind: str, what: str, found: str = "") -> Finding:
    return Finding(kind, one.path, what, patch=one.patches[0] if one.patches else "", found=found)


def _is_text(*sides: Side | None) -> bool:
    there = [side for side in sides if side]
    return all(side.mode in _REGULAR and b"\0" not in side.data for side in there)


def _line_ends(data: bytes) -> bytes:
    return data.replace(b"\r\n", b"\n")


def _count(lines: list[bytes]) -> str:
    return f"{len(lines)} line{'' if len(lines) == 1 else 's'}"
