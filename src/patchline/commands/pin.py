"""Record an upstream version with its hashes in builds/upstreams.toml, or what a line's base is; their only writer."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from patchline.cli import Outcome
from patchline.errors import UsageError
from patchline.pins import ArchivePin, GitPin

if TYPE_CHECKING:
    from patchline.project import Project


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument(
        "requirement",
        metavar="NAME==VERSION|LINE",
        help="a distribution, or with --git the upstream's own name; or a line, whose base is pinned and locked",
    )
    parser.add_argument("--kind", choices=("sdist", "wheel"), help="default: the sdist, or wheels where there is none")
    parser.add_argument(
        "--upstream", metavar="NAME", help="the upstream that the distribution belongs to, where it is new"
    )
    parser.add_argument("--git", metavar="URL", help="pin a tag of this repository")
    parser.add_argument("--tag", metavar="TAG", help="with --git (default: vVERSION)")
    parser.add_argument("--carry", action="store_true", help="make this version the one that the fork carries")
    parser.add_argument("--init", action="store_true", help="begin a project here: the pins file may be missing")


def run(args: argparse.Namespace) -> Outcome:
    """Pins; see `pins.pinning` and `lines.pinning` for what is raised."""
    from patchline.lines.line import names
    from patchline.pins.pinning import pin_archive, pin_git
    from patchline.pins.select import split
    from patchline.project import Project, find

    project = Project(Path.cwd()) if args.init else find()
    if args.requirement in names(project):
        return _base(args, project)
    if not args.git:
        if args.tag:
            raise UsageError("--tag goes with --git", next="python -m patchline pin --help")
        return _outcome(
            pin_archive(project, args.requirement, args.kind, upstream=args.upstream, carry=args.carry, init=args.init)
        )
    if args.kind or args.upstream:
        raise UsageError("--kind and --upstream do not go with --git", next="python -m patchline pin --help")
    name, version = split(args.requirement)
    if version is None:
        raise UsageError(
            f"{args.requirement} names no version", next=f"python -m patchline pin {name}==VERSION --git {args.git}"
        )
    return _outcome(
        pin_git(project, name, version, args.git, args.tag or f"v{version}", carry=args.carry, init=args.init)
    )


def _base(args: argparse.Namespace, project: Project) -> Outcome:
    from patchline.lines.pinning import pin

    if args.git or args.tag or args.kind or args.upstream or args.carry or args.init:
        raise UsageError(
            f"{args.requirement} is a line: its base is pinned, and no option goes with that",
            next=f"python -m patchline pin {args.requirement}",
        )
    made = pin(project, args.requirement)
    data = {"line": args.requirement, "name": made.name, "digest": made.digest, "manifest": made.manifest}
    return Outcome(data, f"pinned the base of {args.requirement}: {made.name} is {made.digest}")


def _outcome(pin: ArchivePin | GitPin) -> Outcome:
    data: dict[str, Any]
    if isinstance(pin, GitPin):
        data = {"kind": pin.kind, "version": pin.version, "url": pin.url, "tag": pin.tag, "commit": pin.commit}
        return Outcome(data, f"pinned {pin.version}: {pin.tag} is {pin.commit}")
    files = [{"name": file.name, "sha256": file.sha256, "size": file.size} for file in pin.files]
    data = {"kind": pin.kind, "distribution": pin.distribution, "version": pin.version, "files": files}
    lines = [f"sha256:{file.sha256}  {file.size:>12,} bytes  {file.name}" for file in pin.files]
    return Outcome(data, "\n".join([*lines, f"pinned {pin.distribution} {pin.version}"]))
