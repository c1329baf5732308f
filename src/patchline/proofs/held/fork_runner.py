"""Runs tests once for every changed form of a module, each in a fork of a process that has the rest imported.

It runs inside the proof's environment and imports nothing of patchline. `job.json`, its one argument, says
what to do; one JSON line a trial goes to standard output. A fork imports the changed module itself, and so
all that imports it: what was imported before the fork was imported without it.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import select
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

_PDEATHSIG = 1  # PR_SET_PDEATHSIG of <sys/prctl.h>
_DIED = 3
"""A fork's status where pytest itself could not run."""


class _Later(BaseException):
    """A module that only forks may import. No `except Exception` around an import may swallow it."""


class Guard(importlib.abc.MetaPathFinder):
    """Keeps the changed modules, and so what imports them, out of this process."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = frozenset(names)

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> None:  # noqa: ARG002
        """Refuses the names; the other finders answer for the rest."""
        if name in self.names:
            raise _Later(name)


class _Changed(importlib.machinery.SourceFileLoader):
    """Loads one module from other bytes than its file's; byte-code is neither read nor written."""

    def __init__(self, name: str, file: str, data: bytes) -> None:
        super().__init__(name, file)
        self.data = data

    def get_data(self, path: str) -> bytes:
        return self.data if os.fspath(path) == self.path else super().get_data(path)

    def path_stats(self, path: str) -> Any:
        raise OSError(path)


class Finder(importlib.abc.MetaPathFinder):
    """Finds the changed module."""

    def __init__(self, name: str, file: str, data: bytes) -> None:
        self.name, self.loader = name, _Changed(name, file, data)

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> Any:  # noqa: ARG002
        """Answers for that one name."""
        if name != self.name:
            return None
        folder = [os.path.dirname(self.loader.path)] if self.loader.path.endswith("__init__.py") else None
        return importlib.util.spec_from_file_location(
            name, self.loader.path, loader=self.loader, submodule_search_locations=folder
        )


class Order:
    """A pytest plugin: only wide tests, or only the others; those that are likeliest to fail come first."""

    def __init__(self, order: list[str], wide: bool, imported: Path) -> None:
        self.ranks, self.wide, self.imported = {name: rank for rank, name in enumerate(order)}, wide, imported

    def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> None:
        """Chooses and sorts; pytest calls it after the reporter has seen all."""
        self.imported.write_text(json.dumps(list(sys.modules)))
        left_out = [item for item in items if bool(item.get_closest_marker("wide")) != self.wide]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
        items.sort(key=lambda item: self.ranks.get(item.nodeid, len(self.ranks)))


def preload(names: list[str], guard: Guard) -> int:
    """Imports what a run imports, as far as that goes without the guarded modules; returns how many came."""
    sys.meta_path.insert(0, guard)
    before = len(sys.modules)
    for name in names:
        if name not in sys.modules and not name.startswith(("_pytest", "__main__")):
            with suppress(Exception, _Later):  # a fork imports it, or fails to, by itself
                importlib.import_module(name)
    sys.meta_path.remove(guard)
    assert not guard.names & sys.modules.keys()
    return len(sys.modules) - before


