"""Show on real vLLM, or real Dynamo, that each patch is needed and works.

Its tests fail on stock, for the stated reason, and pass on the overlay; one at least fails without it,
on the patches before it.
"""

from __future__ import annotations

import argparse
from typing import Any

from patchline.cli import Outcome
from patchline.errors import Exit
from patchline.proofs.prove import LIMIT, Proven
from patchline.proofs.suite import Run


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("upstream", nargs="?", default="vllm", help="vllm, dynamo, or NAME==VERSION (default: vllm)")
    parser.add_argument(
        "--limit", type=float, default=LIMIT, metavar="SECONDS", help=f"for one run of all tests (default: {LIMIT:.0f})"
    )
    parser.add_argument("--fresh", action="store_true", help="run the tests, whatever evidence there is")
    parser.add_argument("--record", action="store_true", help="keep the evidence in builds/evidence/")
    parser.add_argument("--table", action="store_true", help="show what the tests noted, on stock and on the overlay")


def run(args: argparse.Namespace) -> Outcome:
    """Proves; see `proofs.prove` for what is raised."""
    from patchline.proofs.prove import prove
    from patchline.series.carried import carried

    done = prove(carried(args.upstream), limit=args.limit, fresh=args.fresh, record=args.record)
    shown = f"{table(done)}\n{text(done)}" if args.table else text(done)
    return Outcome(data(done), shown, Exit.DONE if done.stands else Exit.PROOF_FAILED)


def data(done: Proven) -> dict[str, Any]:
    """The proofs for machines."""
    return {
        "name": done.name,
        "overlay": done.overlay.digest,
        "proven": done.stands,
        "patches": [{**proof._asdict(), "proven": proof.stands} for proof in done.proofs],
        "stock": _totals(done.stock),
        "overlaid": _totals(done.overlaid),
        "before": {name: _totals(run) for name, run in done.before.items()},
        "verified": done.verified,
        "without_its_compiled_code": done.without,
        "noted": _noted(done),
    }


def _noted(done: Proven) -> list[dict[str, str]]:
    """What tests noted while they passed on the overlay, with their outcome on stock and on the overlay."""
    return [
        {"test": _short(name), **test.properties, "stock": _outcome(done.stock, name), "overlay": test.outcome}
        for name, test in done.overlaid.tests.items()
        if test.properties
    ]


def _outcome(run: Run, name: str) -> str:
    return run.tests[name].outcome if name in run.tests else "not there"


def table(done: Proven) -> str:
    """What the tests noted, one line a test, in columns."""
    rows = [{key: value for key, value in row.items() if key != "test"} for row in _noted(done)]
    if not rows:
        return "no test noted anything"
    heads = list(dict.fromkeys(name for row in rows for name in row if name not in ("stock", "overlay")))
    lines = [
        [*heads, "stock", "overlay"],
        *([row.get(name, "") for name in (*heads, "stock", "overlay")] for row in rows),
    ]
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    return "\n".join(
        "  ".join(f"{cell:{width}}" for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def _totals(run: Run) -> dict[str, Any]:
    outcomes = [test.outcome for test in run.tests.values()]
    return {"seconds": round(run.seconds, 1), **{outcome: outcomes.count(outcome) for outcome in sorted(set(outcomes))}}


def text(done: Proven) -> str:
    """The proofs for people."""
    lines = []
    for proof in done.proofs:
        lines += [f"{'proven' if proof.stands else 'NOT PROVEN'}  {proof.patch}"]
        lines += [
            f"  red on stock, green on the overlay: {_short(name)}: {_why(done.stock, name)}" for name in proof.red
        ]
        lines += [f"  {len(proof.red)} tests hold it; {len(proof.kept)} of unchanged behaviour pass on both"]
        lines += [f"  fails without it: {_count(proof.without)}"]
        lines += [f"  FAULT: {fault}" for fault in proof.faults]
    before = [(f"before {name}", run) for name, run in done.before.items()]
    for what, run in [("stock", done.stock), ("overlay", done.overlaid), *before]:
        lines.append(f"{what}: " + ", ".join(f"{key} {value}" for key, value in _totals(run).items()))
    if done.verified:
        lines.append(
            f"judged from the evidence of {done.verified}, which covers exactly these inputs; --fresh runs it again"
        )
    if done.without:
        lines.append(f"WITHOUT ITS COMPILED CODE, of its Python tree alone: {done.without}")
    proven = sum(proof.stands for proof in done.proofs)
    return "\n".join(
        [*lines, f"{proven} of {len(done.proofs)} patches proven for {done.name}, overlay {done.overlay.digest}"]
    )


def _count(names: list[str]) -> str:
    return f"{len(names)} test{'' if len(names) == 1 else 's'}"


def _short(name: str) -> str:
    path, _, test = name.partition("::")
    return f"{path.rpartition('/')[2]}::{test}"


def _why(stock: Run, name: str) -> str:
    text = " ".join(stock.tests[name].text.split())
    return text if len(text) <= 120 else f"{text[:120]} …"
