"""Check series, patches, trailers and the tests that they name. Exit 8 when something is to be mended."""

from __future__ import annotations

import argparse

from patchline.cli import Outcome
from patchline.errors import Exit


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments; all series of the project are checked."""
    parser.add_argument("--news", metavar="BASE", help="changes to patches or builds since BASE must come with news")


def run(args: argparse.Namespace) -> Outcome:
    """Checks; see `series.lint` and `changelog.missing` for what is raised."""
    from patchline.project import find
    from patchline.series.lint import lint

    project = find()
    report = lint(project)
    if args.news:
        from patchline.changelog import missing

        told = missing.missing(project, missing.changed(project, args.news))
        report = report._replace(findings=[*report.findings, *told])
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
