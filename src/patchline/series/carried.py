"""The series that the project carries on a pin: where its patches, its pin and its work tree are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from patchline.pins import Pin, Upstream, load, name_of, select
from patchline.project import Project, find

if TYPE_CHECKING:
    from patchline.series.apply import Result


class Carried(NamedTuple):
    """One series on one pin; nothing is fetched by making it."""

    project: Project
    upstream: Upstream
    pin: Pin

    @property
    def name(self) -> str:
        """As people type it: `vllm==0.31.0`."""
        return f"{self.upstream.name}=={self.pin.version}"

    @property
    def folder(self) -> Path:
        """Where the patches lie."""
        return self.project.series_dir(self.upstream.name, self.pin.version)

    @property
    def series(self) -> Path:
        """The series file."""
        return self.folder / "series"

    @property
    def repo(self) -> Path:
        """The checked-out pin; `checkout` makes it."""
        return self.project.work_dir(name_of(self.upstream, self.pin), self.pin.version)

    def base(self) -> str:
        """The commit that the series begins on; the pin is fetched and checked out where it is not."""
        from patchline.sources.checkout import checkout  # many only ask for names

        return checkout(self.project, self.upstream, self.pin).base

    def apply(self, *, discard: bool = False) -> Result:
        """Checks out the pin where that is needed and takes it to what the series makes of it.

        Raises:
            DoesNotApply, Refused, SourceMismatch, Unreachable, UsageError: see `to_pin` and `checkout`.
        """
        from patchline.series.apply import to_pin

        return to_pin(self.repo, self.base(), self.series, discard=discard)


def carried(spec: str, project: Project | None = None) -> Carried:
    """The series on the pin that `spec` means (`vllm`, `dynamo`, `vllm==0.32.0`).

    Raises:
        UsageError: there is no project here, or no such pin.
    """
    found = project or find()
    upstream, pin = select(load(found.upstreams), spec)
    return Carried(found, upstream, pin)


def every(project: Project) -> list[Carried]:
    """The carried series of every upstream that has a folder in `patches/`, in the pins' order."""
    upstreams = load(project.upstreams).values()
    return [carried(one.name, project) for one in upstreams if (project.root / "patches" / one.name).is_dir()]
