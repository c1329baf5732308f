"""What has to hold before an image is released: proofs of each series, the line's gates in order, the smoke test.

Nothing is run here: outcomes that the project keeps are judged again, and what is not there is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from patchline.errors import Refused
from patchline.gates import fleets, records
from patchline.lines.line import Asks, Line
from patchline.overlay import overlay
from patchline.project import Project
from patchline.proofs import bench, evidence, prove
from patchline.proofs.evidence import Evidence
from patchline.proofs.held import hunks
from patchline.proofs.steps import steps
from patchline.release.plan import Step
from patchline.release.proof import kept
from patchline.release.record import Record, Series
from patchline.series.carried import Carried

SMOKE = "smoke"
"""Kind of the evidence that the image itself was run."""


class Need(NamedTuple):
    """One thing that has to hold."""

    what: str
    """`prove`, `hunks`, `gate`, `smoke`, `image`, `overlay`."""
    of: str
    missing: str
    """Why it does not hold; empty where it does."""
    next: str
    """The command that makes it hold."""

    @property
    def step(self) -> Step:
        """As a step of a plan."""
        return Step(self.what, self.of, not self.missing)


def refuse_missing(needs: list[Need]) -> None:
    """Raises where something does not hold; all of it is named.

    Raises:
        Refused: so it is.
    """
    missing = [one for one in needs if one.missing]
    if missing:
        lines = "\n".join(f"  {one.what} {one.of}: {one.missing}\n    next: {one.next}" for one in missing)
        raise Refused(f"this image is not released: {len(missing)} of {len(needs)} needs do not hold\n{lines}")


def of_series(found: Carried) -> Iterator[Need]:
    """That every patch is proven, and every line of it held, by evidence of exactly today's inputs.

    Raises:
        SourceMismatch: evidence is damaged, or was edited.
    """
    tests, made = prove.tests_of_all(found), found.name
    covers = prove.coverage(found, steps(found, overlay(found)), tests)
    for kind, more in ((prove.KIND, {}), (hunks.KIND, evidence.code("held"))):
        missing = _in_part(found) or _not_covered(kept(found.project, kind, made), covers | more)
        if not missing and not _stands(found, kind):
            missing = "its evidence does not show it"
        yield Need(kind, made, missing, f"nox -s {kind} -- {made} --record")


def _in_part(found: Carried) -> str:
    """Why proofs on this pin are not enough: there is no build of it that could be run as a whole."""
    stand_in = bench.graft(found)
    return f"it can only be proven without its compiled code: {stand_in}" if stand_in else ""


def _stands(found: Carried, kind: str) -> bool:
    """Judges evidence that covers today's inputs: nothing is run then."""
    return (prove.prove(found) if kind == prove.KIND else hunks.hunks(found)).stands


def _not_covered(found: Evidence | None, covers: dict[str, str]) -> str:
    if found is None:
        return "there is no evidence of it in the project"
    other = sorted(name for name in {*found.covers, *covers} if found.covers.get(name) != covers.get(name))
    more = f" and {len(other) - 3} more" if len(other) > 3 else ""
    return f"its evidence is of other inputs: {', '.join(other[:3])}{more}" if other else ""


def of_gates(project: Project, line: Line, record: Record) -> Iterator[Need]:
    """That each fleet's gate was passed, in the line's order, with the overlay on vLLM or with the very image.

    Raises:
        SourceMismatch: a record of a gate is damaged, or was edited.
        UsageError: there is no such fleet.
    """
    series = next((one for one in record.series if one.pin.startswith("vllm==")), None)
    for name, asks in line.gates.items():
        missing = _gate(project, name, asks, series, record.image)
        of = f"{name}, the {asks} {record.image if asks == 'image' else series.overlay if series else 'of none'}"
        yield Need("gate", of, missing, f"nox -s \"gate(fleet='{name}')\" -- --record")


def _gate(project: Project, name: str, asks: Asks, series: Series | None, image: str) -> str:
    """Why the record of a fleet's gate does not show that it was passed; empty where it does."""
    if series is None:
        return "the image carries no series on vllm, which gates are of"
    fleet = fleets.select(fleets.load(fleets.path_of(project)), name)
    found = kept(project, records.kind_of(name), series.pin)
    if found is None:
        return "there is no record of it"
    if found.covers.get("overlay") != series.overlay:
        return f"it was passed with another overlay: {found.covers.get('overlay')}"
    try:
        one = msgspec.convert(found.result, records.Record)
    except msgspec.ValidationError as bad:
        return f"its record is none: {bad}"
    if faults := records.verdict(fleet, one):
        return f"its record does not show that it was passed: {faults[0]}"
    if asks == "image" and one.image != image:
        return f"it ran in {one.image or 'no image'}, and not in this one"
    return ""


def of_smoke(project: Project, line: Line, record: Record) -> Iterator[Need]:
    """That the image itself served in containers of its own, where the line asks for that."""
    if not line.smoke:
        return
    from patchline.lines import smoke

    found, missing = kept(project, smoke.KIND, line.name), ""
    if found is None:
        missing = "there is no evidence of it in the project"
    elif (found.covers.get("image"), found.covers.get("overlay")) != (record.image, record.overlay):
        missing = f"it ran in another image: {found.covers.get('image')}"
    else:
        try:
            missing = "; ".join(smoke.verdict(msgspec.convert(found.result, smoke.Record)))
        except msgspec.ValidationError as bad:
            missing = f"its evidence is none: {bad}"
    yield Need(SMOKE, record.image, missing, f"nox -s smoke -- {line.name} --record")
