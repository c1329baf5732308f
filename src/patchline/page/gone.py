"""Patches that are carried no more, as the page shows them: the news of kind `dropped` is all that is left of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from packaging.version import InvalidVersion, Version

from patchline.changelog.news import Fragment, Named
from patchline.page.given import UNKNOWN, VERDICTS
from patchline.series.quilt import bare


class Cell(NamedTuple):
    """One patch on one version."""

    version: str
    word: str
    why: str


class Gone(NamedTuple):
    """One patch that is carried no more."""

    name: str
    since: str
    """Day on which it was taken in, as the news has it; empty where they do not say."""
    until: str
    """Day on which it was dropped."""
    cells: list[Cell]


def drops(upstream: str, told: Sequence[Fragment]) -> list[tuple[Fragment, Named]]:
    """The drops of an upstream's patches, the newest first; of a patch that was dropped again the last one."""
    found: dict[tuple[str, str], tuple[Fragment, Named]] = {}
    for one in told:
        for patch in one.patches:
            if one.kind == "dropped" and patch.upstream == upstream:
                found.setdefault(patch.key, (one, patch))
    return list(found.values())


def versions_of(one: Fragment, patch: Named) -> list[str]:
    """The versions that a drop names of the patch's own upstream, where they are some: news is written by hand."""
    name, _, made_so = one.upstream.partition("==")
    return [version for version in (patch.version, made_so if name == patch.upstream else "") if _is_version(version)]


def _is_version(text: str) -> bool:
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


def order(version: str) -> tuple[bool, Version, str]:
    """A key by which versions stand in their order; what a git ref meant, which has no place in it, comes last."""
    return (False, Version(version), "") if _is_version(version) else (True, Version("0"), version)


def row(one: Fragment, patch: Named, versions: list[str], told: Sequence[Fragment]) -> Gone:
    """Its row: carried on the version that the news names, dropped from the one on that made it so."""
    since = [each.day for each in told if each.kind == "carried" and patch.key in [every.key for every in each.patches]]
    why = " ".join(one.text.split("\n\n")[0].split())
    first = max((Version(version) for version in versions_of(one, patch)), default=None)
    cells = [_fate(version, patch.version, first, why) for version in versions]
    return Gone(bare(patch.file), min(since, default=""), one.day, cells)


def _fate(version: str, own: str, first: Version | None, why: str) -> Cell:
    """A dropped patch on one version; `first` is the newest one that the news names."""
    if version == own:
        return Cell(version, "carried", VERDICTS["carried"])
    if first is not None and _is_version(version) and Version(version) >= first:
        return Cell(version, "dropped", why)
    return Cell(version, UNKNOWN, VERDICTS[UNKNOWN])


def dropped(told: Sequence[Fragment]) -> list[tuple[Fragment, str]]:
    """Every drop, newest first: its news, and the patch file that is gone."""
    return [(one, f"patches/{'/'.join(patch)}") for one in told if one.kind == "dropped" for patch in one.patches]
