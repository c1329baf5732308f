"""Proves a carried series on real vLLM: each patch red on stock, green on the overlay.

And red on the patches before it: a patch is not proven by tests that another one makes pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from patchline.errors import UsageError
from patchline.overlay import Overlay, overlay
from patchline.progress import say
from patchline.proofs import env, installed, suite, tree
from patchline.proofs.steps import steps
from patchline.proofs.suite import TESTS, Place, Run
from patchline.proofs.verdicts import Proof, judge, needed
from patchline.series import quilt
from patchline.series.carried import Carried
from patchline.series.lint import tests_of

LIMIT = 900.0
"""Seconds that one run of all patches' tests may take, vLLM's own start included."""


class Proven(NamedTuple):
    """The proofs of one series."""

    name: str
    overlay: Overlay
    proofs: list[Proof]
    stock: Run
    overlaid: Run
    before: dict[str, Run]
    """By the name of a patch after the first: its tests' run on the patches before it."""

    @property
    def stands(self) -> bool:
        """Whether every patch is proven."""
        return bool(self.proofs) and all(proof.stands for proof in self.proofs)


class Bench:
    """The trees that the tests of one series run on, and the environment that holds the package."""

    def __init__(self, carried: Carried, made: Overlay, limit: float) -> None:
        self.root, self.name, self.made, self.limit = carried.project.root, carried.name, made, limit
        found = _environment(carried)
        # Not resolved: a venv's Python is a link, and would not know its venv.
        self.python, self.site_packages = found.python.absolute(), found.site_packages.resolve()
        self.trees: dict[str, tuple[Overlay, Path]] = {}

    def prepare(self, all_steps: Sequence[Overlay]) -> None:
        """Makes the tree of every step that changes something, then checks the environment."""
        for step in all_steps:
            if step.changes and step.digest not in self.trees:
                self.trees[step.digest] = (step, tree.overlaid(step, self.site_packages))
        installed.check(self.site_packages, tree.tops(self.made), "before the runs")

    def check(self) -> None:
        """Compares trees and environment again: files are hard links, and a test could write into them."""
        installed.check(self.site_packages, tree.tops(self.made), "after the runs")
        for step, folder in self.trees.values():
            tree.check(step, folder, self.site_packages, "after the runs")

    def stock(self, files: Sequence[str]) -> Run:
        """Runs `files` on the installed package."""
        needs = _modules([change.path for change in self.made.changes if change.old])
        return self._run(files, "stock", self.site_packages, None, needs)

    def overlaid(self, files: Sequence[str]) -> Run:
        """Runs `files` on the whole series."""
        _, folder = self.trees[self.made.digest]
        needs = _modules([change.path for change in self.made.changes if change.new])
        return self._run(files, "the overlay", folder, folder, needs)

    def before(self, step: Overlay, patch: str, files: Sequence[str]) -> Run:
        """Runs `files` on the patches before `patch`, which make `step`."""
        _, folder = self.trees[step.digest]
        return self._run(files, f"the patches before {patch}", folder, folder, ())

    def _run(self, files: Sequence[str], what: str, folder: Path, path: Path | None, needs: tuple[str, ...]) -> Run:
        modules = _modules([change.path for step, _ in self.trees.values() for change in step.changes])
        place = Place(f"{self.name} on {what}", folder, path, (*tree.tops(self.made),), modules, needs)
        done = suite.run(self.python, self.root, files, place, limit=self.limit)
        say(f"{place.what}: {len(done.tests)} tests, {done.seconds:.0f} s")
        return done


def prove(carried: Carried, *, limit: float = LIMIT) -> Proven:
    """Runs every patch's tests on stock, on the whole series, and on the patches before it.

    Raises:
        UsageError: a patch names no tests, or tests that are not there; no environment is known
            for this upstream.
        ProofFailed: a run did not end, or did not run what it had to.
        Refused: the series has no overlay.
        SourceMismatch: the environment or an overlay's tree is not what it was made as, before or
            after the runs.
    """
    tests = _tests(carried)
    made = overlay(carried)
    bench = Bench(carried, made, limit)
    all_steps = steps(carried, made)
    bench.prepare(all_steps)
    files = sorted({path for paths in tests.values() for path in paths})
    stock, whole = bench.stock(files), bench.overlaid(files)
    proofs: list[Proof] = []
    before: dict[str, Run] = {}
    for (name, paths), step, after in zip(tests.items(), all_steps[:-1], all_steps[1:], strict=True):
        proof = judge(name, [str(carried.project.root / path) for path in paths], stock, whole)
        proof.faults.extend(_conftests(carried.project.root, paths))
        if step.digest == after.digest:
            proof.faults.append("it changes no file of the installed package")
        elif proof.red and step.changes:
            before[name] = bench.before(step, name, paths)
            proof = needed(proof, before[name])
        else:
            proof = needed(proof, stock)
        proofs.append(proof)
    bench.check()
    return Proven(carried.name, made, proofs, stock, whole, before)


def _modules(paths: Sequence[str]) -> tuple[str, ...]:
    """The dotted names of those paths that can be imported."""
    parts = [path.removesuffix(".py").removesuffix("/__init__").split("/") for path in paths if path.endswith(".py")]
    return tuple(sorted(".".join(names) for names in parts if all(name.isidentifier() for name in names)))


def _conftests(root: Path, tests: Sequence[str]) -> list[str]:
    """A fault for every conftest.py that pytest would load for `tests`."""
    around = {folder for path in tests for folder in (root / path).parents if folder.is_relative_to(root / TESTS)}
    found = sorted(folder / "conftest.py" for folder in around if (folder / "conftest.py").exists())
    return [
        f"{path.relative_to(root)}: conftest.py could change what a test says; put it in a plain module"
        for path in found
    ]


def _tests(carried: Carried) -> dict[str, list[str]]:
    found = {patch.name: tests_of(patch) for patch in quilt.patches(quilt.files(carried.series, own=True))}
    faults = [f"  {name}: its Tests: trailer names nothing" for name, paths in found.items() if not paths]
    faults += [
        f"  {name}: there is no {path}"
        for name, paths in found.items()
        for path in paths
        if not (carried.project.root / path).is_file()
    ]
    if faults:
        raise UsageError(
            "patches without tests cannot be proven:\n" + "\n".join(faults),
            where=str(carried.series),
            next="python -m patchline lint",
        )
    return found


def _environment(carried: Carried) -> env.Environment:
    if carried.upstream.name == "vllm":
        return env.for_vllm(carried.pin.version)
    raise UsageError(f"no proof environment is known for {carried.name}", next="python -m patchline prove vllm")