class Runner:
    """Keeps some forks going, and learns which tests notice changes."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.job, self.scratch = job, Path(job["scratch"])
        self.seconds: dict[str, float] = {}
        self.killers: list[tuple[str, str]] = []
        """Function and test, the latest last."""
        self.running: dict[int, tuple[dict[str, Any], float, float]] = {}
        self.survived: list[dict[str, Any]] = []
        self.wide = False
        """Which tests run now."""

    def collect(self) -> dict[str, Any]:
        """Lets a fork import the tests; returns the report."""
        return self._without_a_change(-1, "--collect-only")

    def baseline(self) -> dict[str, Any]:
        """Runs the tests of this round without a change; returns the report."""
        report = self._without_a_change(-2)
        ran = _ran(report)
        wrong = {name: one for name, one in ran.items() if one["outcome"] != "passed"}
        if wrong or not ran:
            listed = "\n".join(f"  {name}: {one['outcome']}: {one['text'][:300]}" for name, one in wrong.items())
            raise SystemExit(
                f"these tests do not pass without a change:\n{listed or '  there is none that is not wide'}"
            )
        self.seconds = {name: one["seconds"] for name, one in ran.items()}
        return report

    def _without_a_change(self, number: int, *arguments: str) -> dict[str, Any]:
        pid = self._fork({"number": number, "function": ""}, arguments)
        self._wait_for(pid, time.monotonic() + self.job["limit"])
        report = self._report(number)
        if report is None or report["errors"] or not report["tests"]:
            raise SystemExit(f"the tests did not run in a fork:\n{self._log(number)}")
        return report

    def all(self, trials: list[dict[str, Any]]) -> None:
        """Runs the tests of this round on every trial."""
        left = list(reversed(trials))
        limit = max(self.job["least"], 3 * sum(self.seconds.values()))
        while left or self.running:
            while left and len(self.running) < self.job["parallel"]:
                trial = left.pop()
                now = time.monotonic()
                self.running[self._fork(trial, ("-x",))] = trial, now, now + limit
            self._reap()

    def _reap(self) -> None:
        """Waits for one fork to end, or for one to take too long."""
        for pid, (trial, began, until) in list(self.running.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            late = not ended and time.monotonic() > until
            if late:
                status = self._kill(pid)
            if ended or late:
                del self.running[pid]
                self._end(pid)
                self._tell(trial, -1 if late else status, time.monotonic() - began)
                return
        select.select([], [], [], 0.01)

    def _tell(self, trial: dict[str, Any], status: int, seconds: float) -> None:
        report = self._report(trial["number"])
        how, by = _verdict(report, status)
        if how == "failed":
            self.killers.append((trial["function"], by))
        elif how == "survived" and not self.wide and self.job["wide"] and not trial["explained"]:
            self.survived.append(trial)
            return
        log = self._log(trial["number"]) if how in ("died", "broken") else ""
        done = {"number": trial["number"], "how": how, "by": by, "seconds": round(seconds, 2), "log": log}
        print(json.dumps(done), flush=True)

    def _order(self, function: str) -> list[str]:
        near = [test for where, test in reversed(self.killers) if where == function]
        far = [test for _, test in reversed(self.killers)]
        return list(dict.fromkeys([*near, *far, *_spread(self.seconds)]))

    def _fork(self, trial: dict[str, Any], arguments: Sequence[str]) -> int:
        order = self._order(trial["function"])
        sys.stdout.flush()
        pid = os.fork()
        if pid:
            return pid
        try:
            status = self._child(trial, order, arguments)
        except BaseException:  # noqa: BLE001 - a fork must never go on as its parent
            traceback.print_exc()
            status = _DIED
        sys.stderr.flush()
        os._exit(status)

    def _child(self, trial: dict[str, Any], order: list[str], arguments: Sequence[str]) -> int:
        os.setsid()
        ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)  # a fork must not outlive its parent
        log = os.open(self.scratch / f"{trial['number']}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ["PATCHLINE_REPORT"] = str(self._report_path(trial["number"]))
        if "path" in trial:
            data = Path(trial["path"]).read_bytes()
            after = trial["after"].encode(errors="surrogateescape")
            data = data[: trial["start"]] + after + data[trial["end"] :]
            compile(data, trial["path"], "exec", dont_inherit=True)
            sys.meta_path.insert(0, Finder(trial["module"], trial["path"], data))
        import pytest

        plugins = [Order(order, self.wide, self.scratch / "imported.json")]
        return int(pytest.main([*self.job["pytest"], *arguments, *self.job["files"]], plugins=plugins))

    def _report_path(self, number: int) -> Path:
        return self.scratch / f"{number}.json"

    def _report(self, number: int) -> dict[str, Any] | None:
        try:
            report: dict[str, Any] = json.loads(self._report_path(number).read_bytes())
        except FileNotFoundError:
            return None
        return report

    def _log(self, number: int) -> str:
        text = (self.scratch / f"{number}.log").read_text(errors="replace")
        return "\n".join(text.splitlines()[-20:])

    def _wait_for(self, pid: int, until: float) -> None:
        while not os.waitpid(pid, os.WNOHANG)[0]:
            if time.monotonic() > until:
                self._kill(pid)
                break
            time.sleep(0.05)
        self._end(pid)

    def _kill(self, pid: int) -> int:
        self._end(pid)
        os.kill(pid, signal.SIGKILL)  # it may not lead its group yet
        return os.waitpid(pid, 0)[1]

    def _end(self, pid: int) -> None:
        """Ends what a fork started; it led a group of its own."""
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)


def _verdict(report: dict[str, Any] | None, status: int) -> tuple[str, str]:
    """What became of a trial, and the first test that failed."""
    if status == -1:
        return "too slow", ""
    if report is None:
        return ("broken" if os.WIFEXITED(status) else "died"), ""
    if report["errors"]:
        return "failed", report["errors"][0].partition(":")[0]
    ran = _ran(report)
    for name, one in ran.items():
        if one["outcome"] in ("failed", "error"):
            return "failed", name
    passed = all(one["outcome"] == "passed" for one in ran.values())
    return ("survived" if ran and passed and status == 0 else "broken"), ""


def _spread(seconds: dict[str, float]) -> list[str]:
    """The quickest case of every test, then the next one of every test, and so on: cases of one notice the same."""
    cases: Counter[str] = Counter()
    ranks: dict[str, tuple[int, float]] = {}
    for name in sorted(seconds, key=lambda name: seconds[name]):
        function = name.partition("[")[0]
        ranks[name] = cases[function], seconds[name]
        cases[function] += 1
    return sorted(ranks, key=lambda name: ranks[name])


def _ran(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The tests that were asked for."""
    left_out = {*report["deselected"]}
    return {name: one for name, one in report["tests"].items() if name not in left_out}


def main() -> None:
    """Every trial with the tests that are not wide; then those that survived, and should not, with the wide ones."""
    job = json.loads(Path(sys.argv[1]).read_bytes())
    runner = Runner(job)
    first = runner.collect()
    job["wide"] = any(one["wide"] for one in first["tests"].values())
    preload(json.loads((runner.scratch / "imported.json").read_bytes()), Guard(job["modules"]))
    gc.collect()
    gc.freeze()  # else each fork walks through all of vLLM, and so copies it: half a second
    second = runner.baseline()
    if first["tests"].keys() != second["tests"].keys():
        raise SystemExit("a fork that has all imported collects other tests than one that has not")
    for report in (first, second):
        print(json.dumps({"imported": report["imported"]}), flush=True)
    runner.all(job["trials"])
    if runner.survived:
        runner.wide = True
        runner.baseline()
        runner.all(runner.survived)


if __name__ == "__main__":
    main()
