"""Make the changes in a checked-out pin's work tree a new patch at the end of its series, and write its news."""

from __future__ import annotations

import argparse
import sys
import time

from patchline.cli import Outcome
from patchline.commands.export import outcome
from patchline.errors import UsageError


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("upstream", help="vllm, dynamo, or NAME==VERSION")
    parser.add_argument("--subject", required=True, help="one line that says what the patch does")
    parser.add_argument("--message", default="", metavar="FILE", help="the rest of the message, - for standard input")
    parser.add_argument("--author", required=True, metavar="'NAME <EMAIL>'", help="who wrote it")
    parser.add_argument("--origin", default="authored", help="trailer Origin (default: authored)")
    parser.add_argument("--forwarded", default="no", help="trailer Forwarded: a link, no, or not-needed (default: no)")
    parser.add_argument(
        "--drop-when", required=True, help="trailer Drop-When: tests-pass-on-stock, 'upstream-version >= X', or prose"
    )
    parser.add_argument(
        "--tests", required=True, nargs="+", metavar="PATH", help="trailer Tests: paths under tests/patches/"
    )
    parser.add_argument("--text", default="", help="what the changelog's readers should know (default: the subject)")


def run(args: argparse.Namespace) -> Outcome:
    """Makes the patch; see `series.edit.new` for what is raised."""
    from patchline.changelog import news, taken
    from patchline.series.carried import carried
    from patchline.series.edit import new
    from patchline.series.mail import Header, person

    name, email = person(args.author)
    if not name or not email:
        raise UsageError(f"{args.author!r} is not an author", next="write it as: --author 'Name <name@example.org>'")
    pairs = {
        "Origin": args.origin,
        "Forwarded": args.forwarded,
        "Drop-When": args.drop_when,
        "Tests": ", ".join(args.tests),
    }
    trailers = "\n".join(f"{key}: {value}" for key, value in pairs.items())
    body = "\n\n".join(text for text in (_message(args.message), trailers) if text)
    header = Header(name, email, int(time.time()), "+0000", args.subject, body)
    series = carried(args.upstream)
    news.read(series.project)  # a fault there is said before anything changes
    done = new(series, header)
    return outcome(done, taken.tell(series, done.written, args.text))


def _message(path: str) -> str:
    if not path:
        return ""
    try:
        with sys.stdin if path == "-" else open(path, encoding="utf-8") as file:
            return file.read().strip("\n")
    except OSError as gone:
        raise UsageError(f"the message cannot be read: {gone.strerror}", where=path) from gone
