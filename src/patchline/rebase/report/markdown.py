"""The summary of a rebase as Markdown, for the page of a CI job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from patchline.rebase.course import Progress
from patchline.rebase.report.details import details
from patchline.rebase.words import Conflict, Judged

_MOST = 40
"""Lines of one side of a conflict that are shown; JSON has them all."""


def markdown(found: Sequence[Progress], notes: Sequence[str] = ()) -> str:
    """A table for each series, then what there is to know about its patches, conflicts with their sides."""
    lines: list[str] = []
    for name in dict.fromkeys(one.old.name for one in found):
        lines += _series(name, [one for one in found if one.old.name == name])
    return "\n".join([*lines, *(f"\n{note}" for note in notes), ""])


def _series(name: str, found: Sequence[Progress]) -> Iterator[str]:
    versions = [one.new.pin.version for one in found]
    yield from (f"# {name} on other versions", "", f"| patch | {' | '.join(versions)} |")
    yield "|---" * (len(versions) + 1) + "|"
    for patch in dict.fromkeys(each.name for one in found for each in one.judged):
        cells = [next((_cell(each) for each in one.judged if each.name == patch), "") for one in found]
        yield f"| {patch} | {' | '.join(cells)} |"
    for one in found:
        for each in one.judged:
            yield from _section(one, each)
        yield from _unexplained(one)
    yield ""


def _cell(one: Judged) -> str:
    if one.needs_hands:
        return f"**{one.verdict.value}**, needs hands"
    return f"{one.verdict.value}, resolved" if one.resolved else one.verdict.value


def _section(found: Progress, one: Judged) -> Iterator[str]:
    known = list(details(one))
    if not known:
        return
    yield from ("", f"## {one.name} on {found.new.pin.version}: {one.verdict.value}", "")
    yield from (f"- {line}" for line in known)
    for each in one.conflicts:
        yield from _conflict(found, each)


def _conflict(found: Progress, one: Conflict) -> Iterator[str]:
    yield from ("", f"### {one.path}{f':{one.line}' if one.line else ''}")
    for title, side in (("the patch's base", one.base), (found.new.name, one.ours), ("the patch", one.theirs)):
        yield from ("", f"{title}:", "", *_fenced(side))


def _unexplained(found: Progress) -> Iterator[str]:
    if found.unexplained:
        yield from ("", f"## No longer explained on {found.new.pin.version}", "")
        yield from (f"- {name}" for name in found.unexplained)


def _fenced(side: str) -> list[str]:
    lines = side.splitlines()
    more = [f"… {len(lines) - _MOST} more lines"] if len(lines) > _MOST else []
    fence = "```"
    while any(line.lstrip().startswith(fence) for line in lines):
        fence += "`"
    return [f"{fence}text", *lines[:_MOST], *more, fence]
