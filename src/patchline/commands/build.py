"""Cut a line's image: its base, and one layer with the overlay; as an OCI image layout, without a daemon.

With `--builder docker` the line's Dockerfile is run over the same files instead, and the image stays in the daemon.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from patchline.cli import Outcome
from patchline.errors import UsageError

if TYPE_CHECKING:
    from patchline.lines.build import Built


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("line", help="a folder of builds/ with a line.toml")
    parser.add_argument("--out", type=Path, metavar="DIR", help="of the layout (default: work/images/LINE)")
    parser.add_argument(
        "--builder", choices=("append", "docker"), default="append", help="docker: for lines that need packages"
    )
    parser.add_argument("--push", default="", metavar="HOST/NAME:TAG", help="with docker: where the image goes as well")
    parser.add_argument(
        "--whole", action="store_true", help="with the base's layers, too; without them only `publish` can use it"
    )


def run(args: argparse.Namespace) -> Outcome:
    """Cuts; see `lines.build` for what is raised."""
    from patchline.image import append
    from patchline.lines.build import building
    from patchline.project import find

    project = find()
    out = args.out or project.root / "work" / "images" / args.line
    if args.push and args.builder != "docker":
        raise UsageError("--push belongs to --builder docker", next=f"nox -s publish -- {args.line} --to HOST/NAME")
    with building(project, args.line) as built:
        if args.builder == "docker":
            return _by_docker(built, args.push)
        append.write(built.image, out, whole=args.whole)
        return Outcome(data(built, out), text(built, out))


def _by_docker(built: Built, to: str) -> Outcome:
    from patchline.image.reference import parse
    from patchline.lines.docker.builder import build
    from patchline.lines.docker.daemon import daemon

    target = parse(to) if to else None
    if target and (not target.tag or target.digest):
        raise UsageError(f"{to} names no tag", next="give HOST/NAME:TAG")
    with daemon() as client:
        made = build(client, built.line, built.image, push_to=(target.repository, target.tag) if target else None)
    said = {"line": built.line.name, "overlay": built.who.overlay, "id": made.id, "pushed": made.digest}
    pushed = f"\npushed   {to} {made.digest}" if target else ""
    return Outcome(said, f"overlay  {built.who.overlay}\nimage    {made.id}, in the daemon{pushed}")


def data(built: Built, out: Path) -> dict[str, Any]:
    """The image for machines."""
    config, layer = (described for described, _ in reversed(built.image.blobs))
    return {
        "line": built.line.name,
        "digest": built.image.digest,
        "config": config.digest,
        "layer": {"digest": layer.digest, "size": layer.size},
        "base": {"name": built.who.base_name, "digest": built.image.base.digest},
        "overlay": built.who.overlay,
        "series": [
            {"pin": one.pin, "overlay": one.overlay, "patches": [patch._asdict() for patch in one.patches]}
            for one in built.who.series
        ],
        "layout": str(out),
    }


def text(built: Built, out: Path) -> str:
    """The image for people."""
    said = data(built, out)
    rows = [f"{patch.id[:12]}  {one.pin}  {patch.name}" for one in built.who.series for patch in one.patches]
    return "\n".join(
        [
            *rows,
            f"base     {said['base']['name']} {said['base']['digest']}",
            f"overlay  {said['overlay']}",
            f"layer    {said['layer']['digest']}, {said['layer']['size']:,} bytes",
            f"image    {said['digest']}",
            f"layout   oci:{out}",
        ]
    )
