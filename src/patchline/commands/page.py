"""Write the divergence page: one static HTML file that opens from disk and needs no network.

Before that, the tree of every carried series is audited, and each patch judged on later pinned versions; pins that are
not here yet are brought for it. With `--no-look` only what is given is used.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from patchline.cli import Outcome
from patchline.files import write_whole
from patchline.project import find


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("--out", type=Path, metavar="DIR", help="where index.html goes (default: build/page)")
    parser.add_argument(
        "--audit",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="what `audit --json` printed; again for more",
    )
    parser.add_argument(
        "--verdicts",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="what `rebase --json` printed; repeatable",
    )

    parser.add_argument("--no-look", action="store_true", help="audit no tree and judge no patch for this page")


def run(args: argparse.Namespace) -> Outcome:
    """Writes it, whole; see `render.page` and `given` for what is raised."""
    from patchline.changelog.entries import known
    from patchline.changelog.words import number
    from patchline.page import given, render

    project = find()
    audits = [one for path in args.audit for one in given.audits(path)]
    verdicts = [one for path in args.verdicts for one in given.verdicts(path)]
    read = known(project)
    if not args.no_look:
        from patchline.page import looked

        subjects = {one.subject for one in audits}  # what was given stands for what would be looked for
        audits = [*(one for one in looked.audits(project) if one.subject not in subjects), *audits]
        verdicts = [*looked.verdicts(project), *verdicts]
    made = render.page(project, verdicts=verdicts, audits=audits, read=read)
    path = (args.out or project.root / "build" / "page") / render.FILE
    write_whole(path, made)
    findings = sum(len(audit.findings) for audit in audits)
    data = {
        "file": str(path),
        "bytes": len(made),
        "patches": len(read.entries),
        "audited": [audit.subject for audit in audits],
        "findings": findings,
        "verdicts": len(verdicts),
    }
    said = f"{findings} unexplained" if audits else "not audited"
    return Outcome(data, f"{path}: {number(len(read.entries), 'patch', 'patches')}, {said}, {len(made):,} bytes")
