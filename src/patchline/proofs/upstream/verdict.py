"""What runs on stock and a run on the overlay say together; drawn anew each time, from what tests did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from patchline.errors import SourceMismatch
from patchline.proofs.upstream.process import FileRun, Outcome
from patchline.proofs.upstream.suites import Suites

UNSTEADY = "unsteady"
_DID_NOT_RUN = ("skipped", "deselected", "not run")

Files = dict[str, FileRun]


class Regression(NamedTuple):
    """A test, or a whole file, that does worse on the overlay than on stock."""

    name: str
    stock: str
    overlay: str
    text: str
    alone: str = ""
    """What it did when it ran once more on the overlay, with nothing beside it; empty where it did not."""


class Verdict(NamedTuple):
    """The comparison of one overlay with stock. Tests are named as pytest names them."""

    regressions: list[Regression]
    vanished: list[str]
    """Ran on stock and are not collected on the overlay."""
    new: dict[str, str]
    """Collected on the overlay only, with what they did."""
    unsteady: dict[str, str]
    """Did different things in the runs on stock, with what they did on the overlay."""
    broken: dict[str, str]
    """Fail on both, with the first line of the error on stock."""
    faults: dict[str, str]
    """Files that do not run to their end on stock."""
    both: int
    """Tests that pass on both."""
    stock: dict[str, Counter[str]]
    """Totals of outcomes by suite."""
    overlay: dict[str, Counter[str]]

    @property
    def stands(self) -> bool:
        """Whether nothing has got worse, and anything was shown at all."""
        return self.both > 0 and not self.regressions and not self.vanished


def judge(suites: Suites, stock: Sequence[Files], overlay: Files) -> Verdict:
    """Compares the runs on `stock` with the one on the `overlay`."""
    before, unsteady = _steady(stock)
    after = _flat(overlay)
    worse = _file_regressions(stock[0], overlay)
    worse += [
        Regression(name, was.outcome, now.outcome, now.text)
        for name, now in after.items()
        if name not in unsteady and _worse(was := before.get(name, Outcome("not there", "")), now)
    ]
    return Verdict(
        worse,
        [
            name
            for name, was in before.items()
            if name not in after and name not in unsteady and was.outcome not in _DID_NOT_RUN
        ],
        {name: now.outcome for name, now in after.items() if name not in before and name not in unsteady},
        {name: after[name].outcome if name in after else "not there" for name in sorted(unsteady)},
        {name: was.text for name, was in before.items() if was.bad and name in after and after[name].bad},
        {file: one.fault for file, one in stock[0].items() if one.fault},
        sum(
            was.outcome == "passed" and name in after and after[name].outcome == "passed"
            for name, was in before.items()
        ),
        _totals(suites, before | {name: Outcome(UNSTEADY, "") for name in unsteady}),
        _totals(suites, after),
    )


def _worse(was: Outcome, now: Outcome) -> bool:
    """Also a test that was skipped, expected to fail or not there, and fails now."""
    return now.outcome != "passed" if was.outcome == "passed" else now.bad and not was.bad


def _file_regressions(stock: Files, overlay: Files) -> list[Regression]:
    return [
        Regression(file, "ran to its end", "did not", one.fault)
        for file, one in overlay.items()
        if one.fault and not stock[file].fault
    ]


def _flat(files: Files) -> dict[str, Outcome]:
    return {f"{file}::{test}": one.tests[test] for file, one in sorted(files.items()) for test in one.tests}


def _steady(runs: Sequence[Files]) -> tuple[dict[str, Outcome], set[str]]:
    """What each test did that did the same in all runs, and the names of the others."""
    flat = [_flat(run) for run in runs]
    names = {name for one in flat for name in one}
    unsteady = {name for name in names if len({one[name].outcome if name in one else "" for one in flat}) > 1}
    return {name: outcome for name, outcome in flat[0].items() if name not in unsteady}, unsteady


def _totals(suites: Suites, tests: Mapping[str, Outcome]) -> dict[str, Counter[str]]:
    found = {suite.name: Counter[str]() for suite in suites.suites}
    for name, outcome in tests.items():
        found[suites.suite_of(name.partition("::")[0])][outcome.outcome] += 1
    return found


class _File(msgspec.Struct, forbid_unknown_fields=True):
    seconds: list[float]
    faults: list[str]
    tests: dict[str, str]
    texts: dict[str, str]


def packed(runs: Sequence[Files]) -> dict[str, Any]:
    """Several runs of the same files as JSON: of each test the outcomes, run by run, on one line.

    The text is that of the first run in which there is one.
    """
    return {file: _packed([run[file] for run in runs]) for file in sorted(runs[0])}


def _packed(runs: Sequence[FileRun]) -> dict[str, Any]:
    nothing = Outcome("absent", "")
    names = dict.fromkeys(name for run in runs for name in run.tests)
    tests = {name: [run.tests.get(name, nothing) for run in runs] for name in names}
    return {
        "seconds": [run.seconds for run in runs],
        "faults": [run.fault for run in runs],
        "tests": {name: ", ".join(one.outcome for one in all_runs) for name, all_runs in tests.items()},
        "texts": {
            name: next(one.text for one in all_runs if one.text)
            for name, all_runs in tests.items()
            if any(one.text for one in all_runs)
        },
    }


def unpacked(result: Any, count: int) -> list[Files]:
    """The `count` runs that `packed` made `result` of.

    Raises:
        SourceMismatch: it made no such thing.
    """
    try:
        files = msgspec.convert(result, dict[str, _File])
        return [{name: _unpacked(one, number) for name, one in files.items()} for number in range(count)]
    except (msgspec.ValidationError, IndexError) as bad:
        raise SourceMismatch(
            f"this evidence is not of {count} runs: {bad}", next="remove it; the tests run again"
        ) from bad


def _unpacked(file: _File, number: int) -> FileRun:
    outcomes = {name: text.split(", ")[number] for name, text in file.tests.items()}
    tests = {name: Outcome(one, file.texts.get(name, "")) for name, one in outcomes.items() if one != "absent"}
    return FileRun(file.seconds[number], file.faults[number], tests)
