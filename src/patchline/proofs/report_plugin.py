"""A pytest plugin that writes down what every test did; it runs inside the proof's environment.

It imports nothing of patchline: that is not installed there. `PATCHLINE_REPORT` names the file.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest


class Reporter:
    """Collects one record a test, and what was left out."""

    def __init__(self) -> None:
        self.tests: dict[str, dict[str, Any]] = {}
        self.deselected: list[str] = []
        self.errors: list[str] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Notes every collected test, with its mark."""
        for item in items:
            holds = [mark.kwargs.get("stock", "") for mark in item.iter_markers("holds")]
            unchanged = any(True for _ in item.iter_markers("unchanged"))
            self.tests[item.nodeid] = {
                "file": str(item.path),
                "holds": holds[0] if holds else None,
                "unchanged": unchanged,
                "outcome": "not run",
                "text": "",
                "seconds": 0.0,
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
        """Notes what a test did."""
        report = yield
        record = self.tests[item.nodeid]
        record["seconds"] += report.duration
        if hasattr(report, "wasxfail"):
            record["outcome"], record["text"] = "xfail", report.wasxfail
        elif report.when == "call" or report.outcome != "passed":
            outcome = (
                report.outcome if report.when == "call" else {"failed": "error"}.get(report.outcome, report.outcome)
            )
            record["outcome"] = outcome
            # The message of the exception, whole: pytest's own short form cuts it.
            record["text"] = f"{call.excinfo.typename}: {call.excinfo.value}" if call.excinfo else ""
        return report

    def pytest_sessionfinish(self) -> None:
        """Writes the report."""
        found = {
            name: getattr(sys.modules.get(name), "__file__", None) for name in os.environ["PATCHLINE_PACKAGES"].split()
        }
        report = {
            "tests": self.tests,
            "deselected": self.deselected,
            "errors": self.errors,
            "imported": found,
        }
        Path(os.environ["PATCHLINE_REPORT"]).write_text(json.dumps(report))


def pytest_configure(config: pytest.Config) -> None:
    """Adds the reporter and the two marks that a patch's tests carry."""
    config.addinivalue_line(
        "markers",
        "holds(stock): fails on stock with a text that matches the pattern `stock`, passes on the overlay",
    )
    config.addinivalue_line("markers", "unchanged: passes on stock and on the overlay")
    config.pluginmanager.register(Reporter(), "patchline-report")
