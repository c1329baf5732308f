"""Make a tested nightly a release: the same digest gets a tag without a date, once all that its line asks holds.

Nothing is built or run: what was tested is what is published. What is missing is named, with the command that makes it.
Its record and its news are written to changelog/.
"""

from __future__ import annotations

import argparse
from contextlib import nullcontext

from patchline.cli import Outcome
from patchline.release import plan
from patchline.release.released import Released, data


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("line", help="a folder of builds/ with a line.toml")
    parser.add_argument("nightly", metavar="TAG|DIGEST", help="of a nightly that has a release record")
    parser.add_argument(
        "--from", dest="source", default="", metavar="HOST/NAME", help="default: where it was published"
    )
    parser.add_argument("--to", default="", metavar="HOST/NAME", help="another repository (default: the same)")
    parser.add_argument("--dry-run", action="store_true", help="say what holds and what would be done, change nothing")


def run(args: argparse.Namespace) -> Outcome:
    """Promotes; see `release.promote` for what is raised."""
    from patchline.changelog import promoted
    from patchline.lines.line import line
    from patchline.project import find
    from patchline.release import records
    from patchline.release.promote import promote
    from patchline.release.target import pushing

    project = find()
    wanted = line(project, args.line)
    source = args.source or records.find(records.of(project), args.nightly)[-1].repositories[0]
    with pushing(source) as nightly:
        elsewhere = args.to and args.to != source
        with pushing(args.to, nightly) if elsewhere else nullcontext(nightly) as target:
            done = promote(project, wanted, args.nightly, nightly, target, dry_run=args.dry_run)
    told = "" if done.dry_run else promoted.tell(project, done.tag)
    return Outcome({**data(done), "news": told}, text(done, told))


def text(done: Released, news: str = "") -> str:
    """What became of it, for people; `news` is the path of those that were written."""
    what = f"{done.nightly} to {done.repository}:{done.tag}, {done.digest}"
    if done.dry_run:
        last = f"would promote {what}; nothing was changed"
    elif done.already:
        last = f"promoted already: {what}"
    else:
        last = f"promoted {what}\nrecord {done.record}"
    return "\n".join([plan.text(done.plan), last, *([f"news {news}"] if news else [])])
