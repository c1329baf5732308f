"""Run a fleet's gate: every layout on stock and on the overlay, and one record of what came of it."""

from __future__ import annotations

import argparse
from typing import Any

from patchline.cli import Outcome
from patchline.errors import Exit
from patchline.gates import outcomes
from patchline.gates.gate import Asked, Done, gate

FAULTS = 20
"""At most so many are shown to people."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("fleet", help="of builds/fleets.toml: cpu, h20, b300")
    parser.add_argument("--fresh", action="store_true", help="run it, whatever record there is")
    parser.add_argument("--record", action="store_true", help="keep the record in builds/evidence/")
    parser.add_argument(
        "--only", action="append", default=[], metavar="PART", help="plays with this in their names; no record is kept"
    )
    parser.add_argument(
        "--runner", choices=("local", "slurm", "kubernetes"), default="", help="another one; no record is kept"
    )


def run(args: argparse.Namespace) -> Outcome:
    """Runs it; see `gate.gate` for what is raised."""
    done = gate(args.fleet, Asked(args.fresh, args.record, args.only, args.runner))
    passed = done.passed or (done.partial and not done.faults)
    return Outcome(data(done), text(done), Exit.DONE if passed else Exit.PROOF_FAILED)


def data(done: Done) -> dict[str, Any]:
    """The result for machines."""
    record = done.record
    return {
        "fleet": done.gate.fleet.name,
        "overlay": done.gate.overlay.digest,
        "passed": done.passed,
        "partial": done.partial,
        "verified": done.verified,
        "faults": done.faults,
        **record._asdict(),
        "gpus": [gpu._asdict() for gpu in record.gpus],
        "junit": record.junit._asdict(),
        "outcomes": [outcome._asdict() for outcome in record.outcomes],
    }


def text(done: Done) -> str:
    """The result for people: a line for each play, and the verdict."""
    lines = [_of(outcome) for outcome in done.record.outcomes]
    lines += [f"FAULT: {fault}" for fault in done.faults[:FAULTS]]
    lines += [f"{len(done.faults) - FAULTS} more faults: --json gives them all"] if done.faults[FAULTS:] else []
    if done.verified:
        lines.append(f"judged from the record of {done.verified}, which covers exactly these inputs; --fresh runs it")
    return "\n".join([*lines, _verdict(done)])


def _of(outcome: outcomes.Outcome) -> str:
    head = f"{'FAILED' if outcome.faults else outcome.what:9} {outcome.play:46} {outcome.seconds:5.0f} s"
    numbers = [said for check in outcome.checks if (said := _number(check))]
    said = "; ".join(numbers) if outcome.what == "served" else outcome.said[:120]
    return f"{head}  {said}"


def _number(check: dict[str, Any]) -> str:
    numbers = check["numbers"]
    if "right" in numbers:
        return f"{check['check']} {numbers['right']} of {numbers['of']}"
    if numbers.get("largest"):
        return f"{check['check']} {numbers['largest']['difference']:.1e}"
    return f"{numbers['plans']} transfer plans" if "plans" in numbers else ""


def _verdict(done: Done) -> str:
    name = f"{done.gate.fleet.name}, overlay {done.gate.overlay.digest}"
    count = len(done.record.outcomes)
    if done.partial:
        return f"{count} plays of the gate {name}: that is no gate, and no record"
    return f"gate {'passed' if done.passed else 'NOT PASSED'}: {name}, {count} plays, {done.record.ended}"
