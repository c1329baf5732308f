"""Show the files that a series changes in the installed package, and the digest that everything later is bound to."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from patchline.cli import Outcome
from patchline.overlay import Change, Overlay


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("upstream", help="vllm, dynamo, or NAME==VERSION")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="write DIR/files and DIR/overlay.json; must not be there yet"
    )


def run(args: argparse.Namespace) -> Outcome:
    """Makes the overlay; see `overlay.overlay` for what is raised."""
    from patchline.overlay import overlay
    from patchline.series.carried import carried

    made = overlay(carried(args.upstream))
    if args.out:
        _write(made, args.out)
    return Outcome(data(made), text(made))


def _write(made: Overlay, out: Path) -> None:
    """Writes `files/`, and beside it `overlay.json`: what is removed has no file, and is listed there."""
    import json

    from patchline.files import folder_whole
    from patchline.overlay import write

    with folder_whole(out) as part:
        (part / "files").mkdir()
        write(made, part / "files")
        (part / "overlay.json").write_text(json.dumps(data(made), indent=2) + "\n")


def data(made: Overlay) -> dict[str, Any]:
    """The overlay for machines, without its bytes."""
    return {
        "name": made.name,
        "digest": made.digest,
        "base": made.base,
        "head": made.head,
        "files": [_file(change) for change in made.changes],
        "outside": list(made.outside),
    }


def _file(change: Change) -> dict[str, Any]:
    import hashlib

    if change.new is None:
        return {"path": change.path, "what": "removed"}
    sha256 = hashlib.sha256(change.new.data).hexdigest()
    what = "changed" if change.old else "added"
    return {
        "path": change.path,
        "what": what,
        "mode": f"{change.new.mode:o}",
        "size": len(change.new.data),
        "sha256": sha256,
    }


def text(made: Overlay) -> str:
    """The overlay for people."""
    rows = [f"{file['what']:8} {file['path']}" for file in map(_file, made.changes)]
    rows += [f"{'outside':8} {path} (not installed)" for path in made.outside]
    return "\n".join([*rows, f"{len(made.changes)} files in the overlay of {made.name}: {made.digest}"])
