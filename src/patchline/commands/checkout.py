"""Bring a pinned upstream here: verified, as a git repository whose base commit is the same everywhere."""

from __future__ import annotations

import argparse

from patchline.cli import Outcome


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("upstream", nargs="+", help="vllm, dynamo, ai-dynamo-runtime, or NAME==VERSION")


def run(args: argparse.Namespace) -> Outcome:
    """Checks out; see `sources.checkout` for what is raised."""
    from patchline.pins import load, name_of, select
    from patchline.project import find
    from patchline.sources.checkout import checkout

    project = find()
    upstreams = load(project.upstreams)
    rows = []
    for spec in args.upstream:
        upstream, pin = select(upstreams, spec)
        done = checkout(project, upstream, pin)
        rows.append({"name": name_of(upstream, pin), "version": pin.version, "repo": str(done.repo), "base": done.base})
    text = "\n".join(f"{row['base'][:12]}  {row['name']} {row['version']} in {row['repo']}" for row in rows)
    return Outcome({"checkouts": rows}, text)
