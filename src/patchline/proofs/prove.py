"""Proves a carried series on real vLLM: each patch red on stock, green on the overlay.

And red on the patches before it: a patch is not proven by tests that another one makes pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from patchline.errors import UsageError
from patchline.overlay import Overlay, overlay
from patchline.proofs import env, evidence
from patchline.proofs.bench import Bench, graft, host, requirements, together
from patchline.proofs.steps import steps
from patchline.proofs.suite import TESTS, Run
from patchline.proofs.verdicts import Proof, judge, needed
from patchline.series import quilt
from patchline.series.carried import Carried
from patchline.series.lint import tests_of
from patchline.series.patch import changes_digest

LIMIT = 900.0
"""Seconds that one run of all patches' tests may take, vLLM's own start included."""

KIND = "prove"
"""Of the evidence."""


class Proven(NamedTuple):
    """The proofs of one series."""

    name: str
    overlay: Overlay
    proofs: list[Proof]
    stock: Run
    overlaid: Run
    before: dict[str, Run]
    """By the name of a patch after the first: its tests' run on the patches before it."""
    verified: str
    """When the evidence was made that was judged here; empty where the tests ran now."""
    without: str
    """What stood in for compiled code that there is none of; empty where the whole package was installed."""

    @property
    def stands(self) -> bool:
        """Whether every patch is proven."""
        return bool(self.proofs) and all(proof.stands for proof in self.proofs)


def prove(carried: Carried, *, limit: float = LIMIT, fresh: bool = False, record: bool = False) -> Proven:
    """Runs every patch's tests on stock, on the whole series, and on the patches before it.

    Evidence of a proof that stood, of exactly the same inputs, is judged again instead of running, unless
    `fresh`. What stands is kept in the cache, and with `record` in the project.

    Raises:
        UsageError: a patch names no tests, or tests that are not there; no environment is known
            for this upstream.
        ProofFailed: a run did not end, or did not run what it had to.
        Refused: the series has no overlay.
        SourceMismatch: the environment or an overlay's tree is not what it was made as, before or
            after the runs; or evidence is damaged.
    """
    tests = tests_of_all(carried)
    made = overlay(carried)
    all_steps = steps(carried, made)
    covers = coverage(carried, all_steps, tests)
    found = None if fresh else evidence.find(carried.project, KIND, carried.name, covers)
    runs = _Runs(*msgspec.convert(found.result, _Runs)) if found else _run_all(carried, all_steps, tests, limit)
    judged, stand_in = _judge(carried, all_steps, tests, runs), graft(carried)
    done = Proven(carried.name, made, judged, *runs, found.made if found else "", str(stand_in or ""))
    if done.stands and (not found or record):
        kept = found or evidence.new(KIND, carried.name, covers, msgspec.to_builtins(runs), host(carried))
        evidence.keep(kept, carried.project if record else None)
    return done


class _Runs(NamedTuple):
    stock: Run
    overlaid: Run
    before: dict[str, Run]


def coverage(carried: Carried, all_steps: Sequence[Overlay], tests: dict[str, list[str]]) -> dict[str, str]:
    """Everything that a proof of this series depends on: overlays, tests, environment, and our own code.

    The diffs are in the overlays; by them who has no base at hand sees whether the patches are today's.
    """
    found = {f"{name}: tests": " ".join(paths) for name, paths in tests.items()}
    found |= diffs(carried)
    found |= {f"{name}: overlay": step.digest for name, step in zip(tests, all_steps[1:], strict=True)}
    found |= evidence.tests(carried.project.root, [path for paths in tests.values() for path in paths])
    return found | evidence.code() | {"environment": requirements(carried), "recipe": str(env.RECIPE)}


def diffs(carried: Carried) -> dict[str, str]:
    """Covers what each patch of the series changes."""
    patches = quilt.patches(quilt.files(carried.series, own=True))
    return {f"{patch.name}: diff": changes_digest(patch) for patch in patches}


def _run_all(carried: Carried, all_steps: Sequence[Overlay], tests: dict[str, list[str]], limit: float) -> _Runs:
    bench = Bench(carried, all_steps[-1], limit)
    bench.prepare(all_steps)
    files = sorted({path for paths in tests.values() for path in paths})
    before = {
        name: partial(bench.on, step, f"the patches before {name}", paths)
        for (name, paths), step in zip(tests.items(), all_steps[:-1], strict=True)
        if step.changes
    }
    stock, whole, *rest = together(partial(bench.stock, files), partial(bench.overlaid, files), *before.values())
    bench.check()
    return _Runs(stock, whole, dict(zip(before, rest, strict=True)))


def _judge(carried: Carried, all_steps: Sequence[Overlay], tests: dict[str, list[str]], runs: _Runs) -> list[Proof]:
    proofs: list[Proof] = []
    for (name, paths), step, after in zip(tests.items(), all_steps[:-1], all_steps[1:], strict=True):
        proof = judge(name, paths, runs.stock, runs.overlaid)
        proof.faults.extend(_conftests(carried.project.root, paths))
        if step.digest == after.digest:
            proof.faults.append("it changes no file of the installed package")
        else:
            proof = needed(proof, runs.before.get(name, runs.stock))
        proofs.append(proof)
    return proofs


def _conftests(root: Path, tests: Sequence[str]) -> list[str]:
    """A fault for every conftest.py that pytest would load for `tests`."""
    around = {folder for path in tests for folder in (root / path).parents if folder.is_relative_to(root / TESTS)}
    found = sorted(folder / "conftest.py" for folder in around if (folder / "conftest.py").exists())
    return [
        f"{path.relative_to(root)}: conftest.py could change what a test says; put it in a plain module"
        for path in found
    ]


def tests_of_all(carried: Carried) -> dict[str, list[str]]:
    """The test files of every patch, by its name, in the series' order.

    Raises:
        UsageError: a patch names none, or one that is not there.
    """
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
