"""Say what each patch is on another version, and write the rebased series beside the old one.

Without conflicts the series appears whole in patches/UPSTREAM/VERSION/, with its news in changelog/. With one, a tree
to resolve is left in work/: change its files, then --continue. With --report DIR all that a CI job shows and
keeps lies in DIR: report.md, report.json, junit.xml, annotations.txt (GitHub's), code-quality.json
(GitLab's), with --all the rebased series in DIR/series, and needs-hands where a person has to look.
Exit 0: every patch has its place. 3: a person has to look. Anything else is an error, as the table
of exit codes says.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from patchline.cli import Outcome
from patchline.errors import Exit, UsageError

if TYPE_CHECKING:
    from patchline.rebase.course import Progress
    from patchline.rebase.judge import Behaves
    from patchline.series.carried import Carried


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument(
        "upstream",
        nargs="?",
        default="",
        help="vllm, dynamo, or NAME==VERSION (default: vllm; with --all every series)",
    )
    parser.add_argument(
        "--onto", default="", metavar="VERSION", help="the pinned version, or for git pins the ref, to go to"
    )
    parser.add_argument("--all", action="store_true", help="verdicts on every later pinned version; writes no series")
    parser.add_argument("--dry-run", action="store_true", help="with --onto: verdicts only")
    parser.add_argument(
        "--run-tests",
        action="store_true",
        help="run each patch's tests on stock of the version: not-needed if they pass",
    )
    parser.add_argument("--limit", type=float, default=0.0, metavar="SECONDS", help="for one patch's tests on stock")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write series to DIR/UPSTREAM/VERSION, not to patches/")
    parser.add_argument("--report", type=Path, metavar="DIR", help="write what a CI job shows and keeps there")
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
    if args.report:
        _begin(args.report)
    chosen = [name for name in ("all", "again", "abort", "status", "take") if getattr(args, name)]
    if len(chosen) > 1 or (args.all and args.onto) or not (chosen or args.onto):
        raise UsageError(
            "give one of --onto VERSION, --all, --continue, --abort, --status and --take KEY",
            next="python -m patchline rebase --help",
        )
    args.upstream = args.upstream or ("" if args.all else "vllm")
    if (args.run_tests and chosen not in ([], ["all"], ["again"])) or (args.limit and not args.run_tests):
        raise UsageError(
            "--run-tests goes with --onto, --all or --continue, and --limit with --run-tests",
            next="python -m patchline rebase --help",
        )
    if args.drop_hunk and not args.again:
        raise UsageError("--drop-hunk goes with --continue", next="python -m patchline rebase --help")
    if chosen and not args.all:
        return _waiting(args, chosen[0])
    return _verdicts(args)


def _begin(folder: Path) -> None:
    from patchline.rebase import report

    report.begin(folder)


def _verdicts(args: argparse.Namespace) -> Outcome:
    from patchline.rebase import onto
    from patchline.rebase.targets import target
    from patchline.series.carried import carried

    if args.all:
        return _all(args)
    old = carried(args.upstream)
    new = target(old, args.onto)
    if args.dry_run:
        return _outcome(args, _judged(args, old, [new], args.out))
    folder = args.out / old.upstream.name / new.pin.version if args.out else None
    return _outcome(args, [onto.rebase(old, new, _behaves(args, old, new), folder)])


def _all(args: argparse.Namespace) -> Outcome:
    from patchline.project import find
    from patchline.rebase import report
    from patchline.rebase.targets import matrix
    from patchline.series.carried import carried, every

    found = matrix([carried(args.upstream)] if args.upstream else every(find()))
    out = args.out or (args.report / report.SERIES if args.report else None)
    done = [one for old, later in found.rows for one in _judged(args, old, later, out)]
    return _outcome(args, done, found.notes)


def _behaves(args: argparse.Namespace, old: Carried, new: Carried) -> Behaves | None:
    """What runs the patches' tests on stock of the new version, where that is asked for."""
    if not args.run_tests:
        return None
    from patchline.proofs.prove import LIMIT
    from patchline.rebase.behaviour import OnStock

    return OnStock(old, new, limit=args.limit or LIMIT)


def _judged(args: argparse.Namespace, old: Carried, later: list[Carried], out: Path | None) -> list[Progress]:
    """The verdicts of a series on some versions; with `out` also the rebased series, where one is clean."""
    from patchline.rebase import onto
    from patchline.rebase.course import Progress

    judge, done = onto.judge_of(old), []
    for new in later:
        rebased = onto.verdicts(judge, old, new, _behaves(args, old, new))
        one = Progress(old, new, [each.judged for each in rebased])
        done.append(onto.offered(judge, one, rebased, out) if out else one)
    return done


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
    return _outcome(args, [hands.again(project, args.upstream, args.onto, args.drop_hunk, partial(_behaves, args))])


def _told(done: list[Progress]) -> list[str]:
    """The news that were written of series that stand now."""
    standing = [one for one in done if one.folder]
    if not standing:
        return []
    from patchline.changelog import taken

    return [path for one in standing for path in taken.tell_rebased(one)]


def _outcome(args: argparse.Namespace, done: list[Progress], notes: Sequence[str] = ()) -> Outcome:
    from patchline.rebase import report

    told = _told(done)
    data = {"versions": [report.data(one) for one in done], "notes": list(notes), "news": told}
    shown = "\n\n".join([*(report.text(one) for one in done), *notes, *(f"news: {path}" for path in told)])
    if args.annotate:
        shown = "\n".join([shown, *report.annotated(done)])
    if args.report:
        report.write(args.report, done, notes)
    return Outcome(data, shown, Exit.DOES_NOT_APPLY if any(one.needs_hands for one in done) else Exit.DONE)
