"""Remembers in a repository which series its HEAD is the result of, so that nothing is done twice."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

FORM = 1
"""Version of the record and of the rules that commits are made by; another one is not trusted."""


class Applied(NamedTuple):
    """One series on one base."""

    base: str
    head: str
    series: str
    """Digest of the series; empty while its patch files are still to be written from the commits."""
    rule: str
    patches: list[tuple[str, str]]
    """Name and commit, in order."""
    form: int = FORM

    def dumps(self) -> str:
        """As text, for the record file."""
        return json.dumps(self._asdict())


def record(base: str, series: str, rule: str, names: Sequence[str], commits: Sequence[str]) -> Applied:
    """The record of a series whose patches became `commits`."""
    return Applied(base, commits[-1], series, rule, list(zip(names, commits, strict=True)))


def load(path: Path) -> Applied | None:
    """The record at `path`; None where there is none of this form."""
    try:
        data = json.loads(path.read_bytes())
        patches = [(name, commit) for name, commit in data["patches"]]
        found = Applied(**{**data, "patches": patches})
    except (FileNotFoundError, ValueError, TypeError, KeyError):  # none, or none that is understood
        return None
    return found if found.form == FORM else None
