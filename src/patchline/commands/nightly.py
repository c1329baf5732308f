"""The whole way from the pins to a proven overlay: checkout, apply, lint, overlay, prove."""

from __future__ import annotations

import argparse
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
    parser.add_argument(
        "--limit", type=float, default=LIMIT, metavar="SECONDS", help=f"for one run of all tests (default: {LIMIT:.0f})"
    )
    parser.add_argument("--fresh", action="store_true", help="run the tests, whatever evidence there is")


def run(args: argparse.Namespace) -> Outcome:
    """Goes the whole way; stops at the first thing that does not hold."""
    from patchline.proofs.prove import prove
    from patchline.series.carried import every

    linted = lint_verb.run(args)
    if linted.exit is not Exit.DONE:
        return linted
    project = find()
    checked = _checkouts(project)
    series = every(project)
    if not series:
        raise UsageError("no upstream has a series", where=str(project.root / "patches"))
    texts = [linted.text, *checked]
    data: dict[str, Any] = {"lint": linted.data, "series": []}
    for one in series:
        say(f"== {one.name}: proving its series")
        done = prove(one, limit=args.limit, fresh=args.fresh)
        texts += [overlay_verb.text(done.overlay), prove_verb.text(done)]
        data["series"].append({"overlay": overlay_verb.data(done.overlay), "proof": prove_verb.data(done)})
        if not done.stands:
            return Outcome(data, "\n".join(texts), Exit.PROOF_FAILED)
    return Outcome(data, "\n".join(texts))


def _checkouts(project: Project) -> list[str]:
    """Checks out the pin that carries patches of every upstream's carried version."""
    from patchline.pins import load, name_of, select
    from patchline.sources.checkout import checkout

    upstreams = load(project.upstreams)
    chosen = [select(upstreams, name) for name in upstreams]
    made = [(upstream, pin, checkout(project, upstream, pin)) for upstream, pin in chosen]
    return [f"{done.base[:12]}  {name_of(upstream, pin)} {pin.version} checked out" for upstream, pin, done in made]
