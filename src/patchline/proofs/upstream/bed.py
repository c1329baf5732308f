"""Where upstream's tests run: its own test files from the verified pin, a hub, and the package of one tree."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from patchline.errors import SourceMismatch
from patchline.proofs.bench import Bench, modules
from patchline.proofs.tree import tops
from patchline.proofs.upstream import hub, suites
from patchline.proofs.upstream.process import Place
from patchline.proofs.upstream.suites import Suites
from patchline.series.carried import Carried
from patchline.series.trees import CommitTree

TESTS = "tests"
_CONFIGURATIONS = ("pytest.toml", "pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
"""Where pytest looks for its configuration, in its order; upstream's own is heard."""

_PLUGIN = Path(__file__).with_name("plugin.py")
_KEPT = ("PATH", "SSL_CERT_FILE", "SSL_CERT_DIR")


class Bed:
    """The tests of one pin, and the trees that they run on."""

    def __init__(self, carried: Carried, bench: Bench, chosen: Suites, limit: float) -> None:
        self.carried, self.bench, self.chosen, self.limit = carried, bench, chosen, limit
        self._tree = CommitTree(carried.repo, bench.made.base)
        self._paths = self._tree.below(TESTS)
        suites.check(chosen, suites.path_of(carried.project, carried.name), self._paths)
        self._tree.load([*self._paths, *_CONFIGURATIONS])

    @contextmanager
    def place(self, what: str, folder: Path) -> Iterator[Place]:
        """Everything that a run on the tree `folder` needs, made anew: no run sees what another one left."""
        with tempfile.TemporaryDirectory(prefix="patchline-", ignore_cleanup_errors=True) as name:
            scratch = Path(name).resolve()
            for part in ("home", "tmp", "plugin"):
                (scratch / part).mkdir()
            (scratch / "plugin" / "upstream_plugin.py").write_bytes(_PLUGIN.read_bytes())
            env = self._environment(folder, scratch)
            hub.write(self.chosen.hub, scratch / "hub", self.bench.python, env)
            yield Place(
                f"{self.carried.name}'s own tests on {what}",
                folder,
                (*tops(self.bench.made),),
                self._modules(folder),
                self.bench.python,
                scratch / "source",
                self._write(scratch / "source"),
                scratch,
                env,
                self.limit,
            )

    def _modules(self, folder: Path) -> tuple[str, ...]:
        """The modules that the series changes, as far as they are in this tree."""
        stock = folder == self.bench.site_packages
        return modules([change.path for change in self.bench.made.changes if (change.old if stock else change.new)])

    def _environment(self, folder: Path, scratch: Path) -> dict[str, str]:
        places = [] if folder == self.bench.site_packages else [folder]
        return {name: os.environ[name] for name in _KEPT if name in os.environ} | {
            "PYTHONPATH": os.pathsep.join(map(str, [*places, scratch / "plugin"])),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
            "HOME": str(scratch / "home"),
            "TMPDIR": str(scratch / "tmp"),
            "HF_HOME": str(scratch / "hub"),
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "LC_ALL": "C.UTF-8",
        }

    def _write(self, folder: Path) -> Path:
        """Writes the tests and pytest's configuration into `folder`; returns the latter's path."""
        for path in (*self._paths, *_CONFIGURATIONS):
            entry = self._tree.entry(path)
            if entry is None:
                continue
            if entry.mode not in (0o100644, 0o100755):
                raise SourceMismatch(f"{path} of {self.carried.name} is no regular file", where=str(self.carried.repo))
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(entry.data)
            file.chmod(0o755 if entry.mode & 0o100 else 0o644)
        there = [folder / name for name in _CONFIGURATIONS if (folder / name).exists()]
        return next(iter(there), Path(os.devnull))
