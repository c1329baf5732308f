"""One table of what is carried: since when, on which versions, its verdict on later ones, what would let us drop it."""

from __future__ import annotations

import argparse

from patchline.cli import Outcome
from patchline.rebase.standing import Standing


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("upstream", nargs="?", default="", help="vllm, dynamo, or NAME==VERSION (default: all)")


def run(args: argparse.Namespace) -> Outcome:
    """Judges and shows; see `rebase.standing` for what is raised."""
    from patchline.project import find
    from patchline.rebase.standing import standing

    found = standing(find(), args.upstream)
    return Outcome({"patches": [one._asdict() for one in found]}, table(found))


def table(found: list[Standing]) -> str:
    """The table in Markdown, which people read as it is."""
    rows = [["patch", "since", "versions", "on later versions", "forwarded", "drop when", "holds"]]
    for one in found:
        later = "; ".join(f"{version}: {verdict}" for version, verdict in one.verdicts.items()) or "none is pinned"
        holds = "; ".join(one.holds) or "nothing yet"
        conditions = "; ".join(one.drop_when)
        rows.append(
            [f"{one.upstream}/{one.name}", one.since, ", ".join(one.versions), later, one.forwarded, conditions, holds]
        )
    rows.insert(1, ["---"] * len(rows[0]))
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows)
