"""Where things lie: the project's root, its rooms, and the cache outside the checkout."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from patchline.errors import UsageError


class Project(NamedTuple):
    """One checkout of a project that carries patches."""

    root: Path

    @property
    def upstreams(self) -> Path:
        """The pins; `pin` is their only writer."""
        return self.root / "builds" / "upstreams.toml"

    def series_dir(self, upstream: str, version: str) -> Path:
        """The folder of the patches carried on one pin; its file `series` gives their order."""
        return self.root / "patches" / upstream / version

    def work_dir(self, name: str, version: str) -> Path:
        """The git repository of one pin: base commit, and the series on top of it."""
        return self.root / "work" / f"{name}-{version}"


def find(start: Path | None = None) -> Project:
    """The project around `start` (default: the current folder).

    Raises:
        UsageError: no folder from `start` upwards holds `builds/upstreams.toml`.
    """
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        if (folder / "builds" / "upstreams.toml").is_file():
            return Project(folder)
    raise UsageError(
        "no project here: no builds/upstreams.toml in this folder or above it",
        where=str(here),
        next="run from a project's folder, or begin one with: python -m patchline pin NAME==VERSION --init",
    )


def cache_dir() -> Path:
    """Downloads and environments, keyed by content; safe to delete at any time.

    `PATCHLINE_CACHE`, else `XDG_CACHE_HOME/patchline`, else `~/.cache/patchline`.
    """
    if own := os.environ.get("PATCHLINE_CACHE"):
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "patchline"
