"""Write SCICOM_CHANGELOGS.md from patches, evidence, releases and news. Exit 8 where something was not told."""

from __future__ import annotations

import argparse
from typing import Any

from patchline.changelog import entries, generate, missing, words
from patchline.changelog.entries import Entry
from patchline.cli import Outcome
from patchline.errors import Exit
from patchline.files import write_whole
from patchline.project import find
from patchline.series.lint import Finding


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("--check", action="store_true", help="write nothing; exit 8 where the file would be another")


def run(args: argparse.Namespace) -> Outcome:
    """Writes or checks it; see `entries.known` for what is raised."""
    project = find()
    known = entries.known(project)
    made, path = generate.text(known).encode(), generate.path_of(project)
    current = path.is_file() and path.read_bytes() == made
    findings = missing.untold(project)
    if args.check and not current:
        findings.append(Finding(generate.FILE, "not what would be generated; run: python -m patchline changelog"))
    if not args.check and not current:
        write_whole(path, made)
    data = {
        "file": str(path),
        "written": not args.check and not current,
        "patches": [_data(entry) for entry in known.entries],
        "news": len(known.news),
        "releases": [one.tag for one in known.releases],
        "findings": [finding._asdict() for finding in findings],
    }
    return Outcome(data, _text(args.check, data, findings), Exit.FINDINGS if findings else Exit.DONE)


def _data(entry: Entry) -> dict[str, Any]:
    return {
        "pin": entry.pin,
        "patch": entry.path,
        "subject": entry.patch.header.subject,
        "since": entry.since,
        "files": [one._asdict() for one in entry.files],
        "forwarded": entry.trailer("forwarded"),
        "drop_when": entry.trailer("drop-when"),
        "tests": entry.tests,
        "proof": entry.proof._asdict() if entry.proof else None,
        "held": entry.held._asdict() if entry.held else None,
        "gates": [gate._asdict() for gate in entry.gates],
        "first_release": entry.release.tag if entry.release else None,
    }


def _text(check: bool, data: dict[str, Any], findings: list[Finding]) -> str:
    counted = f"{words.number(len(data['patches']), 'carried patch', 'carried patches')}, "
    counted += words.number(data["news"], "news fragment")
    did = "checked" if check else "wrote" if data["written"] else "is as it was:"
    head = f"{did} {generate.FILE}: {counted}" if did != "is as it was:" else f"{generate.FILE} {did} {counted}"
    return "\n".join([*(f"{one.where}: {one.what}" for one in findings), head])
