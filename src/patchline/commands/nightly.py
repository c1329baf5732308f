"""The whole way: checkout, apply, lint, overlay, prove; and for each line its image, gates, smoke test, publishing.

Without a line it builds those whose base is made here, or is pinned and can be reached; the others are named.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from patchline.cli import Outcome
from patchline.commands import lint as lint_verb
from patchline.commands import overlay as overlay_verb
from patchline.commands import prove as prove_verb
from patchline.errors import Exit, UsageError
from patchline.progress import say
from patchline.project import Project, find
from patchline.proofs.prove import LIMIT


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("lines", nargs="*", metavar="LINE", help="what to build (default: every line that can be)")
    parser.add_argument(
        "--limit", type=float, default=LIMIT, metavar="SECONDS", help=f"for one run of all tests (default: {LIMIT:.0f})"
    )
    parser.add_argument("--fresh", action="store_true", help="run the patches' tests, whatever evidence there is")
    parser.add_argument(
        "--record", action="store_true", help="keep what gates and smoke tests find in builds/evidence/"
    )
    parser.add_argument("--publish", default="", metavar="HOST/NAME", help="publish the images to this repository")


def run(args: argparse.Namespace) -> Outcome:
    """Goes the whole way; stops at the first thing that does not hold."""
    linted = lint_verb.run(argparse.Namespace(news=None))
    if linted.exit is not Exit.DONE:
        return linted
    project = find()
    texts = [linted.text, *_checkouts(project)]
    data: dict[str, Any] = {"lint": linted.data, "series": [], "lines": []}
    if not _prove(project, args, texts, data):
        return Outcome(data, "\n".join(texts), Exit.PROOF_FAILED)
    from patchline.lines import nights

    chosen, left = nights.choose(project, args.lines)
    texts += [f"{name}: not built: {why}" for name, why in left.items()]
    texts += [] if chosen or left else ["no image: there is no builds/<line>/line.toml"]
    data["left"] = left
    for name in chosen:
        say(f"== {name}: its image")
        night = nights.night(project, name, Path("work", "images", name), record=args.record)
        texts += night.rows
        data["lines"].append(night.data())
        if night.faults:
            return Outcome(data, "\n".join([*texts, *(f"FAULT: {one}" for one in night.faults)]), Exit.PROOF_FAILED)
    texts += [_publish(name, args.publish, data) for name in chosen if args.publish]
    return Outcome(data, "\n".join(texts))


def _prove(project: Project, args: argparse.Namespace, texts: list[str], data: dict[str, Any]) -> bool:
    from patchline.proofs.prove import prove
    from patchline.series.carried import every

    series = every(project)
    if not series:
        raise UsageError("no upstream has a series", where=str(project.root / "patches"))
    for one in series:
        say(f"== {one.name}: proving its series")
        done = prove(one, limit=args.limit, fresh=args.fresh)
        texts += [overlay_verb.text(done.overlay), prove_verb.text(done)]
        data["series"].append({"overlay": overlay_verb.data(done.overlay), "proof": prove_verb.data(done)})
        if not done.stands:
            return False
    return True


def _publish(name: str, to: str, data: dict[str, Any]) -> str:
    from patchline.commands import publish

    done = publish.run(argparse.Namespace(line=name, to=to, date=None, another=False, dry_run=False))
    data["published"] = [*data.get("published", []), done.data]
    return done.text


def _checkouts(project: Project) -> list[str]:
    """Checks out the pin that carries patches of every upstream's carried version."""
    from patchline.pins import load, name_of, select
    from patchline.sources.checkout import checkout

    upstreams = load(project.upstreams)
    chosen = [select(upstreams, name) for name in upstreams]
    made = [(upstream, pin, checkout(project, upstream, pin)) for upstream, pin in chosen]
    return [f"{done.base[:12]}  {name_of(upstream, pin)} {pin.version} checked out" for upstream, pin, done in made]
