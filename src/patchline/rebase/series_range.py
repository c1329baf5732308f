"""Series against series, on whatever versions: what `git range-diff` shows, patch by patch."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from patchline.git import git
from patchline.rebase import store
from patchline.rebase.candidate import bare
from patchline.series import quilt
from patchline.series.carried import Carried
from patchline.series.plan import plan
from patchline.series.trees import CommitTree

_LINE = re.compile(r"^ *(\d+|-): +([0-9a-f]{7,}|-+) ([=!<>]) +(\d+|-): +([0-9a-f]{7,}|-+) (.*)$")
_WORDS = {"=": "same", "!": "changed", "<": "only in the first", ">": "only in the second"}
_PAIRING = 95
"""Percent of a patch that may differ from another one and still be taken for it; git's own is 60."""


class Paired(NamedTuple):
    """One patch of either series with its counterpart."""

    first: str
    """Name in the first series; empty where it is only in the second."""
    second: str
    how: str
    """`same`, `changed`, `only in the first` or `only in the second`."""
    subject: str
    diff: str
    """The difference of the two patches, as git shows it; empty unless they changed."""


class Side(NamedTuple):
    """A series as commits."""

    base: str
    head: str
    names: list[str]


def compare(one: Carried, other: Carried) -> list[Paired]:
    """Pairs the patches of two carried series, in git's order; trailers of a rebase do not count.

    Raises:
        DoesNotApply: a series does not apply to its own pin.
        UsageError: there is no such series.
    """
    bases = one.base(), other.base()
    with store.throwaway(one.repo, other.repo) as repo:
        first, second = (_side(repo, each, base) for each, base in zip((one, other), bases, strict=True))
        ranges = (f"{first.base}..{first.head}", f"{second.base}..{second.head}")
        out = git(repo, "range-diff", "--no-color", f"--creation-factor={_PAIRING}", *ranges)
    return _parsed(os.fsdecode(out), first.names, second.names)


def _side(repo: Path, of: Carried, base: str) -> Side:
    patches = quilt.patches(quilt.files(of.series, own=True))
    steps = plan(CommitTree(of.repo, base), patches).steps
    ids = store.write(repo, base, [(bare(step.patch.header), step.changes) for step in steps])
    return Side(base, ids[-1], [patch.name for patch in patches])


def _parsed(out: str, first: Sequence[str], second: Sequence[str]) -> list[Paired]:
    found: list[Paired] = []
    for line in out.split("\n"):
        if match := _LINE.match(line):
            one, _, how, other, _, subject = match.groups()
            found.append(Paired(_name(one, first), _name(other, second), _WORDS[how], subject, ""))
        elif found and line:
            found[-1] = found[-1]._replace(diff=found[-1].diff + line.removeprefix("    ") + "\n")
    return found


def _name(at: str, names: Sequence[str]) -> str:
    """The patch at a place that git counts from 1; `-` is none."""
    return "" if at == "-" else names[int(at) - 1]
