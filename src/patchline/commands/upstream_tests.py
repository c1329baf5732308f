"""Run upstream's own tests on stock and on the overlay: what passes on stock must pass on the overlay.

Which tests, and why these, says builds/upstream-tests/NAME-VERSION.toml. What they do on stock is recorded
once for each pin; nothing is run again whose inputs have not changed.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping
from typing import Any

from patchline.cli import Outcome
from patchline.errors import Exit
from patchline.proofs.upstream.check import LIMIT, Checked
from patchline.proofs.upstream.verdict import Regression, Verdict


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("upstream", nargs="?", default="vllm", help="vllm, or vllm==VERSION (default: vllm)")
    parser.add_argument(
        "--limit", type=float, default=LIMIT, metavar="SECONDS", help=f"for one test file (default: {LIMIT:.0f})"
    )
    parser.add_argument("--record", action="store_true", help="keep the evidence in builds/evidence/")
    parser.add_argument("--fresh", action="store_true", help="run the tests, whatever evidence there is")


def run(args: argparse.Namespace) -> Outcome:
    """Compares; see `proofs.upstream.check` for what is raised."""
    from patchline.proofs.upstream.check import check
    from patchline.series.carried import carried

    done = check(carried(args.upstream), limit=args.limit, record=args.record, fresh=args.fresh)
    return Outcome(data(done), text(done), Exit.DONE if done.verdict.stands else Exit.PROOF_FAILED)


def data(done: Checked) -> dict[str, Any]:
    """The comparison for machines."""
    verdict = done.verdict
    return {
        "name": done.name,
        "overlay": done.overlay.digest,
        "stands": verdict.stands,
        "passed_on_both": verdict.both,
        "totals": {"stock": _sorted(verdict.stock), "overlay": _sorted(verdict.overlay)},
        "regressions": [one._asdict() for one in verdict.regressions],
        "vanished": verdict.vanished,
        "new": verdict.new,
        "unsteady_on_stock": verdict.unsteady,
        "fail_on_both": verdict.broken,
        "files_that_do_not_run": verdict.faults,
        "left_out": {file: left.why for left in done.suites.left_out for file in left.files},
        "evidence": {one.kind: {"made": one.made, "digest": one.digest} for one in (done.stock, done.on_overlay)},
        "recorded": [str(path) for path in done.recorded],
    }


def _sorted(totals: Mapping[str, Counter[str]]) -> dict[str, dict[str, int]]:
    return {suite: dict(sorted(counts.items())) for suite, counts in totals.items()}


def text(done: Checked) -> str:
    """The comparison for people."""
    verdict = done.verdict
    left = [(file, one.why) for one in done.suites.left_out for file in one.files]
    lines = [f"{'suite':24}  on stock / on the overlay", *_totals(verdict)]
    lines += _listed("fail on both", [f"{name}: {why}" for name, why in verdict.broken.items()])
    lines += _listed("files that do not run to their end", [f"{name}: {why}" for name, why in verdict.faults.items()])
    lines += _listed("files left out", [f"{name}: {why}" for name, why in left])
    lines += _listed(
        "unsteady on stock; on the overlay", [f"{name}: {outcome}" for name, outcome in verdict.unsteady.items()]
    )
    lines += _listed("new on the overlay", [f"{name}: {outcome}" for name, outcome in verdict.new.items()])
    lines += _listed("VANISHED on the overlay", verdict.vanished)
    lines += _listed("WORSE on the overlay", [_regression(one) for one in verdict.regressions])
    lines += [f"recorded in {path}" for path in done.recorded]
    end = "nothing is worse" if verdict.stands else "NOT AS ON STOCK"
    lines.append(f"{end}: {verdict.both} tests pass on both, for {done.name}, overlay {done.overlay.digest}")
    return "\n".join(lines)


def _totals(verdict: Verdict) -> list[str]:
    lines = [f"{suite:24}  {_counts(was, verdict.overlay[suite])}" for suite, was in verdict.stock.items()]
    return [*lines, f"{'all':24}  {_counts(_sum(verdict.stock), _sum(verdict.overlay))}"]


def _sum(totals: Mapping[str, Counter[str]]) -> Counter[str]:
    return sum(totals.values(), Counter[str]())


def _counts(was: Counter[str], now: Counter[str]) -> str:
    return ", ".join(f"{outcome} {was[outcome]} / {now[outcome]}" for outcome in sorted({*was, *now}))


def _listed(what: str, lines: list[str]) -> list[str]:
    return [f"{what} ({len(lines)}):", *(f"  {line}" for line in lines)] if lines else []


def _regression(one: Regression) -> str:
    said = f"{one.name}: {one.stock} on stock, {one.overlay} on the overlay: {one.text}"
    if one.alone == "passed":
        return f"{said} (flaky: passed when it ran once more, alone; if stock does the same, --fresh --record says so)"
    return f"{said} (once more, alone: {one.alone})" if one.alone else said
