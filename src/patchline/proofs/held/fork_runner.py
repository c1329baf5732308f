"""Runs tests once for every changed form of a module, each in a fork of a process that has the rest imported.

It runs inside the proof's environment and imports nothing of patchline. `job.json`, its one argument, says
what to do; one JSON line a trial goes to standard output. A fork imports the changed module itself, and so
all that imports it: what was imported before the fork was imported without it.

A failure has to happen twice to count: the test that failed runs once more, alone. Where it passes then, the first
failure was an accident (real network agents, a busy machine), and the trial begins anew.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from fork_imports import Finder, Guard, preload  # type: ignore[import-not-found]
from fork_tests import Order, ran, spread, verdict  # type: ignore[import-not-found]

_PDEATHSIG = 1  # PR_SET_PDEATHSIG of <sys/prctl.h>
_DIED = 3
"""A fork's status where pytest itself could not run."""
_ACCIDENTS = 3
"""So many failures of one trial that do not repeat, and the tests are not steady enough to say anything."""
_PATIENCE = 4
"""A trial's processor time is limited; a process that sleeps may take so many times as long."""
_CASES = 2
"""Cases of each test that a change is tried with of which it is known why none notices it."""
_TICKS = os.sysconf("SC_CLK_TCK")


class Runner:
    """Keeps some forks going, and learns which tests notice changes."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.job, self.scratch = job, Path(job["scratch"])
        self.seconds: dict[str, float] = {}
        self.killers: list[tuple[str, str]] = []
        """Function and test, the latest last."""
        self.left: list[dict[str, Any]] = []
        """Trials to come, the next one last."""
        self.running: dict[int, tuple[dict[str, Any], float]] = {}
        self.survived: list[dict[str, Any]] = []
        self.wide = False
        """Which tests run now."""

    def collect(self) -> dict[str, Any]:
        """Lets a fork import the tests; returns the report."""
        return self._without_a_change(-1, "--collect-only")

    def baseline(self) -> dict[str, Any]:
        """Runs the tests of this round without a change; returns the report."""
        report = self._without_a_change(-2)
        done = ran(report)
        wrong = {name: one for name, one in done.items() if one["outcome"] != "passed"}
        if wrong or not done:
            listed = "\n".join(f"  {name}: {one['outcome']}: {one['text'][:300]}" for name, one in wrong.items())
            raise SystemExit(
                f"these tests do not pass without a change:\n{listed or '  there is none that is not wide'}"
            )
        self.seconds = {name: one["seconds"] for name, one in done.items()}
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
        self.left = list(reversed(trials))
        limit = max(self.job["least"], 3 * sum(self.seconds.values()))
        while self.left or self.running:
            while self.left and len(self.running) < self.job["parallel"]:
                trial = self.left.pop()
                self.running[self._fork(trial, ("-x",))] = trial, time.monotonic()
            self._reap(limit)

    def _reap(self, limit: float) -> None:
        """Waits for one fork to end, or for one to take too long."""
        for pid, (trial, began) in list(self.running.items()):
            spent = time.monotonic() - began
            ended, status = os.waitpid(pid, os.WNOHANG)
            late = not ended and (spent > _PATIENCE * limit or _processor_time(pid) > limit)
            if late:
                status = self._kill(pid)
            if ended or late:
                del self.running[pid]
                self._end(pid)
                self._judge(trial, -1 if late else status, spent)
                return
        select.select([], [], [], 0.01)

    def _judge(self, trial: dict[str, Any], status: int, seconds: float) -> None:
        how, by = verdict(self._report(trial["number"]), status)
        if how == "broken":
            self._tell(trial, how, by, seconds)
        elif how != "survived":
            self._failed(trial, how, by, seconds)
        elif trial.get("failed"):
            self._accident(trial)
        elif not self.wide and self.job["wide"] and not trial["explained"]:
            self.survived.append(trial)
        else:
            self._tell(trial, how, by, seconds)

    def _failed(self, trial: dict[str, Any], how: str, by: str, seconds: float) -> None:
        if not trial.get("failed"):
            self.left.append(trial | {"failed": (how, by), "seconds": seconds})
            return
        if how == "failed" and by:
            self.killers.append((trial["function"], by))
        first_how, first_by = trial["failed"]
        self._tell(trial, first_how, first_by, trial["seconds"] + seconds)

    def _accident(self, trial: dict[str, Any]) -> None:
        how, by = trial["failed"]
        accidents = [*trial.get("accidents", []), f"{how}: {by}"]
        if len(accidents) >= _ACCIDENTS:
            listed = "\n".join(f"  {one}" for one in accidents)
            raise SystemExit(f"tests fail now and then, and say nothing of a change:\n{listed}")
        self.left.append(trial | {"failed": None, "accidents": accidents})

    def _tell(self, trial: dict[str, Any], how: str, by: str, seconds: float) -> None:
        log = self._log(trial["number"]) if how in ("died", "broken") else ""
        done = {"number": trial["number"], "how": how, "by": by, "seconds": round(seconds, 2), "log": log}
        print(json.dumps(done), flush=True)

    def _only(self, trial: dict[str, Any]) -> set[str] | None:
        """Which tests of this round a trial runs; None for all of them."""
        by = trial["failed"][1] if trial.get("failed") else ""
        if by in self.seconds:
            return {by}
        return set(spread(self.seconds, _CASES)) if trial.get("explained") else None

    def _order(self, function: str) -> list[str]:
        near = [test for where, test in reversed(self.killers) if where == function]
        far = [test for _, test in reversed(self.killers)]
        return list(dict.fromkeys([*near, *far, *spread(self.seconds)]))

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

        only = self._only(trial)
        files = [file for file in self.job["files"] if only is None or any(_file(name) == file for name in only)]
        assert files, f"no file has {only}"  # pytest would take whatever lies around
        plugins = [Order(order, self.wide, only, self.scratch / "imported.json")]
        return int(pytest.main([*self.job["pytest"], *arguments, *files], plugins=plugins))

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


def _file(test: str) -> str:
    return test.partition("::")[0]


def _processor_time(pid: int) -> float:
    """Seconds of a process and of its children that ended: a busy machine makes nothing too slow."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(map(int, fields[11:15])) / _TICKS


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
