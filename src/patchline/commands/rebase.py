"""Say what each patch is on another version, and write the rebased series beside the old one.

Without conflicts the series appears whole in patches/UPSTREAM/VERSION/. With one, a tree to resolve
is left in work/: change its files, then --continue. Exit 0: every patch has its place. 3: a person
has to look. Anything else is an error, as the table of exit codes says.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from patchline.cli import Outcome
from patchline.errors import Exit, UsageError


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("upstream", nargs="?", default="vllm", help="vllm, dynamo, or NAME==VERSION (default: vllm)")
    parser.add_argument("--onto", default="", metavar="VERSION", help="the pinned version to take the series to")
    parser.add_argument("--all", action="store_true", help="verdicts on every later pinned version; writes no series")
    parser.add_argument("--dry-run", action="store_true", help="with --onto: verdicts only")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write series to DIR/UPSTREAM/VERSION, not to patches/")
    parser.add_argument("--report", type=Path, metavar="DIR", help="write report.md, report.json and junit.xml there")
    parser.add_argument("--annotate", action="store_true", help="print what needs hands as GitHub's annotations")
    parser.add_argument("--continue", action="store_true", dest="again", help="take the resolved tree and go on")
    parser.add_argument("--abort", action="store_true", help="forget the rebase that waits")
    parser.add_argument("--status", action="store_true", help="show the rebase that waits, with recorded resolutions")
    parser.add_argument("--take", default="", metavar="KEY", help="resolve a conflict in the tree as it is recorded")
    parser.add_argument(
        "--drop-hunk", action="append", default=[], metavar="FILE:NUMBER", help="this hunk may go in the resolution"
    )


def run(args: argparse.Namespace) -> Outcome:
    """Rebases; see `rebase.onto` for what is raised."""
    chosen = [name for name in ("all", "again", "abort", "status", "take") if getattr(args, name)]
    if len(chosen) > 1 or (args.all and args.onto) or not (chosen or args.onto):
        raise UsageError(
            "give one of --onto VERSION, --all, --continue, --abort, --status and --take KEY",
            next="python -m patchline rebase --help",
        )
    if args.drop_hunk and not args.again:
        raise UsageError("--drop-hunk goes with --continue", next="python -m patchline rebase --help")
    if chosen and not args.all:
        return _waiting(args, chosen[0])
    return _verdicts(args)


def _verdicts(args: argparse.Namespace) -> Outcome:
    from patchline.rebase import onto
    from patchline.rebase.course import Progress
    from patchline.rebase.targets import target, targets
    from patchline.series.carried import carried

    old = carried(args.upstream)
    if args.all or args.dry_run:
        judge = onto.judge_of(old)
        found = targets(old) if args.all else [target(old, args.onto)]
        done = []
        for new in found:
            rebased = onto.verdicts(judge, old, new)
            one = Progress(old, new, [each.judged for each in rebased])
            done.append(onto.offered(judge, one, rebased, args.out) if args.out else one)
        return _outcome(args, done)
    new = target(old, args.onto)
    folder = args.out / old.upstream.name / new.pin.version if args.out else None
    return _outcome(args, [onto.rebase(old, new, folder=folder)])


def _waiting(args: argparse.Namespace, verb: str) -> Outcome:
    from patchline.project import find
    from patchline.rebase import hands, report

    project = find()
    if verb == "abort":
        room = hands.abort(project, args.upstream, args.onto)
        return Outcome({"aborted": str(room)}, f"forgotten: {room}")
    if verb == "take":
        file, line = hands.take(project, args.upstream, args.take, args.onto)
        text = f"{file}:{line}: resolved as recorded; look at it, then: "
        text += f"python -m patchline rebase {args.upstream} --continue"
        return Outcome({"file": str(file), "line": line}, text)
    if verb == "status":
        found = hands.status(project, args.upstream, args.onto)
        return Outcome(report.data(found), report.text(found), Exit.DOES_NOT_APPLY)
    return _outcome(args, [hands.again(project, args.upstream, args.onto, args.drop_hunk)])


def _outcome(args: argparse.Namespace, done: list[Any]) -> Outcome:
    from patchline.rebase import report

    data = {"versions": [report.data(one) for one in done]}
    shown = "\n\n".join(report.text(one) for one in done)
    if args.annotate:
        shown = "\n".join([shown, *report.annotated(done)])
    if args.report:
        report.write(args.report, done)
    return Outcome(data, shown, Exit.DOES_NOT_APPLY if any(one.needs_hands for one in done) else Exit.DONE)
