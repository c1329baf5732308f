"""What is to be trained: one JSON file, written by `tiny`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple


class Settings(NamedTuple):
    """How a model is trained."""

    seed: int
    threads: int
    """A sum is cut by threads, so another number of them gives other bytes."""
    rate: float
    """The learning rate where it is highest."""
    steps: int
    tokens: int
    """About so many a step."""
    first_items: int
    last_items: int
    """How many items a list has in the beginning, and in the end."""


class Job(NamedTuple):
    """A model to be trained into the folder `out`."""

    out: Path
    config: dict[str, Any]
    """What `Gemma4TextConfig` is told, beside the vocabulary."""
    settings: Settings


def read(path: Path) -> Job:
    """The job in a file."""
    raw = json.loads(path.read_bytes())
    return Job(Path(raw["out"]), raw["config"], Settings(**raw["settings"]))
