"""What two runs of a patch's tests, on stock and on the overlay, say about the patch."""

from __future__ import annotations

import re
from typing import NamedTuple

from patchline.proofs.suite import Run, Test


class Proof(NamedTuple):
    """One patch's proof: it stands when there are no `faults` and at least one test holds it."""

    patch: str
    red: list[str]
    """Tests that fail on stock for their stated reason and pass on the overlay."""
    kept: list[str]
    """Tests of unchanged behaviour that pass on both."""
    without: list[str]
    """Those of `red` that fail on the patches before it; before the first there is stock."""
    faults: list[str]

    @property
    def stands(self) -> bool:
        """Whether the patch is proven."""
        return bool(self.red) and not self.faults


def judge(patch: str, files: list[str], stock: Run, overlay: Run) -> Proof:
    """Judges the tests of one patch; `files` are their paths from the project's root."""
    faults = [f"{path} was not collected: {text}" for path in files for text in _errors(path, stock, overlay)]
    names = sorted({name for run in (stock, overlay) for name, test in run.tests.items() if test.file in files})
    faults += [
        f"{path} collects no test" for path in files if not any(_file(name, stock, overlay) == path for name in names)
    ]
    faults += [
        f"{name} is deselected: it counts for nothing" for name in sorted({*stock.deselected, *overlay.deselected})
    ]
    red: list[str] = []
    kept: list[str] = []
    for name in names:
        fault = _fault(stock.tests.get(name), overlay.tests.get(name))
        if fault:
            faults.append(f"{name}: {fault}")
        else:
            (red if overlay.tests[name].holds is not None else kept).append(name)
    if not red:
        faults.append("no test fails on stock and passes on the overlay: nothing holds this patch")
    return Proof(patch, red, kept, [], faults)


def needed(proof: Proof, before: Run) -> Proof:
    """The proof with what its tests do on the patches before it: at least one has to fail there."""
    failing = [name for name in proof.red if name in before.tests and before.tests[name].outcome in ("failed", "error")]
    faults = [f"on the patches before it, not collected: {_short(text)}" for text in before.errors]
    if proof.red and not failing and not faults:
        faults = ["no test fails without it: the patches before it make its tests pass"]
    return proof._replace(without=failing, faults=proof.faults + faults)


def _errors(path: str, *runs: Run) -> list[str]:
    return [text for run in runs for text in run.errors if path.endswith(text.partition(":")[0])][:1]


def _file(name: str, *runs: Run) -> str:
    return next(run.tests[name].file for run in runs if name in run.tests)


def _fault(stock: Test | None, overlay: Test | None) -> str | None:
    """Why one test is no proof; None where it is."""
    if stock is None or overlay is None:
        return f"it is collected on {'the overlay' if stock is None else 'stock'} only"
    if fault := overlay.fault or stock.fault:
        return fault
    if (overlay.holds is None) != overlay.unchanged:
        return "it needs one of the marks holds(stock=…) and unchanged"
    if overlay.outcome != "passed":
        return f"on the overlay: {overlay.outcome}: {_short(overlay.text)}"
    if overlay.unchanged:
        return (
            None
            if stock.outcome == "passed"
            else f"marked unchanged, and on stock: {stock.outcome}: {_short(stock.text)}"
        )
    if stock.outcome == "passed":
        return "it passes on stock: it holds nothing"
    if stock.outcome != "failed":
        return f"on stock: {stock.outcome}, not failed: {_short(stock.text)}"
    return _reason(stock, overlay.holds or "")


def _reason(stock: Test, pattern: str) -> str | None:
    """Why a failure on stock is not the one that `pattern` states; every failing subtest counts."""
    for text, accident in stock.failures or [(stock.text, "")]:
        if not re.search(pattern, text):
            return f"on stock it fails for another reason than {pattern!r}: {_short(text)}"
        if accident and accident not in pattern:
            return f"on stock it fails of {accident}, which {pattern!r} does not name: {_short(text)}"
    return None


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 300 else f"{line[:300]} …"
