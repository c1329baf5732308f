"""The installed package with an overlay on it, beside the environment, made of hard links."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from patchline.errors import SourceMismatch
from patchline.files import PART, folder_whole, locked
from patchline.overlay import Overlay, write
from patchline.project import cache_dir


def overlaid(made: Overlay, site_packages: Path) -> Path:
    """A folder to put before `site_packages` on the path; kept in the cache by content.

    Raises:
        SourceMismatch: a file that the overlay replaces is not the pin's in `site_packages`.
    """
    check_base(made, site_packages)
    key = hashlib.sha256(f"{made.digest}\0{site_packages}".encode()).hexdigest()[:32]
    home = cache_dir() / "overlays" / key
    with locked(home.with_name(f"{key}.lock"), f"the overlay {made.digest}"):
        if home.exists():
            return home
        for dead in home.parent.glob(f"{PART}{key}-*"):
            shutil.rmtree(dead)
        with folder_whole(home) as part:
            for top in sorted({change.path.split("/", 1)[0] for change in made.changes}):
                shutil.copytree(site_packages / top, part / top, symlinks=True, copy_function=os.link)
            _drop_bytecode(made, part)
            write(made, part)
    return home


def _drop_bytecode(made: Overlay, folder: Path) -> None:
    """Old byte-code of a replaced file could be taken for its own: it has the time of another file."""
    for path in (folder / change.path for change in made.changes):
        for stale in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
            stale.unlink()


def check_base(made: Overlay, site_packages: Path) -> None:
    """Refuses an environment whose files are not what the overlay was made from.

    Raises:
        SourceMismatch: with every file that differs.
    """
    wrong = [
        change.path
        for change in made.changes
        if _bytes(site_packages / change.path) != (change.old.data if change.old else None)
    ]
    if wrong:
        listed = "\n".join(f"  {path}" for path in wrong)
        raise SourceMismatch(
            f"the installed package is not the pin {made.name}: these files differ from it\n{listed}",
            where=str(site_packages),
            next="remove that environment; it is made again",
        )


def _bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
