"""Publish a line's image as a nightly: push by digest, verify, attach SBOM and provenance, record, and only then tag.

Stopped anywhere and run again, it completes; an image that has a tag of that day keeps it.
"""

from __future__ import annotations

import argparse
from datetime import UTC, datetime

from patchline.cli import Outcome
from patchline.release import plan
from patchline.release.released import Released, data


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("line", help="a folder of builds/ with a line.toml")
    parser.add_argument("--to", required=True, metavar="HOST/NAME", help="the repository")
    parser.add_argument("--date", metavar="YYYYMMDD", help="of the nightly (default: today, in UTC)")
    parser.add_argument("--another", action="store_true", help="a further tag for an image that has one of that day")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done; nothing is changed")


def run(args: argparse.Namespace) -> Outcome:
    """Publishes; see `release.publish` for what is raised."""
    from patchline.lines.build import building
    from patchline.project import find
    from patchline.release.publish import publish
    from patchline.release.target import pushing

    date = args.date or datetime.now(UTC).strftime("%Y%m%d")
    with building(find(), args.line) as built, pushing(args.to, built.image.base.source) as repository:
        done = publish(built, repository, date=date, another=args.another, dry_run=args.dry_run)
    return Outcome(data(done), text(done))


def text(done: Released) -> str:
    """What became of it, for people."""
    if done.dry_run:
        last = f"would publish {done.repository}:{done.tag}, {done.digest}; nothing was changed"
    elif done.already:
        last = f"published already: {done.repository}:{done.tag}, {done.digest}"
    else:
        last = f"published {done.repository}:{done.tag}, {done.digest}\nrecord {done.record}"
    return f"{plan.text(done.plan)}\n{last}"
