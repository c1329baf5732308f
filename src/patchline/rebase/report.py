"""A rebase for people, for machines, and for CI: text, JSON, Markdown, JUnit, annotations."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from patchline.files import write_whole
from patchline.rebase.course import Progress
from patchline.rebase.words import Conflict, Fate, HunkFate, Judged

_MOST = 40
"""Lines of one side of a conflict that a report shows; JSON has them all."""
_FEW = 12
"""Lines of upstream's change that the text for people shows."""


def data(found: Progress) -> dict[str, Any]:
    """One version's verdicts, for machines."""
    return {
        "series": found.old.name,
        "onto": found.new.name,
        "needs_hands": found.needs_hands,
        "patches": [_patch(one) for one in found.judged],
        "folder": str(found.folder) if found.folder else None,
        "written": found.written,
        "tree": str(found.tree) if found.tree else None,
        "patch": found.patch or None,
        "files": list(found.files),
        "dropped": list(found.dropped),
        "recorded": [
            {
                "key": one.resolution.key,
                "in": str(one.source),
                "resolved": one.resolution.resolved,
                "elsewhere": one.resolution.elsewhere,
            }
            for one in found.offers
        ],
    }


def _patch(one: Judged) -> dict[str, Any]:
    return {
        "name": one.name,
        "verdict": one.verdict.value,
        "needs_hands": one.needs_hands,
        "evidence": list(one.evidence),
        "behaviour": one.behaviour.value if one.behaviour else None,
        "hunks": [{**hunk._asdict(), "fate": hunk.fate.value} for hunk in one.hunks],
        "conflicts": [_conflict(each) for each in one.conflicts],
    }


def _conflict(one: Conflict) -> dict[str, Any]:
    return {
        **one._asdict(),
        "hunks": list(one.hunks),
        "where": [place._asdict() for place in one.where],
        "upstream_change": one.upstream_change,
    }


def text(found: Progress) -> str:
    """One version's verdicts, for people."""
    lines = [f"{found.old.name} on {found.new.name}"]
    for one in found.judged:
        lines.append(f"  {one.verdict.value:15} {one.name}{_counts(one)}")
        lines += [f"    {line}" for line in _details(one, changes=True)]
    return "\n".join([*lines, *_ending(found)])


def _counts(one: Judged) -> str:
    fates = [hunk.fate for hunk in one.hunks]
    counted = [f"{fates.count(fate)} {fate.value}" for fate in Fate if fate in fates]
    return f" ({', '.join(counted)})" if len(counted) > 1 else ""


def _details(one: Judged, *, changes: bool = False) -> Iterator[str]:
    yield from one.evidence
    for hunk in one.hunks:
        if hunk.fate not in (Fate.APPLIES, Fate.CONFLICTS):
            yield _hunk(hunk)
    for each in one.conflicts:
        yield _title(each)
        if changes and each.base and each.ours:
            yield from (f"  upstream: {line}" for line in _short(each.upstream_change))
    if one.contradicted:
        yield "its text is upstream, and its tests fail on stock: look at both"


def _short(lines: list[str]) -> list[str]:
    return [*lines[:_FEW], f"… {len(lines) - _FEW} more lines"] if len(lines) > _FEW else lines


def _hunk(hunk: HunkFate) -> str:
    name = f"{hunk.path}: hunk {hunk.hunk}" if hunk.hunk else hunk.path
    to = f" in {hunk.to}" if hunk.to else ""
    place = f", line {hunk.line}" if hunk.line and hunk.line != hunk.stated else ""
    return f"{name}: {hunk.fate.value}{to}{place}{f' ({hunk.note})' if hunk.note else ''}"


def _title(one: Conflict) -> str:
    hunks = f"hunk {', '.join(map(str, one.hunks))}" if one.hunks else "the whole file"
    place = f", line {one.line}" if one.line else ""
    went = "".join(f"; {where.how}: {where.path}:{where.line}" for where in one.where)
    commit = f"; changed by {one.commit}" if one.commit else ""
    return f"{one.path}{place}: conflict in {hunks}{f': {one.why}' if one.why else ''}{went}{commit}"


