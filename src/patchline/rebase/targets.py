"""The versions that a series can be taken to: pins, and refs of a git pin's repository."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from patchline.errors import UsageError
from patchline.pins import ArchivePin, GitPin, Pin, name_of
from patchline.rebase import refs
from patchline.series.carried import Carried, carried


def target(old: Carried, onto: str) -> Carried:
    """The pin that a version means, of the same distribution as the series' own; for git pins also a ref.

    Raises:
        UsageError: it is not pinned and no ref, or is the series' own.
        Unreachable: the repository that has the ref did not answer.
    """
    name = name_of(old.upstream, old.pin)
    if isinstance(old.pin, GitPin) and not _pinned(old, onto):
        return refs.at(old, old.pin, onto)
    new = carried(onto if "==" in onto else f"{name}=={onto}", old.project)
    if new.upstream.name != old.upstream.name or name_of(new.upstream, new.pin) != name:
        raise UsageError(f"{onto} is no version of {name}", next=f"python -m patchline rebase {name} --onto VERSION")
    if new.pin.version == old.pin.version:
        raise UsageError(
            f"{old.name} is what the series is on already",
            next="give another version; builds/upstreams.toml lists those that are pinned",
        )
    return new


def again(old: Carried, onto: str) -> Carried:
    """The version `NAME==VERSION` that a rebase of the series began with.

    Raises:
        UsageError: it is pinned no longer, or what its ref meant is no longer in the cache.
    """
    if isinstance(old.pin, GitPin) and not _pinned(old, onto):
        return refs.kept(old, old.pin, onto.partition("==")[2])
    return carried(onto, old.project)


def _pinned(old: Carried, onto: str) -> bool:
    """Whether `VERSION`, or `NAME==VERSION`, says a pin, or could say nothing else."""
    name, _, version = onto.rpartition("==")
    own = {old.upstream.name, name_of(old.upstream, old.pin)}
    return (bool(name) and name not in own) or any(pin.version == version for pin in old.upstream.pins)


def targets(old: Carried) -> list[Carried]:
    """Every later pin of the series' distribution, in the pins' order.

    Raises:
        UsageError: there is none.
    """
    from packaging.version import Version

    name = name_of(old.upstream, old.pin)
    own = Version(old.pin.version)
    later = [pin for pin in old.upstream.pins if _of(pin, old, name) and Version(pin.version) > own]
    if not later:
        raise UsageError(f"no version after {old.name} is pinned", next=f"nox -s pin -- {name}==VERSION")
    return [Carried(old.project, old.upstream, pin) for pin in later]


def _of(pin: Pin, old: Carried, name: str) -> bool:
    return isinstance(pin, ArchivePin) == isinstance(old.pin, ArchivePin) and name_of(old.upstream, pin) == name


class Matrix(NamedTuple):
    """Series, each with the versions that it is to be judged on."""

    rows: list[tuple[Carried, list[Carried]]]
    notes: list[str]
    """The series that have none, in words."""


def matrix(olds: Sequence[Carried]) -> Matrix:
    """Every series with its later pins.

    Raises:
        UsageError: no series has one.
    """
    rows, without = [], []
    for old in olds:
        try:
            rows.append((old, targets(old)))
        except UsageError as none:
            without.append(none)
    if not rows:
        raise without[0] if without else UsageError("no series is carried", next="python -m patchline new NAME")
    return Matrix(rows, [one.what for one in without])
