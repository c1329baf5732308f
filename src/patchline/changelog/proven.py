"""What the project's own evidence says of a carried series: tests that hold each patch, mistakes noticed, gates passed.

From files alone, so that every clone says the same. Evidence of other tests than today's is not counted; whether it is
of today's overlay only a checked-out pin can tell, so the overlay's digest goes with what is said (`hunks` and `gate`
compare it).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from patchline.errors import SourceMismatch
from patchline.gates import fleets, records
from patchline.proofs import evidence
from patchline.proofs.evidence import Evidence
from patchline.proofs.held.trials import Tried
from patchline.proofs.suite import Run
from patchline.proofs.verdicts import judge
from patchline.release.proof import kept
from patchline.series.carried import Carried
from patchline.series.patch import Patch, changes_digest

_T = TypeVar("_T")
_SAID = (": tests", ": diff")
"""Of what evidence covers: what the files of a series say, without its base."""


class Tests(NamedTuple):
    """The tests of one patch, as `prove` ran them."""

    day: str
    red: int
    """How many fail on stock for their stated reason and pass on the overlay."""
    kept: int
    """How many pass on both: what has to stay as it is."""


class Held(NamedTuple):
    """How one patch's lines are held, as `hunks` tried it."""

    day: str
    pieces: int
    held: int
    """Of the pieces, how many a test fails without; the others are comments."""
    mistakes: int
    noticed: int


class GatePassed(NamedTuple):
    """What the project knows of one fleet's gate for one series."""

    fleet: str
    state: str
    """`passed`, `passed before` (with an overlay that no proof shows to be today's), `not passed` or `no record`."""
    day: str = ""
    overlay: str = ""
    """Digest of the overlay that it was passed with."""
    plays: int = 0
    """Stacks that were brought up and asked."""
    why: str = ""
    """The first fault of one that was not passed."""


class Known(NamedTuple):
    """All evidence of one series."""

    tests: dict[str, Tests]
    """By the patch's file name, like `held`."""
    held: dict[str, Held]
    overlay: str
    """Digest of the whole series' overlay, as the tests' evidence has it; empty where there is none."""
    gates: list[GatePassed]


def known(carried: Carried, patches: Sequence[Patch], tests: dict[str, list[str]]) -> Known:
    """Reads it; `patches` are the series, and `tests` their test files, by the patch's name, in its order.

    Raises:
        SourceMismatch: evidence is damaged, or was edited.
        UsageError: the fleets file is not as it has to be.
    """
    diffs = {f"{patch.name}: diff": changes_digest(patch) for patch in patches}
    proofs, trials = (_current(carried, kind, tests, diffs) for kind in ("prove", "hunks"))
    last = f"{[*tests][-1]}: overlay" if tests else ""
    overlay = next((one.covers[last] for one in (trials, proofs) if one and last in one.covers), "")
    return Known(
        _tests(proofs, tests) if proofs else {},
        _held(trials, tests) if trials else {},
        overlay,
        _gates(carried, overlay),
    )


def _current(carried: Carried, kind: str, tests: dict[str, list[str]], diffs: dict[str, str]) -> Evidence | None:
    """The evidence of one kind, where it is of today's diffs and tests, byte for byte."""
    found = kept(carried.project, kind, carried.name)
    if not found:
        return None
    paths = [path for some in tests.values() for path in some]
    wanted = evidence.tests(carried.project.root, paths) | diffs
    wanted |= {f"{name}: tests": " ".join(some) for name, some in tests.items()}
    said = {key: value for key, value in found.covers.items() if key.endswith(_SAID) or key.startswith("tests/")}
    return found if said == wanted else None


def _converted(found: Evidence, what: type[_T] | Any) -> _T:
    try:
        converted: _T = msgspec.convert(found.result, what)
    except msgspec.MsgspecError as bad:
        raise SourceMismatch(
            f"the {found.kind} evidence of {found.of} holds no such outcomes: {bad}", next="run it again with --fresh"
        ) from bad
    return converted


def _tests(found: Evidence, tests: dict[str, list[str]]) -> dict[str, Tests]:
    runs: tuple[Run, Run, dict[str, Run]] = _converted(found, tuple[Run, Run, dict[str, Run]])
    judged = {name: judge(name, paths, runs[0], runs[1]) for name, paths in tests.items()}
    return {
        name: Tests(found.made[:10], len(proof.red), len(proof.kept)) for name, proof in judged.items() if proof.stands
    }


def _held(found: Evidence, tests: dict[str, list[str]]) -> dict[str, Held]:
    outcomes: dict[str, tuple[list[Tried], list[Tried]]] = _converted(found, dict[str, tuple[list[Tried], list[Tried]]])
    return {
        name: Held(found.made[:10], len(pieces), _noticed(pieces), len(mistakes), _noticed(mistakes))
        for name, (pieces, mistakes) in outcomes.items()
        if name in tests
    }


def _noticed(tried: list[Tried]) -> int:
    return sum(one.noticed for one in tried)


def _gates(carried: Carried, today: str) -> list[GatePassed]:
    """Every fleet's gate, in the fleets' order; none without fleets. `today` is the proven overlay's digest."""
    path = fleets.path_of(carried.project)
    if not path.is_file():
        return []
    found = []
    for name, fleet in fleets.load(path).items():
        record = kept(carried.project, records.kind_of(name), carried.name)
        if not record:
            found.append(GatePassed(name, "no record"))
            continue
        outcome: records.Record = _converted(record, records.Record)
        faults = records.verdict(fleet, outcome)
        overlay = record.covers.get("overlay", "")
        state = "not passed" if faults else "passed" if today and overlay == today else "passed before"
        found.append(GatePassed(name, state, outcome.ended[:10], overlay, len(outcome.outcomes), "".join(faults[:1])))
    return found
