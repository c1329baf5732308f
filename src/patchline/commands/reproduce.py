"""Cut a release's image again from what its record names, and compare manifest, configuration and layer.

Exits 8 where the image is another one, or where an input is not the record's any more. A record that was edited is
refused. `--schema` prints the JSON schema of the records.
"""

from __future__ import annotations

import argparse
from typing import Any

from patchline.cli import Outcome
from patchline.errors import Exit, UsageError
from patchline.release.inputs import Difference
from patchline.release.reproduce import Reproduced


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("tag", nargs="?", help="of the release, or the image's digest")
    parser.add_argument("--here", action="store_true", help="from the work tree only, and not from the record's commit")
    parser.add_argument("--schema", action="store_true", help="print the JSON schema of changelog/releases/*.json")


def run(args: argparse.Namespace) -> Outcome:
    """Cuts and compares; see `release.reproduce` for what is raised."""
    from patchline.project import find
    from patchline.release import schema
    from patchline.release.reproduce import reproduce

    if args.schema == bool(args.tag):
        raise UsageError("name a release, or ask for the --schema", next="ls changelog/releases")
    if args.schema:
        return Outcome(schema.schema(), schema.text().decode().rstrip("\n"))
    done = reproduce(find(), args.tag, only_here=args.here)
    return Outcome(data(done), text(done), Exit.DONE if done.same else Exit.FINDINGS)


def data(done: Reproduced) -> dict[str, Any]:
    """What became of it, for machines."""
    return {
        "tag": done.record.tag,
        "same": done.same,
        "tree": done.tree,
        "digests": [one._asdict() for one in done.digests],
        "inputs": [one._asdict() for one in done.inputs],
        "here": [one._asdict() for one in done.here],
    }


def text(done: Reproduced) -> str:
    """What became of it, for people."""
    rows = [_row(one) for one in done.digests]
    rows += _other("inputs that are not the record's", done.inputs)
    if done.here != done.inputs:
        rows += _other("the work tree has other inputs today", done.here)
    if done.same:
        return "\n".join([*rows, f"{done.record.tag}: cut again from {done.tree}, the same image"])
    if done.digests:
        return "\n".join([*rows, f"{done.record.tag}: cut again from {done.tree}, and it is ANOTHER image"])
    commit = f", nor from commit {done.record.project[:12]}" if done.record.project else ""
    return "\n".join([*rows, f"{done.record.tag}: NOT cut again: not from the work tree{commit}"])


def _row(one: Difference) -> str:
    word = "same " if one.recorded == one.found else "OTHER"
    return f"{word} {one.what:8} {one.recorded}" + (
        "" if one.recorded == one.found else f"\n      now      {one.found}"
    )


def _other(head: str, found: tuple[Difference, ...]) -> list[str]:
    rows = [f"  {one.what}\n    record: {one.recorded or 'none'}\n    now:    {one.found or 'none'}" for one in found]
    return [f"{head}:", *rows] if rows else []
