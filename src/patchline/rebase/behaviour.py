"""What a patch's tests do on stock of another version: the last layer of a verdict, in a real environment."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import msgspec

from patchline.errors import DidNotEnd, ProofFailed, UsageError
from patchline.overlay import overlay
from patchline.progress import say
from patchline.proofs import bench, env, evidence
from patchline.proofs.prove import LIMIT
from patchline.proofs.suite import Run
from patchline.proofs.tree import tops
from patchline.rebase.words import Behaviour
from patchline.series import quilt
from patchline.series.carried import Carried
from patchline.series.lint import tests_of
from patchline.series.patch import Patch

KIND = "stock"
"""Of the evidence, which is kept in the cache only, and only of tests that pass."""


def said(run: Run) -> Behaviour:
    """What one run of a patch's tests says of it. Nothing is said where a test was skipped, or none holds the patch."""
    outcomes = [test.outcome for test in run.tests.values()]
    if any(outcome in ("failed", "error") for outcome in outcomes):
        return Behaviour.FAILS
    held = any(test.holds is not None for test in run.tests.values())
    whole = held and not run.errors and not run.deselected and all(outcome == "passed" for outcome in outcomes)
    return Behaviour.PASSES if whole else Behaviour.NOTHING


class OnStock:
    """Runs the tests of a series' patches on stock of the pin `new`; made once, it answers for each patch."""

    def __init__(self, old: Carried, new: Carried, *, limit: float = LIMIT) -> None:
        """`limit` is the seconds that the tests of one patch may take."""
        self.old, self.new, self.limit = old, new, limit

    @property
    def without(self) -> str:
        """What stands in for compiled code that the new version has no build of; empty where it has one."""
        return str(bench.graft(self.new) or "")

    def __call__(self, patch: Patch) -> Behaviour:
        """What the patch's tests do there.

        Raises:
            UsageError: a test file is not there, or no environment is known for this upstream.
            Unreachable: the environment cannot be made here.
            DidNotEnd: the tests did not end in time.
            SourceMismatch: the environment is not what it was made as.
        """
        files = self._files(patch)
        try:
            found = said(self._run(files))
        except DidNotEnd:
            raise
        except ProofFailed as nothing:  # no test imported the package: it is an answer, and it asks for hands
            say(f"{patch.name}: its tests on stock of {self.new.name} show nothing: {nothing.what}")
            return Behaviour.NOTHING
        say(f"{patch.name}: its tests on stock of {self.new.name}: {found.value}")
        return found

    def _files(self, patch: Patch) -> list[str]:
        """The patch's test files; where the new version's series has it already, those that it has there."""
        files = tests_of(self._there.get(patch.name, patch))
        root = self.new.project.root
        if missing := [path for path in files if not (root / path).is_file()]:
            raise UsageError(f"{patch.name} names tests that are not there: {', '.join(missing)}", where=str(root))
        if not files:
            raise UsageError(f"{patch.name} names no tests", where=str(patch.path), next="python -m patchline lint")
        return files

    @cached_property
    def _there(self) -> dict[str, Patch]:
        if not self.new.series.is_file():
            return {}
        return {patch.name: patch for patch in quilt.patches(quilt.files(self.new.series, own=True))}

    @cached_property
    def _bench(self) -> bench.Bench:
        made = bench.Bench(self.new, overlay(self.old), self.limit)
        made.prepare([])
        return made

    def _run(self, files: Sequence[str]) -> Run:
        covers = self._covers(files)
        if known := evidence.find(self.new.project, KIND, self.new.name, covers):
            return msgspec.convert(known.result, Run)
        stock = self._bench.made._replace(changes=(), outside=())
        run = self._bench.on(stock, "stock", files)
        self._bench.check()
        if said(run) is Behaviour.PASSES:
            evidence.keep(evidence.new(KIND, self.new.name, covers, msgspec.to_builtins(run), bench.host(self.new)))
        return run

    def _covers(self, files: Sequence[str]) -> dict[str, str]:
        found = {"tests": " ".join(files), "packages": " ".join(tops(self._bench.made))}
        found |= evidence.tests(self.new.project.root, files) | evidence.code()
        return found | {"environment": bench.requirements(self.new), "recipe": str(env.RECIPE)}
