"""Check series, patches, trailers and the tests that they name. Exit 8 when something is to be mended."""

from __future__ import annotations

import argparse

from patchline.cli import Outcome
from patchline.errors import Exit


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds no arguments: all series of the project are checked."""


def run(_: argparse.Namespace) -> Outcome:
    """Checks; see `series.lint` for what is raised."""
    from patchline.project import find
    from patchline.series.lint import lint

    report = lint(find())
    lines = [f"{finding.where}: {finding.what}" for finding in report.findings]
    counted = f"checked {report.series} series, {report.patches} patches, {report.hunks} hunks"
    counted += f": {len(report.findings)} findings"
    data = {
        "series": report.series,
        "patches": report.patches,
        "hunks": report.hunks,
        "findings": [finding._asdict() for finding in report.findings],
    }
    return Outcome(data, "\n".join([*lines, counted]), Exit.FINDINGS if report.findings else Exit.DONE)
