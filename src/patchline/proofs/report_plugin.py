"""A pytest plugin that writes down what every test did; it runs inside the proof's environment.

It imports nothing of patchline: that is not installed there. `PATCHLINE_REPORT` names the file,
`PATCHLINE_MODULES` the modules whose files are of interest.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

_WORSE = ("not run", "passed", "skipped", "xfail", "failed", "error")
_ACCIDENTS = (NameError, ImportError, AttributeError, SyntaxError)
"""What a misspelt test dies of: no reason for a failure, unless its pattern names the very type."""
_ANY_TEXTS = ("Zq: ", "Vx: 7")
"""Failures of no meaning, in the form that patterns are matched with."""


class Reporter:
    """Collects one record a test, and what was left out."""

    def __init__(self) -> None:
        self.tests: dict[str, dict[str, Any]] = {}
        self.session: pytest.Session | None = None
        self.deselected: list[str] = []
        self.errors: list[str] = []
        self.imported: dict[str, set[str]] = {name: set() for name in os.environ["PATCHLINE_MODULES"].split()}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Notes every collected test, with its mark."""
        self._look()
        for item in items:
            holds, fault = _holds(item)
            self.tests[item.nodeid] = {
                "holds": holds,
                "unchanged": any(True for _ in item.iter_markers("unchanged")),
                "fault": fault,
                "outcome": "not run",
                "text": "",
                "failures": [],
                "seconds": 0.0,
                "properties": {},
                "wide": any(True for _ in item.iter_markers("wide")),
            }

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        """Notes what is left out."""
        self.deselected += [item.nodeid for item in items]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Notes files that cannot be collected."""
        if report.failed:
            self.errors.append(f"{report.nodeid}: {report.longreprtext}")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
        """Notes what a test, or a part of it, did; subtests come through here as well."""
        report = yield
        self._look()
        record = self.tests[item.nodeid]
        record["seconds"] += report.duration
        record["properties"] |= {str(name): str(value) for name, value in item.user_properties}
        # The message of the exception, whole: pytest's own short form cuts it.
        text = _text(call.excinfo.value) if call.excinfo else ""
        if hasattr(report, "wasxfail"):
            self._note(item.nodeid, "xfail", report.wasxfail)
        elif report.when == "call" or report.outcome != "passed":
            self._note(item.nodeid, _outcome(report), text)
            if report.failed and call.excinfo:
                accident = call.excinfo.typename if isinstance(call.excinfo.value, _ACCIDENTS) else ""
                self.tests[item.nodeid]["failures"].append([text, accident])
        return report

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Notes a failure that something else made of a report after it was made."""
        if report.failed:
            self._note(report.nodeid, _outcome(report), report.longreprtext)

    def _note(self, name: str, outcome: str, text: str) -> None:
        """A record only ever gets worse: a part that passes does not mend one that failed."""
        record = self.tests[name]
        if _WORSE.index(outcome) > _WORSE.index(record["outcome"]):
            record["outcome"], record["text"] = outcome, text

    def _look(self) -> None:
        for name, files in self.imported.items():
            file = getattr(sys.modules.get(name), "__file__", None)
            if isinstance(file, str):
                files.add(file)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Writes the report."""
        self._look()
        self.session = session
        report = {
            "tests": self.tests,
            "deselected": self.deselected,
            "errors": self.errors,
            "imported": {name: sorted(files) for name, files in self.imported.items()},
            "used": _used(session.config.rootpath),
        }
        Path(os.environ["PATCHLINE_REPORT"]).write_text(json.dumps(report))

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """Ends the process: what threads and libraries do to an interpreter that goes is no test's outcome."""
        if self.session:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(self.session.exitstatus)


def _used(root: Path) -> list[str]:
    """The files of modules that came from the project, as paths from its root."""
    files = (getattr(module, "__file__", None) for module in [*sys.modules.values()])
    there = {file for file in files if isinstance(file, str) and file.startswith(f"{root}{os.sep}")}
    return sorted(Path(file).relative_to(root).as_posix() for file in there)


def _text(error: BaseException) -> str:
    """Type and message of an exception, and of those that it groups."""
    inner = [_text(one) for one in error.exceptions] if isinstance(error, BaseExceptionGroup) else []
    return " | ".join([f"{type(error).__name__}: {error}", *inner])


def _outcome(report: pytest.TestReport) -> str:
    return "error" if report.failed and report.when != "call" else report.outcome


def _holds(item: pytest.Item) -> tuple[str | None, str]:
    """The pattern of a test's mark `holds`, None where it has none, and what is wrong with it."""
    marks = list(item.iter_markers("holds"))
    if not marks:
        return None, ""
    pattern = marks[0].kwargs.get("stock")
    if len(marks) > 1 or marks[0].args or list(marks[0].kwargs) != ["stock"] or not isinstance(pattern, str):
        return "", "its mark is not holds(stock=…) with one pattern, once"
    return pattern, _pattern_fault(pattern)


def _pattern_fault(pattern: str) -> str:
    try:
        compiled = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as bad:
        return f"its pattern {pattern!r} is no regular expression: {bad}"
    if not pattern.strip() or compiled.search("") or all(compiled.search(text) for text in _ANY_TEXTS):
        return f"its pattern {pattern!r} matches any failure"
    return ""


def pytest_configure(config: pytest.Config) -> None:
    """Adds the reporter and the two marks that a patch's tests carry."""
    config.addinivalue_line(
        "markers",
        "holds(stock): fails on stock with a text that matches the pattern `stock`, passes on the overlay",
    )
    config.addinivalue_line("markers", "unchanged: passes on stock and on the overlay")
    config.addinivalue_line("markers", "wide: sweeps over many inputs; spared where a narrower test speaks already")
    config.pluginmanager.register(Reporter(), "patchline-report")
