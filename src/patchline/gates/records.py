"""Gate records: evidence of a gate that ran, and the verdict that is drawn from it each time."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from patchline.errors import Refused
from patchline.gates.fleet import Fleet, Refuses, is_gpu
from patchline.gates.gpus import Gpu
from patchline.gates.outcomes import BUILD, Outcome
from patchline.gates.plays import Play, plays
from patchline.gates.setting import Gate, requirements
from patchline.proofs import env, evidence
from patchline.proofs.evidence import Evidence

TESTS = "tests/gpu"
"""Where the tests of a gate are, from the project's root."""

_ROOM = Path(__file__).parent
_TOOLS = ("errors.py", "files.py", "overlay.py", "proofs/installed.py", "proofs/tree.py", "run.py")
"""Outside this room, what lays the overlay on the package, and what decides how a play ends."""


class Junit(NamedTuple):
    """The totals of the tests' report."""

    tests: int
    failures: int
    errors: int
    skipped: int


class Record(NamedTuple):
    """What a gate found: the result of its evidence."""

    began: str
    """As ISO 8601 in UTC, like `ended`."""
    ended: str
    runner: str
    image: str
    """Digest of the image that the overlay's side ran in; empty where engines were processes of an environment."""
    gpus: list[Gpu]
    versions: dict[str, str]
    models: dict[str, str]
    """What each model was: the digest of its `config.json`, or the name that the engines were told."""
    outcomes: list[Outcome]
    junit: Junit


def kind_of(fleet: str) -> str:
    """Of the evidence of a fleet's gate."""
    return f"gate-{fleet}"


def coverage(gate: Gate) -> dict[str, str]:
    """Everything that a gate's outcome depends on, but for its machines, which the record names."""
    root, fleet = gate.carried.project.root, gate.fleet
    said = msgspec.json.encode(fleet, order="sorted")
    found = {"overlay": gate.overlay.digest, "fleet": f"sha256:{hashlib.sha256(said).hexdigest()}"}
    found["patchline's gates"] = _digest(sorted(_code(fleet)))
    found["patchline's tools"] = _digest([_ROOM.parent / name for name in _TOOLS])
    if fleet.embedded:
        found |= {"environment": " ".join(requirements(gate)), "recipe": str(env.RECIPE)}
    return found | evidence.tests(root, [f"{TESTS}/test_layouts.py"])


def _code(fleet: Fleet) -> Iterator[Path]:
    """The modules of this room, but for the other fleets' runners."""
    own = ("__init__", "runner", fleet.runner)
    for path in _ROOM.rglob("*.py"):
        inside = path.relative_to(_ROOM).parts
        if inside[0] != "runners" or inside[1].removesuffix(".py") in own:
            yield path


def _digest(paths: list[Path]) -> str:
    total = hashlib.sha256()
    for path in paths:
        data = path.read_bytes()
        total.update(f"{path.relative_to(_ROOM.parent).as_posix()}\0{len(data)}\0".encode() + data)
    return f"sha256:{total.hexdigest()}"


def refuse_without_before(gate: Gate) -> None:
    """A gate opens only where the one before it was passed, with the same overlay.

    Raises:
        Refused: it was not.
        SourceMismatch: its record is damaged, or was edited.
    """
    if gate.before is None:
        return
    name, found = gate.before.name, latest(gate, gate.before)
    command = f"nox -s \"gate(fleet='{name}')\" -- --record"
    if found is None:
        raise Refused(f"the gate {name} has not been passed yet: there is no record of it", next=command)
    if found.covers.get("overlay") != gate.overlay.digest:
        raise Refused(
            f"the gate {name} was passed with another overlay: {found.covers.get('overlay')}, "
            f"and this one is {gate.overlay.digest}",
            next=command,
        )
    if faults := verdict(gate.before, msgspec.convert(found.result, Record)):
        raise Refused(f"the record of the gate {name} does not show that it was passed: {faults[0]}", next=command)


def latest(gate: Gate, fleet: Fleet) -> Evidence | None:
    """The record of a fleet's gate that the project keeps, whatever it covers; what is another's is none."""
    found = evidence.read(evidence.path_of(gate.carried.project, kind_of(fleet.name), gate.carried.name))
    return found if found and (found.kind, found.of) == (kind_of(fleet.name), gate.carried.name) else None


def verdict(fleet: Fleet, record: Record) -> list[str]:
    """Why a record does not show that the gate is passed; empty where it does."""
    wanted = plays(fleet, {model.name: "" for model in fleet.models})
    found = {outcome.play: outcome for outcome in record.outcomes}
    faults = [f"{play.name} did not run" for play in wanted if play.name not in found]
    if len(found) != len(record.outcomes) or found.keys() - {play.name for play in wanted}:
        faults.append("plays are there twice, or are none of this fleet")
    for play in wanted:
        if play.name in found:
            faults += [f"{play.name}: {fault}" for fault in _of_play(play, found[play.name], record.image)]
    return faults + _of_junit(record.junit, len(wanted)) + _of_gpus(fleet, record.gpus)


def _of_play(play: Play, outcome: Outcome, image: str) -> list[str]:
    if outcome.faults or not outcome.logs:
        return outcome.faults or ["it has no logs"]
    if isinstance(play.expected, Refuses):
        refused = outcome.what == "refused" and re.search(play.expected.refuses, outcome.said)
        return [] if refused else ["it was not refused in the words that the fleet names"]
    if play.expected == "unsafe":
        return []
    missing = _checks(play, image) - {one["check"] for one in outcome.checks if one["passed"] is True}
    served = [] if outcome.what == "served" else [f"it {outcome.what}: {outcome.said}"]
    return served + [f"{check} did not pass" for check in sorted(missing)]


def _checks(play: Play, image: str) -> set[str]:
    """Those that have to pass where a play serves."""
    wanted = {f"recall, {api}" for api in play.apis}
    if play.form != "alone":
        wanted |= {"logs", *(f"parity, {api}" for api in play.apis)}
    if play.form == "dynamo" and play.description.gemma4:
        wanted |= {f"gemma-4, {turn}" for turn in ("tool call, thinking on", "tool call, thinking off", "JSON output")}
        wanted |= {BUILD} if image and play.side == "overlay" else set()
    return wanted


def _of_junit(junit: Junit, count: int) -> list[str]:
    bad = junit.failures or junit.errors or junit.skipped
    return [f"the tests' report does not say {count} tests, all passed: {junit}"] if bad or junit.tests != count else []


def _of_gpus(fleet: Fleet, gpus: list[Gpu]) -> list[str]:
    others = sorted({gpu.name for gpu in gpus if fleet.gpu and not is_gpu(gpu.name, fleet.gpu)})
    faults = [f"a GPU is {name}, and the fleet has {fleet.gpu}" for name in others]
    nodes = Counter(gpu.node for gpu in gpus)
    whole = sum(count >= fleet.gpus_per_node for count in nodes.values())
    if fleet.gpu and whole < fleet.nodes:
        counts = ", ".join(f"{count} on {node}" for node, count in sorted(nodes.items())) or "none"
        faults.append(f"the fleet has {fleet.nodes} nodes of {fleet.gpus_per_node} GPUs, and seen were {counts}")
    return faults
