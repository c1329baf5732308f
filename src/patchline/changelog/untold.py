"""The patches of a series that no news names on its version. It is asked at each export, so it imports little."""

from __future__ import annotations

from collections.abc import Sequence

from patchline.changelog.news import Fragment
from patchline.series import quilt
from patchline.series.carried import Carried


def names(series: Carried, told: Sequence[Fragment]) -> set[str]:
    """Their files' names.

    Raises:
        UsageError: the series is not understood.
    """
    return {item.name for item in quilt.items(series.series) if not _is_told(series, told, quilt.bare(item.name))}


def _is_told(series: Carried, told: Sequence[Fragment], bare: str) -> bool:
    """Whether news names it on that version. One that was dropped there since is told of anew when it comes back."""
    here, version = (series.upstream.name, bare), series.pin.version
    named = [(one, patch) for one in told for patch in one.patches if patch.key == here]
    taken = [one.day for one, patch in named if one.kind in ("carried", "rebased") and patch.version == version]
    drops = [one.day for one, _ in named if one.kind == "dropped" and one.upstream == series.name]
    stands = False
    for day in sorted({*taken, *drops}):  # on one day, it comes and goes by turns
        more = taken.count(day) - drops.count(day)
        stands = more >= 0 if stands else more > 0
    return stands
