"""What goes into an image, by name: as a release record has it, and as a project's files have it today."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from patchline import __version__
from patchline.errors import UsageError
from patchline.image import digests
from patchline.lines import pinned
from patchline.lines.line import Line, line, names
from patchline.pins import name_of
from patchline.project import Project
from patchline.release.facts import BUILDER, Part
from patchline.release.record import Record
from patchline.series import quilt
from patchline.series.carried import Carried, carried

TOOL = "patchline"
"""The one input that is always today's: another version may cut the same image, or not."""

_STATED = ("builder", TOOL, "dynamo", "base name", "pin ", "series ", "patch ")
"""What a project's files say before anything is fetched or applied."""


class Difference(NamedTuple):
    """Something that is not as the record has it; empty where it is not there at all."""

    what: str
    recorded: str
    found: str


def recorded(one: Record) -> dict[str, str]:
    """Every input that a record holds, by its name."""
    base = {f"base {name}": getattr(one.base, name) for name in ("name", "digest", "config", "platform", "lock")}
    head = {"builder": one.builder, TOOL: one.patchline, "dynamo": one.dynamo}
    found = {**head, **base, "overlay": one.overlay, "created": one.created, "revision": one.revision}
    for spec, files in one.pins.items():
        found |= {f"pin {spec}, {name}": value for name, value in files.items()}
    for series in one.series:
        found |= _series(series.pin, {patch.name: patch.file for patch in series.patches})
        found |= {f"{name} of {series.pin}": getattr(series, name) for name in ("overlay", "base", "head")}
        found |= {f"commit of {series.pin} {patch.name}": patch.id for patch in series.patches}
    return found


def stated(project: Project, one: Record) -> dict[str, str]:
    """The same of a project's line, as far as its files say it; what is not there any more is not named.

    Raises:
        SourceMismatch: a pin is damaged.
        UsageError: the line, the pins or a series is not as it has to be.
    """
    found = {"builder": BUILDER, TOOL: __version__}
    if one.line not in names(project):
        return found  # all the rest is missing, and is said to be
    chosen = line(project, one.line)
    return {**found, "dynamo": chosen.dynamo, **_base(chosen), **_pins(project, chosen), **_patches(project, chosen)}


def differences(one: Record, found: Mapping[str, str], *, whole: bool) -> list[Difference]:
    """What is not as recorded; unless `found` is the `whole`, only what a project's files state is held against it."""
    wanted = recorded(one)
    every = [name for name in {**wanted, **found} if whole or name in found or name.startswith(_STATED)]
    pairs = (Difference(name, wanted.get(name, ""), found.get(name, "")) for name in every)
    return [pair for pair in pairs if pair.recorded != pair.found]


def _base(chosen: Line) -> dict[str, str]:
    """A base that is made here has its digest once it is made."""
    named = chosen.base.named
    if named is None:
        return {"base name": f"made/{chosen.name}"}
    found = pinned.read(chosen)
    return {"base name": named.name, "base digest": found.manifest if found else ""}


def _pins(project: Project, chosen: Line) -> dict[str, str]:
    found = dict[str, str]()
    for spec in (*chosen.series, *chosen.pins):
        if one := _pinned(project, spec):
            part = Part(name_of(one.upstream, one.pin), one.pin.version, one.pin, "", None, ())
            found |= {f"pin {part.spec}, {name}": value for name, value in part.files.items()}
    return found


def _patches(project: Project, chosen: Line) -> dict[str, str]:
    found = dict[str, str]()
    for spec in chosen.series:
        one = _pinned(project, spec)
        if one and one.series.is_file():
            files = quilt.files(one.series, own=True)
            names = [item.name for item in files.items]
            found |= _series(one.name, dict(zip(names, map(digests.of, files.raw), strict=True)))
    return found


def _pinned(project: Project, spec: str) -> Carried | None:
    """None where the project pins it no more: the record's pin is then missing, and is said to be."""
    try:
        return carried(spec, project)
    except UsageError:
        return None


def _series(pin: str, files: Mapping[str, str]) -> dict[str, str]:
    return {f"series {pin}": " ".join(files)} | {f"patch {pin} {name}": value for name, value in files.items()}
