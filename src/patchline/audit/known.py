"""`builds/<line>/known.toml`: differences of a line's base from its pins that people have looked at, with reasons."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from patchline.audit.finding import Finding, Known
from patchline.errors import UsageError

FILE = "known.toml"


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One difference: of a file, with the bytes that it has, so that another change of it is none of it."""

    kind: str
    path: str
    """From site-packages: `vllm/_version.py`."""
    sha256: str
    """`sha256:…` of the file that is there; empty where the finding is that none is."""
    reason: str


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    known: tuple[Entry, ...]


def read(folder: Path) -> tuple[Entry, ...]:
    """The entries in a line's folder; none where it has no such file.

    Raises:
        UsageError: the file is not as it must be.
    """
    path = folder / FILE
    if not path.is_file():
        return ()
    try:
        found = msgspec.toml.decode(path.read_bytes(), type=_File)
    except msgspec.MsgspecError as bad:
        raise UsageError(f"this is no list of known differences: {bad}", where=str(path)) from bad
    without = [one.path for one in found.known if not one.reason.strip()]
    if without:
        raise UsageError(f"no reason is given for {', '.join(without)}", where=str(path))
    return found.known


def split(findings: Sequence[Finding], entries: Sequence[Entry]) -> tuple[list[Finding], list[Known]]:
    """The findings without those that are known; an entry that stands for none is a finding itself."""
    left, known, used = list[Finding](), list[Known](), set[Entry]()
    for finding in findings:
        entry = next((one for one in entries if _is(one, finding)), None)
        if entry is None:
            left.append(finding)
        else:
            used.add(entry)
            known.append(Known(finding, entry.reason))
    for one in entries:
        if one not in used:
            what = f"no finding of kind {one.kind} with these bytes: {one.sha256 or 'none'}"
            left.append(Finding("explains-nothing", one.path, what))
    return left, known


def _is(entry: Entry, finding: Finding) -> bool:
    place = finding.path == entry.path or finding.path.endswith(f"-packages/{entry.path}")
    return place and (finding.kind, finding.found) == (entry.kind, entry.sha256)
