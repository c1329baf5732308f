"""What the repository knows of the series that an image names: its patches, its overlays, at any commit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from patchline.audit.finding import Finding
from patchline.audit.labels import OURS, Said
from patchline.audit.made import Made, made, with_digest
from patchline.errors import UsageError
from patchline.image.identity import Series
from patchline.lines.line import Line
from patchline.project import Project
from patchline.series.carried import Carried, carried


class Agreed(NamedTuple):
    """The series that an image is compared with."""

    carried: tuple[Carried, ...]
    made: tuple[Made, ...]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]


def agreed(project: Project, line: Line | None, said: Said) -> Agreed:
    """For each pin of the line, or of the labels, the series that the image names, where the repository has it.

    Raises:
        UsageError: neither a line nor a label says which series are to be in the image.
    """
    named = {one.pin: one for one in said.series}
    pins = line.series if line else tuple(named)
    if not pins:
        raise UsageError(
            "nothing says which series the image has to hold",
            next="give --line LINE; or --stock for a base that holds none",
        )
    findings, notes, kept = list(_pins(line, named)), list[str](), list[tuple[Carried, Made]]()
    for pin in pins:
        try:
            one = carried(pin, project)
        except UsageError as none:
            findings.append(Finding("label", f"{OURS}series", f"it names {pin}: {none.what}"))
            continue
        now = made(one)
        told = named.get(pin)
        found = with_digest(one, told.overlay, now) if told else now
        findings += _held(pin, told, found, now) if told else []
        notes += [f"{pin} is as of the project's commit {found.commit[:12]}"] if found and found.commit else []
        kept.append((one, found or now))
    return Agreed(tuple(one for one, _ in kept), tuple(one for _, one in kept), tuple(findings), tuple(notes))


def _pins(line: Line | None, named: dict[str, Series]) -> Iterator[Finding]:
    if line is None or not named:
        return
    for pin in sorted({*line.series} - {*named}):
        yield Finding("label", f"{OURS}series", f"the line {line.name} carries {pin}, and the label does not name it")
    for pin in sorted({*named} - {*line.series}):
        yield Finding("label", f"{OURS}series", f"it names {pin}, which the line {line.name} does not carry")


def _held(pin: str, told: Series, found: Made | None, now: Made) -> Iterator[Finding]:
    """The patches that the label names, against those that make the overlay that it names."""
    name, have = f"{OURS}series", found or now
    if found is None:
        what = f"{pin}: no series of the repository, at any commit, makes the overlay {told.overlay}; now it is "
        yield Finding("label", name, f"{what}{now.overlay.digest}")
    ids = dict(have.patches)
    for patch in told.patches:
        if patch.name not in ids:
            yield Finding(
                "label", name, f"{pin}: it names {patch.name}, which is not in the repository", patch=patch.name
            )
        elif ids[patch.name] != patch.id:
            what = f"{pin}: {patch.name} is commit {ids[patch.name]}, and it says {patch.id}"
            yield Finding("label", name, what, patch=patch.name)
    listed = [patch.name for patch in told.patches]
    for patch_name in [one for one in ids if one not in listed]:
        yield Finding("label", name, f"{pin}: it does not name {patch_name}, which is in the series", patch=patch_name)
    if sorted(listed) == sorted(ids) and listed != list(ids):
        yield Finding("label", name, f"{pin}: it names the patches in another order: {', '.join(listed)}")


def facts(series: Sequence[Made]) -> dict[str, str]:
    """The overlays that an image was compared with."""
    return {f"overlay of {one.overlay.name}": one.overlay.digest for one in series}
