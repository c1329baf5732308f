"""An installed package held against what it has to be."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from patchline.audit import bytecode, distributions
from patchline.audit.finding import Explained, Finding
from patchline.audit.runs import runs, shown
from patchline.audit.view import Seen, View
from patchline.audit.wanted import GONE, Installed, Patched, PinTree, Want, recorded, wanted
from patchline.image import digests, record
from patchline.image.lock import Lock
from patchline.overlay import Change
from patchline.pins.select import normal
from patchline.series.place import split


class Compared(NamedTuple):
    """One package in one place."""

    held: int
    """Files whose bytes were compared."""
    findings: list[Finding]
    explained: list[Explained]
    unread: int
    """Files that a RECORD lists outside of what an audit reads: scripts and data of other names."""


def compared(view: View, place: Installed, lock: Lock | None, patched: Sequence[Patched], pin: PinTree) -> Compared:
    """Compares one package with all that is known of it."""
    wants = wanted(place, lock, patched)
    findings, explained, count, unread = list[Finding](), list[Explained](), 0, 0
    changes = {change.path: change for one in patched for change in one.overlay.changes}
    for path, want in sorted(wants.items()):
        seen = view.at(path)
        if seen is None and not _reads(place, path):
            unread += 1
            continue
        count += bool(want.digest)
        found = list(_held(view, path, want, seen, changes.get(path.removeprefix(f"{place.site}/"))))
        findings += found
        if want.patches and not found:
            explained.append(Explained(path, (0, 0), (0, 0), want.patches))
    own = view.below(place.root)
    findings += [_extra(view, path) for path in own if path not in wants and not path.endswith(".pyc")]
    findings += bytecode.findings(view, place.site, own)
    findings += distributions.findings(view, place, lock, wants)
    findings += _recorded_otherwise(place, wants)
    reported = {one.path for one in findings}
    findings += [one for one in _unlike_pin(view, place, wants, pin) if one.path not in reported]
    return Compared(count, findings, explained, unread)


def _reads(place: Installed, path: str) -> bool:
    folder, name = posixpath.split(path)
    if posixpath.basename(folder) == "bin" and place.top in name:
        return True
    return path.startswith((f"{place.root}/", *(one.rpartition("/")[0] + "/" for one in place.records)))


def _held(view: View, path: str, want: Want, seen: Seen | None, change: Change | None) -> Iterator[Finding]:
    by, patch = ", ".join(want.patches), want.patches[0] if want.patches else ""
    if seen is None:
        if want.digest != GONE:
            carried = f": {by} has to be in place" if by else f", and {want.by} lists it"
            yield Finding("missing", path, f"it is not there{carried}", patch=patch)
    elif want.digest == GONE:
        yield Finding("carried-missing", path, f"{by} removes it, and it is there", patch=patch, found=seen.digest)
    elif seen.kind != "file":
        yield Finding("changed", path, f"{_odd(view, path, seen)}, and has to be a file", patch=patch)
    elif want.digest and seen.digest != want.digest:
        yield _other(view, path, want, seen, change)
    else:
        yield from _mode(path, want, seen)


def _mode(path: str, want: Want, seen: Seen) -> Iterator[Finding]:
    """A file that has its bytes, and not its mode or its owner."""
    if seen.held is None:
        return
    patch = want.patches[0] if want.patches else ""
    if want.held is not None and seen.held != want.held:
        what = f"it has mode {seen.held}; {want.by} makes it {want.held}"
        yield Finding("mode", path, what, patch=patch, found=seen.digest)
    elif want.held is None and want.runs is not None and bool(seen.held.mode & 0o100) != want.runs:
        what = f"it has mode {seen.held}; {want.by} makes it {'a program' if want.runs else 'no program'}"
        yield Finding("mode", path, what, patch=patch, found=seen.digest)


def _other(view: View, path: str, want: Want, seen: Seen, change: Change | None) -> Finding:
    patch = want.patches[0] if want.patches else ""
    if want.old and seen.digest == want.old:
        what = f"it has the pin's bytes: {', '.join(want.patches)} is not in place"
        return Finding("carried-missing", path, what, patch=patch, found=seen.digest)
    what = f"it is not what {want.by} says: {want.digest} was wanted"
    kind = "record" if path.endswith(".dist-info/RECORD") else "changed"
    one = Finding(kind, path, what, patch=patch, found=seen.digest)
    data = view.read(path)
    return _by_line(one, change.new.data, data) if data and change and change.new else one


def _by_line(one: Finding, wants: bytes, has: bytes) -> Finding:
    """The same with the first run of lines that differs, where it is text."""
    if b"\0" in wants or b"\0" in has:
        return one
    mine, theirs = split(wants), split(has)
    run, *more = runs(mine, theirs)
    rest = (f"… and {len(more)} runs of lines more",) if more else ()
    detail = (*shown(mine[run.a : run.b], theirs[run.c : run.d]), *rest)
    return one._replace(line=run.c + 1, end=max(run.d, run.c + 1), detail=detail)


def _odd(view: View, path: str, seen: Seen) -> str:
    if seen.kind != "symlink":
        return view.odd.get(path, "it is no regular file")
    end = "" if view.real(path) is not None else ", without an end"
    return f"it is a symbolic link to {view.links.get(path, '?')}{end}"


def _extra(view: View, path: str) -> Finding:
    seen = view.files[path]
    if seen.kind != "file":
        return Finding("extra", path, f"{_odd(view, path, seen)}, and nothing lists it")
    first = path.rpartition(".")[2] in ("so", "pyd")
    more = ": Python takes it before a source of that name" if first else ""
    return Finding("extra", path, f"no RECORD and no patch lists it, {seen.size} bytes{more}", found=seen.digest)


def _recorded_otherwise(place: Installed, wants: Mapping[str, Want]) -> Iterator[Finding]:
    """A RECORD that says other bytes than who knows better: tools that check it would raise a false alarm, or none."""
    listed = recorded(place)
    for path, want in wants.items():
        if path in place.records:
            continue
        said = listed.get(path)
        if said is None and want.digest != GONE:
            yield Finding("record", path, f"no RECORD lists it, and {want.by} has it")
        elif said is not None and want.digest == GONE:
            yield Finding("record", path, f"{said.by} lists it, and {want.by} removes it")
        elif said is not None and said.digest and want.digest and said.digest != want.digest:
            yield Finding("record", path, f"{said.by} says {said.digest}, {want.by} says {want.digest}")


def _unlike_pin(view: View, place: Installed, wants: Mapping[str, Want], pin: PinTree) -> Iterator[Finding]:
    """Where the installed package is not the pin's source, though its RECORD says that it was installed so."""
    strange = _not_of_others(place, pin)
    for path in [path for path in view.below(place.root) if path in wants and not wants[path].patches]:
        inner, seen = path.removeprefix(f"{place.site}/"), view.at(path) or view.files[path]
        if inner in pin.files:
            if seen.digest != digests.of(pin.files[inner]):
                one = Finding("unlike-pin", path, "other bytes than in the pin's source", found=seen.digest)
                data = view.read(path)
                yield _by_line(one, pin.files[inner], data) if data else one
        elif inner in strange:
            what = f"the pin's source has no such module, and {strange[inner]} lists it"
            yield Finding("unlike-pin", path, what, found=seen.digest)
    start = f"{place.top}/"
    for inner in pin.files:
        path = f"{place.site}/{inner}"
        if inner.startswith(start) and inner.endswith(".py") and path not in wants and path not in view.files:
            yield Finding("unlike-pin", path, "the pin's source has this module, and it was not installed")


def _not_of_others(place: Installed, pin: PinTree) -> dict[str, str]:
    """The modules that another distribution lists than one which is pinned and has no tree, and the RECORD of each."""
    found: dict[str, str] = {}
    for path, data in place.records.items():
        rows = record.rows(data, path)
        name = normal(path.split("/")[-2].removesuffix(".dist-info").partition("-")[0])
        if not pin.files or (name in pin.pinned and not any(row in pin.files for row in rows)):
            continue
        found |= {row: f"/{path}" for row in rows if row.endswith(".py")}
    return found