def _ending(found: Progress) -> list[str]:
    lines = [f"dropped, as was said: {name}" for name in found.dropped]
    name = found.old.upstream.name
    if found.folder:
        lines.append(f"{'written' if found.written else 'there already'}: {found.folder}")
    if found.tree:
        lines += [f"{found.patch} waits for hands in {found.tree}:", *(f"  {path}" for path in found.files)]
        for offer in found.offers:
            lines += [f"resolved before ({offer.source}), as {offer.resolution.key}:"]
            lines += [f"  | {line}" for line in offer.resolution.resolved.splitlines()]
            if more := offer.resolution.elsewhere:
                where = f"{offer.source.parent}/{offer.resolution.patch}"
                lines.append(f"  it is not all: {more} more places of the file were changed by hand; see {where}")
            lines += [f"  take it: python -m patchline rebase {name} --take {offer.resolution.key}"]
        lines.append(f"then: python -m patchline rebase {name} --continue; or --abort")
    return lines


# For CI


def write(folder: Path, found: Sequence[Progress]) -> None:
    """Writes report.md, report.json and junit.xml in `folder`."""
    write_whole(folder / "report.md", markdown(found).encode())
    versions = {"versions": [data(one) for one in found]}
    write_whole(folder / "report.json", (json.dumps(versions, indent=1) + "\n").encode())
    write_whole(folder / "junit.xml", junit(found))


def markdown(found: Sequence[Progress]) -> str:
    """A summary: one table, then what needs hands, with its sides."""
    versions = [one.new.pin.version for one in found]
    lines = [f"# {found[0].old.name} on other versions", "", f"| patch | {' | '.join(versions)} |"]
    lines.append("|---" * (len(versions) + 1) + "|")
    names = dict.fromkeys(each.name for one in found for each in one.judged)
    for name in names:
        cells = [next((_cell(each) for each in one.judged if each.name == name), "") for one in found]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    for one in found:
        lines += [line for each in one.judged for line in _section(one, each)]
    return "\n".join([*lines, ""])


def _cell(one: Judged) -> str:
    return f"**{one.verdict.value}**, needs hands" if one.needs_hands else one.verdict.value


def _section(found: Progress, one: Judged) -> Iterator[str]:
    details = list(_details(one))
    if not details:
        return
    yield from ("", f"## {one.name} on {found.new.pin.version}: {one.verdict.value}", "")
    yield from (f"- {line}" for line in details)
    for each in one.conflicts:
        yield from ("", f"### {each.path}{f':{each.line}' if each.line else ''}")
        for title, side in (("the patch's base", each.base), (found.new.name, each.ours), ("the patch", each.theirs)):
            yield from ("", f"{title}:", "", *_fenced(side))


def _fenced(side: str) -> list[str]:
    lines = side.splitlines()
    more = [f"… {len(lines) - _MOST} more lines"] if len(lines) > _MOST else []
    fence = "```"
    while any(line.lstrip().startswith(fence) for line in lines):
        fence += "`"
    return [f"{fence}text", *lines[:_MOST], *more, fence]


def junit(found: Sequence[Progress]) -> bytes:
    """One suite a version, one case a patch; a patch that needs hands is a failure."""
    top = ElementTree.Element("testsuites", name="rebase")
    for one in found:
        failed = sum(each.needs_hands for each in one.judged)
        counts = {"tests": str(len(one.judged)), "failures": str(failed), "errors": "0"}
        suite = ElementTree.SubElement(top, "testsuite", {"name": one.new.name, **counts})
        for each in one.judged:
            case = ElementTree.SubElement(suite, "testcase", classname=one.old.name, name=each.name)
            if each.needs_hands:
                failure = ElementTree.SubElement(case, "failure", message=each.verdict.value)
                failure.text = _printable("\n".join(_details(each)))
            ElementTree.SubElement(case, "system-out").text = each.verdict.value
    ElementTree.indent(top)
    whole: bytes = ElementTree.tostring(top, encoding="utf-8", xml_declaration=True)
    return whole + b"\n"


def _printable(line: str) -> str:
    """Without what XML cannot say."""
    return "".join(char if char in "\t\n" or ord(char) >= 0x20 else "�" for char in line)


def annotated(found: Sequence[Progress]) -> list[str]:
    """What needs hands as lines that GitHub shows beside the patch files."""
    lines = []
    for one in found:
        folder = f"patches/{one.old.upstream.name}/{one.old.pin.version}"
        for each in one.judged:
            level = "error" if each.needs_hands else "notice"
            what = "; ".join([f"{each.verdict.value} on {one.new.name}", *(map(_title, each.conflicts))])
            if each.needs_hands or each.verdict.value not in ("applies", "moved"):
                lines.append(f"::{level} file={folder}/{each.name}::{_escaped(what)}")
    return lines


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
