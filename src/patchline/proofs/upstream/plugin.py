"""A pytest plugin that tells, line by line, what every test did; it runs inside the proof's environment.

It imports nothing of patchline: that is not installed there. `PATCHLINE_REPORT` names the file to which one
JSON object a line is added at once, so that a run that dies or hangs has told where. `PATCHLINE_MODULES` names
the modules whose files are of interest.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from typing import Any

import pytest

_WORSE = ("passed", "skipped", "xpassed", "xfailed", "failed", "error")
_LONGEST = 300


class Reporter:
    """Writes lines: `file`, `collected`, `refused`, `begun`, `test`, `end`."""

    def __init__(self) -> None:
        self._out = open(os.environ["PATCHLINE_REPORT"], "a", buffering=1)  # noqa: SIM115 - open to the end
        self._process = os.getpid()
        self._now: dict[str, Any] = {}
        self._imported: dict[str, set[str]] = {name: set() for name in os.environ["PATCHLINE_MODULES"].split()}

    def _tell(self, **what: Any) -> None:
        if os.getpid() == self._process:  # upstream's tests fork
            self._out.write(json.dumps(what) + "\n")

    def pytest_collectstart(self, collector: pytest.Collector) -> None:
        """Tells the file that is imported next: it may never come back."""
        if isinstance(collector, pytest.Module):
            self._tell(file=collector.nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Tells files that cannot be collected, and those that skip themselves."""
        if report.failed:
            self._tell(refused=report.nodeid, text=_first_line(report.longrepr))
        elif report.skipped:
            self._tell(test=f"{report.nodeid}::", outcome="skipped", text=_first_line(report.longrepr), seconds=0.0)

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        """Tells what is left out."""
        for item in items:
            self._tell(test=item.nodeid, outcome="deselected", text="", seconds=0.0)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Tells what is going to run."""
        _settle()
        self._tell(collected=[item.nodeid for item in session.items], imported=self._modules())

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Tells that a test begins."""
        self._now = {"test": nodeid, "outcome": "passed", "text": "", "seconds": 0.0}
        self._tell(begun=nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keeps the worst of what set-up, call, subtests and tear-down say, after all other plugins."""
        outcome = _outcome(report)
        self._now["seconds"] += report.duration
        if _WORSE.index(outcome) > _WORSE.index(self._now["outcome"]):
            self._now |= {"outcome": outcome, "text": _first_line(report.longrepr)}

    def pytest_runtest_logfinish(self) -> None:
        """Tells how the test ended."""
        self._tell(**self._now)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Tells that all is done, and from which files the modules came."""
        self._tell(end=int(exitstatus), imported=self._modules())

    def _modules(self) -> dict[str, list[str]]:
        for name, files in self._imported.items():
            file = getattr(sys.modules.get(name), "__file__", None)
            if isinstance(file, str):
                files.add(file)
        return {name: sorted(files) for name, files in self._imported.items()}


def _settle() -> None:
    """Takes what the imports made out of the collector's sight.

    vLLM ends each of its tests with a whole collection and unfreezes all objects before it: most of a second a
    test, over a million objects that no test made.
    """
    gc.collect()
    gc.freeze()
    gc.unfreeze = lambda: None


def _outcome(report: pytest.TestReport) -> str:
    if hasattr(report, "wasxfail"):
        return {"passed": "xpassed", "skipped": "xfailed"}.get(report.outcome, "failed")
    return "error" if report.failed and report.when != "call" else report.outcome


def _first_line(longrepr: Any) -> str:
    """What went wrong, on one line."""
    if isinstance(longrepr, tuple):  # of a skip: file, line, reason
        text = str(longrepr[2])
    else:
        crash = getattr(longrepr, "reprcrash", None)
        text = crash.message if crash else _last(str(longrepr or ""))
    lines = text.strip().splitlines() or [""]
    return lines[0][:_LONGEST]


def _last(text: str) -> str:
    """Of an error in collection: the line that pytest marks, else the last."""
    lines = [line for line in text.splitlines() if line.strip()]
    marked = [line[1:].strip() for line in lines if line.startswith("E ")]
    return marked[-1] if marked else (lines or [""])[-1]


def pytest_configure(config: pytest.Config) -> None:
    """Adds the reporter."""
    config.pluginmanager.register(Reporter(), "patchline-upstream-report")
