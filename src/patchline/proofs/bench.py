"""The bench of one series: the environment with the package, and the trees that its tests run on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from patchline.errors import UsageError
from patchline.overlay import Overlay
from patchline.progress import say
from patchline.proofs import env, grafts, installed, suite, tree
from patchline.proofs.grafts import Graft
from patchline.proofs.suite import Place, Run
from patchline.series.carried import Carried

PARALLEL = 2
"""Runs at a time: each is one process that computes."""

_ENVIRONMENTS: dict[str, Callable[[str], tuple[str, ...]]] = {
    "vllm": lambda version: env.for_vllm(version, grafts.BUILDS.get(version, "")),
    "dynamo": env.for_frontend,
}
"""What holds the installed package of a pin, by its upstream. A change on Dynamo's vLLM worker will want vLLM, too."""


class Bench:
    """Runs the tests of one series on the installed package, and on overlays of it."""

    def __init__(self, carried: Carried, made: Overlay, limit: float) -> None:
        self.root, self.name, self.made, self.limit = carried.project.root, carried.name, made, limit
        found = environment(carried)
        # Not resolved: a venv's Python is a link, and would not know its venv.
        self.python, self.site_packages = found.python.absolute(), found.site_packages.resolve()
        self.trees: dict[str, tuple[Overlay, Path]] = {}

    def prepare(self, overlays: Sequence[Overlay]) -> None:
        """Makes the tree of every overlay that changes something, then checks the environment."""
        for one in overlays:
            self.tree(one)
        installed.check(self.site_packages, tree.tops(self.made), "before the runs")

    def tree(self, one: Overlay) -> Path:
        """Where the package with this overlay is; the package itself, where it changes nothing."""
        if not one.changes:
            return self.site_packages
        if one.digest not in self.trees:
            self.trees[one.digest] = (one, tree.overlaid(one, self.site_packages))
        return self.trees[one.digest][1]

    def check(self) -> None:
        """Compares trees and environment again: files are hard links, and a test could write into them."""
        installed.check(self.site_packages, tree.tops(self.made), "after the runs")
        for one, folder in self.trees.values():
            tree.check(one, folder, self.site_packages, "after the runs")

    def stock(self, files: Sequence[str]) -> Run:
        """Runs `files` on the installed package."""
        needs = modules([change.path for change in self.made.changes if change.old])
        return self._run(files, "stock", self.site_packages, needs)

    def overlaid(self, files: Sequence[str]) -> Run:
        """Runs `files` on the whole series."""
        needs = modules([change.path for change in self.made.changes if change.new])
        return self._run(files, "the overlay", self.tree(self.made), needs)

    def on(self, one: Overlay, what: str, files: Sequence[str], *, first_failure: bool = False) -> Run:
        """Runs `files` on another overlay of the package, perhaps to its `first_failure`; `what` names it."""
        return self._run(files, what, self.tree(one), (), first_failure=first_failure)

    def _run(
        self, files: Sequence[str], what: str, folder: Path, needs: tuple[str, ...], *, first_failure: bool = False
    ) -> Run:
        place = self.place(what, folder, needs)
        done = suite.run(self.python, self.root, files, place, limit=self.limit, first_failure=first_failure)
        say(f"{self.name} on {what}: {len(done.tests)} tests, {done.seconds:.0f} s")
        return done

    def place(self, what: str, folder: Path, needs: tuple[str, ...] = ()) -> Place:
        """The tree `folder`, in the words of a run."""
        path = None if folder == self.site_packages else folder
        changed = modules([change.path for one, _ in self.trees.values() for change in one.changes])
        return Place(
            f"{self.name} on {what}", folder, path, tree.packages(self.made, self.site_packages), changed, needs
        )


def together(*jobs: Callable[[], Run]) -> list[Run]:
    """Does two jobs at a time, in the order given; where one fails the others are ended."""
    with ThreadPoolExecutor(PARALLEL) as pool:
        futures = [pool.submit(job) for job in jobs]
        try:
            return [future.result() for future in futures]
        except BaseException:
            for future in futures:
                future.cancel()
            suite.stop_all()
            raise


def modules(paths: Sequence[str]) -> tuple[str, ...]:
    """The dotted names of those paths that can be imported."""
    parts = [path.removesuffix(".py").removesuffix("/__init__").split("/") for path in paths if path.endswith(".py")]
    return tuple(sorted(".".join(names) for names in parts if all(name.isidentifier() for name in names)))


def environment(carried: Carried) -> env.Environment:
    """The environment that holds the installed package of a pin.

    Raises:
        UsageError: none is known for this upstream.
        As `env.environment`.
    """
    return env.environment(*_requirements(carried), graft=graft(carried))


def graft(carried: Carried) -> Graft | None:
    """What stands in for a CPU build that this pin does not have; None where it has one."""
    version = carried.pin.version
    if carried.upstream.name != "vllm" or version not in grafts.BUILDS:
        return None
    return Graft(version, grafts.BUILDS[version], carried.repo, carried.base())


def requirements(carried: Carried) -> str:
    """What that environment is made of, as one text for evidence to cover."""
    more = [str(one) for one in [graft(carried)] if one]
    return " ".join((f"python=={env.PYTHON[0]}.{env.PYTHON[1]}", *_requirements(carried), *more))


def host(carried: Carried) -> dict[str, str]:
    """The packages that were asked for, with the versions that pip found."""
    names = [text.partition("==")[0] for text in _requirements(carried)]
    installed_ = environment(carried).installed
    return {name: installed_.get(name, "") for name in names}


def _requirements(carried: Carried) -> tuple[str, ...]:
    name = carried.upstream.name
    if name not in _ENVIRONMENTS:
        raise UsageError(f"no proof environment is known for {carried.name}", next="python -m patchline prove vllm")
    return _ENVIRONMENTS[name](carried.pin.version)
