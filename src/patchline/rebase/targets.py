"""The pins that a series can be taken to."""

from __future__ import annotations

from patchline.errors import UsageError
from patchline.pins import ArchivePin, Pin, name_of
from patchline.series.carried import Carried, carried


def target(old: Carried, onto: str) -> Carried:
    """The pin that a version means, of the same distribution as the series' own.

    Raises:
        UsageError: it is not pinned, or is the series' own.
    """
    name = name_of(old.upstream, old.pin)
    new = carried(onto if "==" in onto else f"{name}=={onto}", old.project)
    if new.upstream.name != old.upstream.name or name_of(new.upstream, new.pin) != name:
        raise UsageError(f"{onto} is no version of {name}", next=f"python -m patchline rebase {name} --onto VERSION")
    if new.pin.version == old.pin.version:
        raise UsageError(
            f"{old.name} is what the series is on already",
            next="give another version; builds/upstreams.toml lists those that are pinned",
        )
    return new


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
