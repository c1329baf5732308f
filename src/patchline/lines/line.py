"""A line: `builds/<line>/line.toml`, read strictly."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import msgspec

from patchline.errors import UsageError
from patchline.image import tags
from patchline.image.reference import Reference
from patchline.image.reference import parse as reference
from patchline.nearest import hint
from patchline.project import Project

FILE = "line.toml"

Asks = Literal["overlay", "image"]
"""What a gate's record has to be of: the line's overlay, wherever it ran, or the very image that is published."""


class Named(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A base that a registry has; its digest is in the base lock beside the line, written by `pin LINE`."""

    name: str
    """Repository and tag, without the registry: `vendor/runtime:1.6.0`."""
    registry: str
    """The environment variable that says which registry, since a mirror has the same digests."""
    platform: str = "linux/amd64"

    def reference(self) -> Reference:
        """The base in the registry that the environment names.

        Raises:
            UsageError: it names none, or what it gives is no reference.
        """
        host = os.environ.get(self.registry)
        if not host:
            raise UsageError(
                f"the base {self.name} is in a registry, and {self.registry} does not say which",
                next=f"{self.registry}=HOST, and run it again",
            )
        return reference(f"{host.rstrip('/')}/{self.name}")


class Made(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A base that is made here, from Debian's and Python's packages."""

    suite: str
    """Debian's release: `bookworm`."""
    packages: tuple[str, ...]
    """Debian packages beside the smallest system."""
    platform: str = "linux/amd64"


class Base(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Exactly one of the two."""

    named: Named | None = None
    made: Made | None = None


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    dynamo: str
    series: tuple[str, ...]
    base: Base
    pins: tuple[str, ...] = ()
    gates: dict[str, Asks] = {}
    smoke: bool = False


class Line(msgspec.Struct, frozen=True):
    """One line of images."""

    name: str
    folder: Path
    dynamo: str
    """Dynamo's version, which tags begin with."""
    series: tuple[str, ...]
    """The pins whose series it carries: `vllm==0.31.0`."""
    pins: tuple[str, ...]
    """Further pins that its base has to hold, unchanged: `ai-dynamo-runtime==1.6.0`."""
    base: Base
    gates: dict[str, Asks]
    """By the fleet, in their order."""
    smoke: bool
    """Whether the image itself has to have passed `smoke`."""

    @property
    def lock(self) -> Path:
        """Where its base lock is kept, for a base that is named."""
        return self.folder / "base"


def names(project: Project) -> list[str]:
    """The lines that the project has."""
    return sorted(path.parent.name for path in (project.root / "builds").glob(f"*/{FILE}"))


def line(project: Project, name: str) -> Line:
    """The line of that name.

    Raises:
        UsageError: there is none, or its file is not as it must be.
    """
    path = project.root / "builds" / name / FILE
    known = names(project)
    if name not in known:
        told = hint(name, known) if known else "there is no builds/<line>/line.toml"
        raise UsageError(f"there is no line {name!r}; {told}", where=str(project.root / "builds"))
    try:
        found = msgspec.toml.decode(path.read_bytes(), type=_File)
    except msgspec.MsgspecError as bad:
        raise UsageError(f"this is no line: {bad}", where=str(path)) from bad
    if faults := _faults(name, found):
        raise UsageError("this is no line: " + "; ".join(faults), where=str(path))
    fields = {key: getattr(found, key) for key in ("dynamo", "series", "pins", "base", "gates", "smoke")}
    return Line(name=name, folder=path.parent, **fields)


def _faults(name: str, found: _File) -> list[str]:
    faults = []
    try:
        tags.first(found.dynamo, name)
    except UsageError as bad:
        faults.append(str(bad))
    if not found.series:
        faults.append("it carries no series")
    wrong = [one for one in (*found.series, *found.pins) if one.count("==") != 1 or one.startswith("==")]
    faults += [f"{one!r} is no pin; NAME==VERSION is" for one in wrong]
    if len({*found.series, *found.pins}) != len((*found.series, *found.pins)):
        faults.append("a pin is there twice")
    if (found.base.named is None) == (found.base.made is None):
        faults.append("its base is either named or made")
    if not found.gates and not found.smoke:
        faults.append("it has neither a gate nor a smoke test: nothing would have to hold before it is published")
    return faults
