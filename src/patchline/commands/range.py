"""Compare two carried series, on whatever versions: which patches are the same, and how the others differ."""

from __future__ import annotations

import argparse
from typing import Any

from patchline.cli import Outcome


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("first", help="a series, as NAME==VERSION")
    parser.add_argument("second", help="another one, as NAME==VERSION")
    parser.add_argument("--short", action="store_true", help="leave out the differences themselves")


def run(args: argparse.Namespace) -> Outcome:
    """Compares; see `rebase.series_range` for what is raised."""
    from patchline.rebase.series_range import compare
    from patchline.series.carried import carried

    first, second = carried(args.first), carried(args.second)
    found = compare(first, second)
    data: dict[str, Any] = {
        "first": first.name,
        "second": second.name,
        "patches": [one._asdict() for one in found],
        "same": sum(one.how == "same" for one in found),
    }
    lines = [f"{first.name} and {second.name}"]
    for one in found:
        names = one.first if one.first == one.second else " → ".join(name for name in (one.first, one.second) if name)
        lines.append(f"{one.how:18} {names}")
        lines += [] if args.short else [f"    {line}" for line in one.diff.splitlines()]
    lines.append(f"{data['same']} of {len(found)} the same")
    return Outcome(data, "\n".join(lines))
