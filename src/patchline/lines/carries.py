"""What a line carries: its series, their overlays, and what its images say of themselves."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from patchline.errors import UsageError
from patchline.image import identity
from patchline.image.identity import Identity
from patchline.lines.line import Line
from patchline.overlay import Overlay, between
from patchline.pins import Pin, Upstream, load, name_of, select
from patchline.project import Project
from patchline.series import quilt
from patchline.series.carried import Carried, carried


class Carries(NamedTuple):
    """The series of one line, applied."""

    carried: tuple[Carried, ...]
    overlays: tuple[Overlay, ...]
    """One for each of them."""
    who: Identity
    unchanged: dict[str, str]
    """Version by name of every other pinned distribution that the base has to hold."""


def of(project: Project, line: Line, base: str) -> Carries:
    """Applies the series of a line where that is needed; `base` is the base's name without its registry.

    Raises:
        UsageError: a pin is not there.
        As `overlay.overlay`.
    """
    upstreams = load(project.upstreams)
    others = [select(upstreams, spec) for spec in line.pins]
    found = tuple(carried(spec, project) for spec in line.series)
    _check_dynamo(line, [*others, *((one.upstream, one.pin) for one in found)])
    made, said, newest = [], [], 0
    for one in found:
        applied = one.apply()
        made.append(between(one, applied.base, applied.patches[-1][1]))
        said.append(identity.series(made[-1], applied.patches))
        newest = max(newest, _newest(one))
    who = Identity(
        line=line.name,
        version=line.dynamo,
        series=tuple(said),
        base_name=base,
        pins=tuple(sorted((*line.series, *line.pins))),
        created=datetime.fromtimestamp(newest, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    )
    return Carries(found, tuple(made), who, {name_of(*one): one[1].version for one in others})


def _newest(one: Carried) -> int:
    """Unix time of the newest patch: an image is as new as what was put into it last, and no clock is asked."""
    return max(patch.header.seconds or 0 for patch in quilt.patches(quilt.files(one.series, own=True)))


def _check_dynamo(line: Line, pins: Sequence[tuple[Upstream, Pin]]) -> None:
    if not any((upstream.name, pin.version) == ("dynamo", line.dynamo) for upstream, pin in pins):
        raise UsageError(
            f"the line {line.name} is of Dynamo {line.dynamo}, and pins no such version of it", where=str(line.folder)
        )
