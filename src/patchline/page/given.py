"""What the page is given by others, as JSON: verdicts on other versions, and audits; `looked` finds its own."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from patchline.errors import UsageError

UNKNOWN = "unknown"
VERDICTS = {
    "applies": "It applies as it is.",
    "moved": "It fits at other lines or in another file.",
    "conflicts": "It needs hands.",
    "partly-upstream": "Upstream has a part of it.",
    "upstream": "Upstream has it.",
    "not-needed": "Its tests pass without it.",
    "carried": "It is carried on this version.",
    "dropped": "It is carried no more since this version.",
    UNKNOWN: "Nobody has looked yet.",
}
"""Every word of the timeline, with what it means."""

_Shape = TypeVar("_Shape", "_Rebases", "_Audits")


class Verdict(NamedTuple):
    """What one patch is on one version of its upstream."""

    upstream: str
    version: str
    patch: str
    """File name."""
    verdict: str
    why: str = ""


class Finding(msgspec.Struct, frozen=True):
    """One difference that nothing explains, or one that is known: then with its reason."""

    kind: str
    path: str
    what: str
    line: int = 0
    """The first line, from 1; 0 where the whole file is meant."""
    end: int = 0
    patch: str = ""
    detail: tuple[str, ...] = ()
    """The lines themselves, as a diff has them."""
    reason: str = ""


class Audit(msgspec.Struct, frozen=True):
    """One audit."""

    subject: str
    compared: int
    """Files."""
    findings: tuple[Finding, ...]
    known: tuple[Finding, ...] = ()


class _Audits(msgspec.Struct, frozen=True):
    """What `audit --json` prints."""

    audits: tuple[Audit, ...]


class _Conflict(msgspec.Struct, frozen=True):
    path: str
    line: int = 0
    why: str = ""


class _Judged(msgspec.Struct, frozen=True):
    name: str
    verdict: str
    evidence: tuple[str, ...] = ()
    conflicts: tuple[_Conflict, ...] = ()


class _Rebase(msgspec.Struct, frozen=True):
    onto: str
    patches: tuple[_Judged, ...]


class _Rebases(msgspec.Struct, frozen=True):
    """What `rebase --json` prints, and a report's `report.json`."""

    versions: tuple[_Rebase, ...]


def verdicts(path: Path) -> list[Verdict]:
    """The verdicts of a file that `rebase` wrote.

    Raises:
        UsageError: it is not there, not of this form, or has a verdict that there is not.
    """
    found = [
        Verdict(one.onto.partition("==")[0], one.onto.partition("==")[2], each.name, each.verdict, _why(each))
        for one in _read(path, _Rebases).versions
        for each in one.patches
    ]
    if wrong := sorted({one.verdict for one in found} - VERDICTS.keys()):
        raise UsageError(f"there is no verdict {wrong[0]!r}; there are {', '.join(VERDICTS)}", where=str(path))
    return found


def _why(one: _Judged) -> str:
    places = [f"{each.path}:{each.line}{f' ({each.why})' if each.why else ''}" for each in one.conflicts]
    return "; ".join([*one.evidence, *places])


def audits(path: Path) -> list[Audit]:
    """The audits of a file that `audit` wrote.

    Raises:
        UsageError: it is not there, not of this form, or compared nothing.
    """
    found = [*_read(path, _Audits).audits]
    if not found or any(one.compared < 1 for one in found):
        raise UsageError("this audit compared no file: that shows nothing", where=str(path))
    return found


def _read(path: Path, shape: type[_Shape]) -> _Shape:
    try:
        return msgspec.json.decode(path.read_bytes(), type=shape)
    except OSError as gone:
        raise UsageError(f"the file cannot be read: {gone.strerror}", where=str(path)) from gone
    except msgspec.MsgspecError as bad:
        verb = "rebase" if shape is _Rebases else "audit"
        raise UsageError(f"this is not what `{verb} --json` prints: {bad}", where=str(path)) from bad
