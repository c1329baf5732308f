"""One version's verdicts, for machines."""

from __future__ import annotations

from typing import Any

from patchline.rebase.course import Progress
from patchline.rebase.words import Conflict, Judged


def data(found: Progress) -> dict[str, Any]:
    """All that is known of the series on one version, as JSON has it."""
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
        "unexplained": list(found.unexplained),
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
        "resolved": one.resolved or None,
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
