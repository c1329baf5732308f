"""Write the commits of a checked-out pin back as its series. A patch that still says its commit keeps its bytes."""

from __future__ import annotations

import argparse

from patchline.cli import Outcome
from patchline.errors import Exit
from patchline.series.export import Exported


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("upstream", help="vllm, dynamo, or NAME==VERSION")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 8 when something would be written")


def run(args: argparse.Namespace) -> Outcome:
    """Exports; see `series.export` for what is raised."""
    from patchline.series.carried import carried
    from patchline.series.export import export

    done = export(carried(args.upstream), check=args.check)
    return outcome(done, check=args.check)


def outcome(done: Exported, *, check: bool = False) -> Outcome:
    """What an export, or an edit that ends in one, has to say."""
    differs = bool(done.written or done.removed)
    data = {"folder": str(done.folder), "kept": done.kept, "written": done.written, "removed": done.removed}
    verb = "differs" if check else "written"
    lines = [f"{verb:8} {name}" for name in done.written] + [f"removed  {name}" for name in done.removed]
    lines.append(f"{len(done.kept)} kept, {len(done.written)} {verb}, {len(done.removed)} removed in {done.folder}")
    return Outcome(data, "\n".join(lines), Exit.FINDINGS if check and differs else Exit.DONE)
