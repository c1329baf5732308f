"""Proves a carried series on real vLLM: each patch red on stock, green on the overlay."""

from __future__ import annotations

from typing import NamedTuple

from patchline.errors import UsageError
from patchline.overlay import Overlay, overlay
from patchline.progress import say
from patchline.proofs import env, suite
from patchline.proofs.suite import Run
from patchline.proofs.tree import check_base, overlaid
from patchline.proofs.verdicts import Proof, judge
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

    @property
    def stands(self) -> bool:
        """Whether every patch is proven."""
        return bool(self.proofs) and all(proof.stands for proof in self.proofs)


def prove(carried: Carried, *, limit: float = LIMIT) -> Proven:
    """Runs every patch's tests twice, on the stock package and on the overlay.

    Raises:
        UsageError: a patch names no tests, or tests that are not there; no environment is known
            for this upstream.
        ProofFailed: a run did not end, or did not run what it had to.
        Refused: the series has no overlay.
    """
    tests = _tests(carried)
    made = overlay(carried)
    environment = _environment(carried)
    check_base(made, environment.site_packages)
    tree = overlaid(made, environment.site_packages)
    files = sorted({path for paths in tests.values() for path in paths})
    package = made.changes[0].path.split("/", 1)[0]
    runs = [
        suite.run(
            environment.python,
            carried.project.root,
            files,
            package=package,
            tree=where,
            path=path,
            what=f"{carried.name} on {what}",
            limit=limit,
        )
        for what, where, path in (("stock", environment.site_packages, None), ("the overlay", tree, tree))
    ]
    say(f"{carried.name}: {', '.join(f'{run.seconds:.0f} s' for run in runs)} on stock and on the overlay")
    root = carried.project.root
    proofs = [judge(name, [str(root / path) for path in paths], *runs) for name, paths in tests.items()]
    return Proven(carried.name, made, proofs, *runs)


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
