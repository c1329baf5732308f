"""Runs upstream's own tests on stock and on the overlay, or finds what such runs have shown already."""

from __future__ import annotations

import hashlib
import json
import platform
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import msgspec

from patchline.errors import ProofFailed
from patchline.overlay import Overlay, overlay
from patchline.pins import ArchivePin
from patchline.progress import say
from patchline.proofs import bench, evidence
from patchline.proofs.bench import Bench
from patchline.proofs.evidence import Evidence
from patchline.proofs.upstream import runs, suites
from patchline.proofs.upstream.bed import Bed
from patchline.proofs.upstream.suites import Suites
from patchline.proofs.upstream.verdict import Files, Regression, Verdict, judge, packed, unpacked
from patchline.series.carried import Carried

LIMIT = 900.0
"""Seconds that one test file may take; the longest takes 3 minutes on a quiet machine."""
ON_STOCK = 2
"""Runs on stock: a test that does not do the same in both is unsteady, and its failure says nothing."""
_FEW = 30
"""As many regressions run once more, alone; where there are more, it is no accident."""

_STOCK, _OVERLAY = "upstream-stock", "upstream-overlay"
_RUNS = ("bed", "hub", "plugin", "process", "runs")
"""The modules that decide what a test does. What is made of that, is made anew each time."""


class Checked(NamedTuple):
    """What upstream's own tests say about one overlay."""

    name: str
    overlay: Overlay
    suites: Suites
    verdict: Verdict
    stock: Evidence
    on_overlay: Evidence
    recorded: list[Path]


def check(carried: Carried, *, limit: float = LIMIT, record: bool = False, fresh: bool = False) -> Checked:
    """Compares stock and overlay by upstream's own tests.

    What is known of exactly these inputs is not run again, unless `fresh` says so. With `record` both
    results are kept in the project, else in the cache; a result on the overlay only where it stands.

    Raises:
        UsageError: nothing says which tests these are, or they are not those of the pin.
        ProofFailed: a run proves nothing, or the runs on stock are not comparable.
        Refused, SourceMismatch, Unreachable: as `prove`.
    """
    chosen = suites.load(carried.project, carried.name)
    work = _Work(carried, chosen, overlay(carried), limit, record)
    stock, on_stock = work.stock(fresh)
    known = None if fresh else work.find(_OVERLAY)
    verdict = judge(chosen, on_stock, unpacked(known.result, 1)[0]) if known else None
    if known is None or verdict is None or not verdict.stands:
        found = work.run("the overlay", work.trees[1], on_stock[0])
        verdict = judge(chosen, on_stock, found)
        verdict = verdict._replace(regressions=work.alone(verdict.regressions))
        known = work.evidence(_OVERLAY, [found])
    if verdict.stands:
        work.keep(known)
    return Checked(carried.name, work.made, chosen, verdict, stock, known, work.recorded)


