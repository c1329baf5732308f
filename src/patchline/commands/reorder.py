"""Give a series another order. The result must be the same tree; numbers in file names follow."""

from __future__ import annotations

import argparse

from patchline.cli import Outcome
from patchline.commands.export import outcome


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("upstream", help="vllm, dynamo, or NAME==VERSION")
    parser.add_argument("patches", nargs="+", metavar="PATCH", help="every patch of the series, in the new order")


def run(args: argparse.Namespace) -> Outcome:
    """Reorders; see `series.edit.reorder` for what is raised."""
    from patchline.series.carried import carried
    from patchline.series.edit import reorder

    return outcome(reorder(carried(args.upstream), args.patches))
