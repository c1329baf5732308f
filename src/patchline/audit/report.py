"""An audit for people and for machines."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from patchline.audit.finding import KINDS, Audit, Explained, Finding

MOST = 20
"""Findings of a kind that people are shown; machines get all of them."""


def data(audits: Sequence[Audit]) -> dict[str, Any]:
    """All of it for machines."""
    return {"findings": sum(len(one.findings) for one in audits), "audits": [_data(one) for one in audits]}


def _data(one: Audit) -> dict[str, Any]:
    return {
        "subject": one.subject,
        "compared": one.compared,
        "findings": [finding._asdict() for finding in one.findings],
        "explained": [run._asdict() for run in one.explained],
        "known": [{**known.finding._asdict(), "reason": known.reason} for known in one.known],
        "notes": list(one.notes),
        "facts": dict(one.facts),
    }


def text(audits: Sequence[Audit]) -> str:
    """What people read: what nothing explains first."""
    return "\n\n".join("\n".join(map(_shown, _told(one))) for one in audits)


def _shown(line: str) -> str:
    """Names and bytes of files come from others: what would move a terminal's cursor is shown as an escape."""
    if line.isprintable():
        return line
    return "".join(one if one.isprintable() or one == "\t" else one.encode("unicode_escape").decode() for one in line)


def _told(one: Audit) -> list[str]:
    lines = []
    for kind, found in groupby(one.findings, key=lambda finding: finding.kind):
        own = list(found)
        lines += [f"{kind}: {KINDS[kind]} ({len(own)})", *(row for each in own[:MOST] for row in _finding(each))]
        lines += [f"  … and {len(own) - MOST} more; --json has all of them"] if len(own) > MOST else []
    for known in one.known:
        lines += [f"known: {known.finding.path}: {known.finding.what}", f"    {known.reason}"]
    lines += [f"note: {note}" for note in one.notes]
    lines += [f"{name:9} {value}" for name, value in one.facts.items() if value]
    return [*lines, *_by_patch(one.explained), _verdict(one)]


def _finding(one: Finding) -> list[str]:
    place = f"{one.path}:{one.line}" if one.line else one.path
    patch = f" [{one.patch}]" if one.patch and one.patch not in one.what else ""
    rows = [f"  {place}: {one.what}{patch}", *(f"    {line}" for line in one.detail)]
    return rows + [f"    commit {commit}" for commit in one.commits]


def _by_patch(runs: Sequence[Explained]) -> list[str]:
    counts = Counter(patch for run in runs for patch in run.patches)
    files = {patch: len({run.path for run in runs if patch in run.patches}) for patch in counts}
    return [f"explained {patch}: {count} runs of lines in {files[patch]} files" for patch, count in counts.items()]


def _verdict(one: Audit) -> str:
    count = len(one.findings)
    found = "nothing unexplained" if not count else f"{count} finding{'' if count == 1 else 's'}"
    return f"{one.subject}: {one.compared} files compared, {found}"


def badge(audits: Sequence[Audit]) -> bytes:
    """A badge as JSON, in the form that badge services take: label, message and colour."""
    count = sum(len(one.findings) for one in audits)
    said = {
        "schemaVersion": 1,
        "label": "fork audit",
        "message": f"{count} finding{'' if count == 1 else 's'}" if count else "every byte explained",
        "color": "red" if count else "brightgreen",
    }
    return json.dumps(said).encode() + b"\n"
