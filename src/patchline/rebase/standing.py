"""Where every carried patch stands: since when, on which versions, and what would let us drop it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from packaging.version import Version

from patchline.errors import UsageError
from patchline.project import Project
from patchline.rebase import onto
from patchline.rebase.targets import targets
from patchline.rebase.words import Judged, Verdict
from patchline.series import quilt
from patchline.series.carried import Carried, carried, every
from patchline.series.patch import Patch

_VERSION = re.compile(r"upstream-version\s*>=\s*(\S+)")


class Standing(NamedTuple):
    """One carried patch."""

    upstream: str
    name: str
    since: str
    """Day of the patch, `YYYY-MM-DD`; empty where it says none."""
    versions: list[str]
    """Versions whose series lists it."""
    verdicts: dict[str, str]
    """Verdict on each later pinned version; the word is followed by `, needs hands` where it does."""
    forwarded: str
    drop_when: list[str]
    holds: list[str]
    """Conditions of `drop_when` that hold, and verdicts that let us drop it, in words."""


def standing(project: Project, spec: str = "") -> list[Standing]:
    """Every patch of every carried series, or of the one that `spec` means.

    Raises:
        UsageError: no series is carried.
        DoesNotApply: a series does not apply to its own pin.
    """
    found = [carried(spec, project)] if spec else every(project)
    if not found:
        raise UsageError("no series is carried", where=str(project.root / "patches"), next="python -m patchline new")
    return [one for each in found for one in _series(each)]


def _series(of: Carried) -> list[Standing]:
    judge = onto.judge_of(of)
    later = _later(of)
    judged = {new.pin.version: [one.judged for one in onto.verdicts(judge, of, new)] for new in later}
    listed = _listed(of)
    return [_one(of, step.patch, at, judged, listed) for at, step in enumerate(judge.steps)]


def _later(of: Carried) -> list[Carried]:
    try:
        return targets(of)
    except UsageError:  # nothing later is pinned, which is what most series are glad of
        return []


def _listed(of: Carried) -> dict[str, list[str]]:
    """The patches of each version's series."""
    folders = sorted((of.project.root / "patches" / of.upstream.name).glob("*/series"))
    return {path.parent.name: [item.name for item in quilt.items(path)] for path in folders}


def _one(of: Carried, patch: Patch, at: int, judged: dict[str, list[Judged]], listed: dict[str, list[str]]) -> Standing:
    trailers = patch.header.trailers
    verdicts = {version: found[at] for version, found in judged.items()}
    return Standing(
        of.upstream.name,
        patch.name,
        _day(patch),
        [version for version, names in listed.items() if patch.name in names],
        {
            version: f"{one.verdict.value}{', needs hands' if one.needs_hands else ''}"
            for version, one in verdicts.items()
        },
        ", ".join(trailers.get("forwarded", [])),
        trailers.get("drop-when", []),
        [*_conditions(of, trailers.get("drop-when", [])), *_droppable(verdicts)],
    )


def _day(patch: Patch) -> str:
    from datetime import UTC, datetime

    seconds = patch.header.seconds
    return "" if seconds is None else datetime.fromtimestamp(seconds, UTC).date().isoformat()


def _conditions(of: Carried, conditions: Sequence[str]) -> list[str]:
    """Versions that fulfil `upstream-version >= X`; the other conditions are for proofs and people."""
    found = []
    for condition in conditions:
        if match := _VERSION.fullmatch(condition.strip()):
            least = Version(match[1])
            fit = [pin.version for pin in of.upstream.pins if Version(pin.version) >= least]
            found += [f"{condition}: {version} is pinned" for version in dict.fromkeys(fit)]
    return found


def _droppable(verdicts: dict[str, Judged]) -> list[str]:
    words = (Verdict.UPSTREAM, Verdict.NOT_NEEDED)
    return [f"{one.verdict.value} in {version}" for version, one in verdicts.items() if one.verdict in words]
