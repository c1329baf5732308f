"""One night of a line: its image on disk, its gates, its smoke test."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from patchline.gates.gate import Asked, gate
from patchline.gates.runners.runner import NotRun
from patchline.image import append
from patchline.lines import pinned
from patchline.lines.build import building
from patchline.lines.line import Line, line, names
from patchline.progress import say
from patchline.project import Project


class Night(NamedTuple):
    """What became of a line."""

    line: str
    image: str
    """Digest of the manifest."""
    layout: str
    passed: dict[str, str]
    """What held, by the name of a gate or `smoke`: when the evidence was made, or `now`."""
    not_run: dict[str, str]
    """What could not run here, and why."""
    faults: list[str]

    def data(self) -> dict[str, Any]:
        """For machines."""
        return self._asdict()

    @property
    def rows(self) -> list[str]:
        """For people."""
        head = f"{self.line}: image {self.image}, layout oci:{self.layout}"
        held = [f"{self.line}: {name} passed ({when})" for name, when in self.passed.items()]
        return [head, *held, *(f"{self.line}: {name} not run: {why}" for name, why in self.not_run.items())]


def choose(project: Project, wanted: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The lines to build, and why others are not; those that were asked for are built, or fail.

    Raises:
        UsageError: a line is not there.
    """
    found = [line(project, name) for name in wanted or names(project)]
    left = {} if wanted else {one.name: why for one in found if (why := _cannot(one))}
    return [one.name for one in found if one.name not in left], left


def _cannot(one: Line) -> str:
    named = one.base.named
    if named is None:
        return ""
    if pinned.read(one) is None:
        return f"its base {named.name} is not pinned; nox -s pin -- {one.name}"
    return "" if os.environ.get(named.registry) else f"{named.registry} does not say which registry has its base"


def night(project: Project, name: str, layout: Path, *, record: bool = False) -> Night:
    """Cuts the image, runs the gates that can run here, in order, and the smoke test where the line has one.

    A gate that cannot run here ends the gates, and no fault: it is told, and nothing is promoted without it.

    Raises:
        As `build.building`, `gate.gate` and `smoke.smoke`.
    """
    with building(project, name) as built:
        append.write(built.image, project.root / layout, whole=built.line.base.made is not None)
        wanted, image = built.line, built.image.digest
    done = Night(name, image, str(layout), {}, {}, [])
    for fleet in wanted.gates:
        say(f"== {name}: the gate {fleet}")
        try:
            held = gate(fleet, Asked(record=record))
        except NotRun as not_run:
            done.not_run[fleet] = not_run.what.removeprefix("not run: ")
            break
        _note(done, fleet, held.faults, held.verified)
        if done.faults:
            return done
    if wanted.smoke:
        _smoke(project, done, record)
    return done


def _smoke(project: Project, done: Night, record: bool) -> None:
    from patchline.lines.docker.daemon import NoDaemon
    from patchline.lines.smoke import smoke

    say(f"== {done.line}: the smoke test")
    try:
        held = smoke(project, done.line, record=record)
    except NoDaemon as silent:
        done.not_run["smoke"] = silent.what
        return
    _note(done, "smoke", held.faults, held.verified)


def _note(done: Night, what: str, faults: list[str], verified: str) -> None:
    if faults:
        done.faults.extend(f"{what}: {fault}" for fault in faults)
    else:
        done.passed[what] = verified or "now"