class _Work:
    """The runs of one check; nothing is made before the first of them."""

    def __init__(self, carried: Carried, chosen: Suites, made: Overlay, limit: float, record: bool) -> None:
        self.carried, self.chosen, self.made, self.limit, self.record = carried, chosen, made, limit, record
        self.recorded: list[Path] = []
        self._covers = self._inputs()  # before the runs: a module that is edited meanwhile did not run

    @cached_property
    def bench(self) -> Bench:
        """The environment, made and compared with its records."""
        made = Bench(self.carried, self.made, self.limit)
        made.prepare([self.made])
        return made

    @cached_property
    def bed(self) -> Bed:
        """Upstream's tests."""
        return Bed(self.carried, self.bench, self.chosen, self.limit)

    @property
    def trees(self) -> tuple[Path, Path]:
        """Stock and overlay."""
        return self.bench.site_packages, self.bench.tree(self.made)

    def stock(self, fresh: bool) -> tuple[Evidence, list[Files]]:
        """What the tests do on stock, found or run."""
        found = None if fresh else self.find(_STOCK)
        if found is None:
            first = self.run("stock, first run", self.trees[0], None)
            found = self.evidence(_STOCK, [first, self.run("stock, second run", self.trees[0], first)])
        every = unpacked(found.result, ON_STOCK)
        _check_comparable(self.carried.name, every)
        self.keep(found)
        return found, every

    def run(self, what: str, tree: Path, before: Files | None) -> Files:
        """One run of all files, spread by what they took `before`, or else by their size."""
        with self.bed.place(what, tree) as place:
            weights = {file: _weight(place.tests / file, before, file) for file in self.chosen.files}
            done = runs.run(place, runs.spread(weights))
        runs.check_imports(place, done)
        count = sum(len(one.tests) for one in done.files.values())
        say(f"{place.what}: {count} tests, {done.seconds:.0f} s")
        return done.files

    def alone(self, worse: list[Regression]) -> list[Regression]:
        """The regressions, with what each does on the overlay once more, in one process without all other tests."""
        tests = [one.name for one in worse if "::" in one.name and not one.name.endswith("::")]
        if not tests or len(tests) > _FEW:
            return worse
        with self.bed.place("the overlay, again", self.trees[1]) as place:
            files = runs.run(place, [tests]).files
        said = {f"{file}::{test}": done.outcome for file, one in files.items() for test, done in one.tests.items()}
        return [one._replace(alone=said.get(one.name, "")) for one in worse]

    def find(self, kind: str) -> Evidence | None:
        """The evidence of exactly these inputs."""
        return evidence.find(self.carried.project, kind, self.carried.name, self.covers(kind))

    def evidence(self, kind: str, every: list[Files]) -> Evidence:
        """The evidence of runs that have just ended; environment and trees are compared once more before.

        Raises:
            SourceMismatch: a test has written into them.
        """
        self.bench.check()
        return evidence.new(kind, self.carried.name, self.covers(kind), packed(every), bench.host(self.carried))

    def keep(self, one: Evidence) -> None:
        """Keeps evidence in the project or in the cache, as it was asked."""
        path = evidence.keep(one, self.carried.project if self.record else None)
        self.recorded += [path] if self.record else []

    def covers(self, kind: str) -> dict[str, str]:
        """Everything that decides what a test does."""
        return self._covers if kind == _STOCK else {**self._covers, "overlay": self.made.digest}

    def _inputs(self) -> dict[str, str]:
        pin = self.carried.pin
        source = [f"sha256:{file.sha256}" for file in pin.files] if isinstance(pin, ArchivePin) else [pin.commit]
        return {
            "pin": " ".join(source),
            "tests": _digest([self.chosen.files, msgspec.to_builtins(self.chosen.hub)]),
            "environment": bench.requirements(self.carried),
            "patchline's runs": _code(),
            "machine": platform.machine(),
        }


def _digest(what: object) -> str:
    return f"sha256:{hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()}"


def _code() -> str:
    here = Path(__file__).parent
    return _digest([[name, (here / f"{name}.py").read_text(encoding="utf-8")] for name in _RUNS])


def _weight(path: Path, before: Files | None, file: str) -> float:
    return before[file].seconds if before else float(path.stat().st_size)


def _check_comparable(name: str, stock: list[Files]) -> None:
    """Refuses runs on stock that do not agree on which files can be run, or in which nothing passes.

    Raises:
        ProofFailed: with the files.
    """
    differing = [file for file in stock[0] if len({bool(run[file].fault) for run in stock}) > 1]
    if differing:
        lines = "\n".join(f"  {file}: {'; '.join(run[file].fault or 'ran' for run in stock)}" for file in differing)
        raise ProofFailed(
            f"{name}'s own tests: the runs on stock do not agree on which files can be run\n{lines}",
            next="run again on a quieter machine, give them more with --limit, or leave the file out, with the reason",
        )
    if not any(test.outcome == "passed" for one in stock[0].values() for test in one.tests.values()):
        raise ProofFailed(f"{name}'s own tests: none passes on stock: there is nothing to compare with")
