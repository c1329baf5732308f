"""Write the commits of a checked-out pin back as its series. A patch that still says its commit keeps its bytes.

A patch that no news tells of on this version gets its fragment in changelog/; the news of one that was renamed, where
no more than its message changed, go on under its new name.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from patchline.cli import Outcome
from patchline.errors import Exit
from patchline.series.carried import Carried
from patchline.series.export import Exported


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("upstream", help="vllm, dynamo, or NAME==VERSION")
    parser.add_argument(
        "--force", action="store_true", help="write over patch files that changed since they were applied"
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit 8 when something would be written")


def run(args: argparse.Namespace) -> Outcome:
    """Exports; see `series.export` for what is raised."""
    from patchline.changelog import news
    from patchline.series.carried import carried
    from patchline.series.export import export

    series = carried(args.upstream)
    if args.check:
        return outcome(export(series, check=True, force=args.force), check=True)
    news.read(series.project)  # a fault there is said before anything changes
    done = export(series, force=args.force)
    return outcome(done, _told(series, done))


def _told(series: Carried, done: Exported) -> list[str]:
    """The news that it wrote."""
    from patchline.changelog import news, untold

    if not done.renamed and not untold.names(series, news.read(series.project)):
        return []
    from patchline.changelog import renamed, taken

    told = renamed.tell(series, done)
    return [*told, *taken.tell(series, [*done.kept, *done.written], older=done.kept)]


def outcome(done: Exported, told: Sequence[str] = (), *, check: bool = False) -> Outcome:
    """What an export, or an edit that ends in one, has to say; `told` are the news that it wrote."""
    data = {
        "folder": str(done.folder),
        "kept": done.kept,
        "written": done.written,
        "removed": done.removed,
        "reordered": done.reordered,
        "taken": list(done.taken),
        "news": list(told),
    }
    verb = "differs" if check else "written"
    lines = [f"taken    {path}" for path in done.taken]
    lines += [f"{verb:8} {name}" for name in done.written] + [f"removed  {name}" for name in done.removed]
    lines += ["the order differs" if check else "the order is another one"] if done.reordered else []
    lines += [f"news     {path}" for path in told]
    lines.append(f"{len(done.kept)} kept, {len(done.written)} {verb}, {len(done.removed)} removed in {done.folder}")
    return Outcome(data, "\n".join(lines), Exit.FINDINGS if check and done.differs else Exit.DONE)
