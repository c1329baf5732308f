"""Serve with a line's image in real containers, prefill and decode apart, and check the answers."""

from __future__ import annotations

import argparse
from typing import Any

from patchline.cli import Outcome
from patchline.errors import Exit
from patchline.lines.smoke import Done


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument(
        "line", nargs="?", default="cpu-smoke", help="a line whose base is made here (default: cpu-smoke)"
    )
    parser.add_argument("--fresh", action="store_true", help="run it, whatever evidence there is")
    parser.add_argument("--record", action="store_true", help="keep the evidence in builds/evidence/")
    parser.add_argument(
        "--ready",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="until all containers are ready (default: the fleet's)",
    )


def run(args: argparse.Namespace) -> Outcome:
    """Runs it; see `lines.smoke` for what is raised."""
    from patchline.lines.smoke import smoke
    from patchline.project import find

    done = smoke(find(), args.line, fresh=args.fresh, record=args.record, ready=args.ready)
    return Outcome(data(done), text(done), Exit.DONE if done.passed else Exit.PROOF_FAILED)


def data(done: Done) -> dict[str, Any]:
    """The result for machines."""
    return {
        "line": done.line,
        "image": done.image,
        "passed": done.passed,
        "verified": done.verified,
        "faults": done.faults,
        **done.record._asdict(),
    }


def text(done: Done) -> str:
    """The result for people."""
    lines = [f"{'passed' if one['passed'] is True else 'FAILED'}  {one['check']}" for one in done.record.checks]
    lines += [f"FAULT: {fault}" for fault in done.faults]
    if done.verified:
        lines.append(f"judged from the evidence of {done.verified}, which covers exactly these inputs; --fresh runs it")
    head = "the image serves" if done.passed else "THE IMAGE DOES NOT SERVE"
    return "\n".join([*lines, f"{head}: {done.line}, {done.image}, ready after {done.record.ready:.0f} s"])
