"""Put a series of patches on the pin it is carried on, on a git repository (--repo) or on a folder (--source)."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from patchline.cli import Outcome
from patchline.errors import UsageError
from patchline.series import apply
from patchline.series.apply import Result
from patchline.series.placement import Placement, Rule


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("upstream", nargs="?", help="vllm, dynamo, or NAME==VERSION")
    parser.add_argument(
        "--repo", type=Path, metavar="DIR", help="put the series as commits on the clean HEAD of this repository"
    )
    parser.add_argument("--source", type=Path, metavar="DIR", help="apply to a copy of this folder; needs --out")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the copy appears; must not be there yet")
    parser.add_argument("--series", type=Path, metavar="FILE", help="the series file; its patches lie beside it")
    parser.add_argument(
        "--branch", default="", metavar="NAME", help="with --repo: make this branch and leave the present one alone"
    )
    parser.add_argument(
        "--nearest",
        action="store_true",
        help="with a foreign series: place a moved hunk at the nearest match, as dpkg-source does; each is reported",
    )
    parser.add_argument(
        "--discard",
        action="store_true",
        help="with UPSTREAM: drop work in the checked-out pin that is not in the series",
    )


def run(args: argparse.Namespace) -> Outcome:
    """Applies; see `series.apply` for what is raised."""
    result = _apply(args)
    return Outcome(_data(result), _text(result))


def _apply(args: argparse.Namespace) -> Result:
    rule = Rule.NEAREST if args.nearest else Rule.UNIQUE
    chosen = [name for name in ("upstream", "repo", "source") if getattr(args, name)]
    if len(chosen) != 1:
        raise UsageError("give one of UPSTREAM, --repo DIR and --source DIR", next="python -m patchline apply --help")
    if chosen == ["upstream"]:
        _only(args, "upstream", "discard")
        from patchline.series import remembered

        return remembered.apply(args.upstream, discard=args.discard)
    if not args.series:
        raise UsageError("--series FILE is missing", next="python -m patchline apply --help")
    if chosen == ["repo"]:
        _only(args, "repo", "series", "branch", "nearest")
        return apply.to_repo(args.repo, args.series, rule, args.branch)
    if not args.out:
        raise UsageError("--out DIR is missing", next="python -m patchline apply --help")
    _only(args, "source", "series", "out", "nearest")
    return apply.to_folder(args.source, args.series, args.out, rule)


def _only(args: argparse.Namespace, *names: str) -> None:
    given = {name for name, value in vars(args).items() if value and name not in names} - {"json"}
    if given:
        raise UsageError(f"--{min(given)} does not go with {names[0]}", next="python -m patchline apply --help")


def _data(result: Result) -> dict[str, Any]:
    return {
        "tree": str(result.tree),
        "base": result.base,
        "head": result.patches[-1][1],
        "changed": result.done,
        "patches": [{"name": name, "commit": commit} for name, commit in result.patches],
        "moved": [{"patch": patch, **_where(one)} for patch, one in result.placements],
    }


def _where(one: Placement) -> dict[str, Any]:
    return {
        "path": one.path,
        "hunk": one.hunk,
        "stated_line": one.stated,
        "line": one.line,
        "offset": one.offset,
        "how": one.how,
    }


def _moved(one: Placement) -> str:
    where = f"{one.path}: hunk {one.hunk} went to line {one.line}, not {one.stated}"
    return f"{where} (offset {one.offset:+d}, {one.how})"


def _text(result: Result) -> str:
    lines = [f"{patch}: {_moved(one)}" for patch, one in result.placements]
    lines += [f"{commit[:12] or 'applied':12}  {name}" for name, commit in result.patches]
    count = f"{len(result.patches)} {'patch' if len(result.patches) == 1 else 'patches'}"
    end = f"{count} on {result.tree}" if result.done else f"{count} on {result.tree}: nothing to do"
    return "\n".join([*lines, end])
