"""Applies a carried series again without reading the pins, where neither they nor anything else changed.

A run with nothing to do is what CI and people do most; reading and checking the pins would be
a third of its time.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import NamedTuple

from patchline.files import write_whole
from patchline.project import Project, find
from patchline.series.apply import Result, to_pin


class _Memory(NamedTuple):
    """Where an earlier run found things, from the project's root, for one content of the pins file."""

    pins_sha256: str
    repo: str
    base: str
    series: str


def apply(spec: str, *, discard: bool = False) -> Result:
    """Takes the checked-out pin that `spec` means to what its series makes of it; see `Carried.apply`."""
    project = find()
    pins = hashlib.sha256(project.upstreams.read_bytes()).hexdigest()
    path = project.root / "work" / f".{hashlib.sha256(spec.encode()).hexdigest()[:16]}.json"
    known = _load(path)
    if known and known.pins_sha256 == pins and (project.root / known.repo).is_dir():
        return to_pin(project.root / known.repo, known.base, project.root / known.series, discard=discard)
    return _apply_anew(project, spec, discard, path, pins)


def _load(path: Path) -> _Memory | None:
    try:
        return _Memory(**json.loads(path.read_bytes()))
    except (FileNotFoundError, ValueError, TypeError):  # none, or another version's: only a memory
        return None


def _apply_anew(project: Project, spec: str, discard: bool, path: Path, pins: str) -> Result:
    from patchline.series.carried import carried

    found = carried(spec, project)
    done = found.apply(discard=discard)
    repo, series = (path.relative_to(project.root).as_posix() for path in (found.repo, found.series))
    memory = _Memory(pins, repo, done.base, series)
    write_whole(path, json.dumps(memory._asdict()).encode())
    return done
