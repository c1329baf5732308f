"""Put the changes in a checked-out pin's work tree into one patch; without changes, write the patches anew."""

from __future__ import annotations

import argparse

from patchline.cli import Outcome
from patchline.commands.export import outcome


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("upstream", help="vllm, dynamo, or NAME==VERSION")
    parser.add_argument("patch", nargs="?", default="", help="the patch to change (default: the last one)")


def run(args: argparse.Namespace) -> Outcome:
    """Refreshes; see `series.edit.refresh` for what is raised."""
    from patchline.series.carried import carried
    from patchline.series.edit import refresh

    return outcome(refresh(carried(args.upstream), args.patch))
