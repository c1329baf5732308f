"""What each file of an installed package has to be, by those who know: an overlay, a base lock, a RECORD, the pin."""

from __future__ import annotations

import base64
import binascii
import posixpath
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from patchline.audit.view import Held, View
from patchline.errors import SourceMismatch
from patchline.image import append, digests, places, record
from patchline.image.lock import Lock
from patchline.overlay import Overlay


class Want(NamedTuple):
    """What has to lie at a path."""

    digest: str
    """Empty where only its being there is known; `GONE` where nothing may lie there."""
    by: str
    """Who says so."""
    patches: tuple[str, ...] = ()
    old: str = ""
    """Digest of the bytes that a patch replaces."""
    held: Held | None = None
    """Mode and owner that it has to have; None where nobody knows them."""
    runs: bool | None = None
    """Where only that is known: whether its owner may run it, as an overlay says."""


GONE = "gone"


class PinTree(NamedTuple):
    """What is known of the source of a package."""

    files: Mapping[str, bytes]
    """The pin's own files, by path below site-packages; none where there is no one tree of it."""
    pinned: frozenset[str]
    """The names of all pinned distributions: one without a tree may share the package's folder."""


class Patched(NamedTuple):
    """An overlay, and the patches that change each of its files."""

    overlay: Overlay
    patches: Mapping[str, tuple[str, ...]]


class Installed(NamedTuple):
    """One package in one place."""

    site: str
    top: str
    records: Mapping[str, bytes]
    """The RECORD files of that place which list files of the package, by path."""

    @property
    def root(self) -> str:
        """Its folder."""
        return posixpath.join(self.site, self.top)


def installed(view: View, tops: Collection[str]) -> list[Installed]:
    """Every place of every package that some RECORD knows.

    Raises:
        SourceMismatch: there is none, or a RECORD is none.
    """
    places: dict[tuple[str, str], dict[str, bytes]] = {}
    for path in sorted(view.files):
        if path.endswith(".dist-info/RECORD"):
            data = view.read(path)
            for top in tops:
                if f"{top}/".encode() in data and any(row.startswith(f"{top}/") for row in record.rows(data, path)):
                    places.setdefault((posixpath.dirname(posixpath.dirname(path)), top), {})[path] = data
    missing = sorted(set(tops) - {top for _, top in places})
    if missing:
        raise SourceMismatch(f"no RECORD lists a file of {', '.join(missing)}: no file could be compared")
    return [Installed(site, top, records) for (site, top), records in places.items()]


def wanted(place: Installed, lock: Lock | None, patched: Sequence[Patched]) -> dict[str, Want]:
    """What has to lie at every path of the package and of the distributions that own it."""
    made = recorded(place)
    if lock is not None and lock.contents.sites.get(place.top) == place.site:
        own = {path: data for path, data in place.records.items() if path in lock.records}
        made = recorded(place._replace(records=own))  # who adds files can add a RECORD for them
        made |= _locked(place, lock, [one.overlay for one in patched])
    for one in patched:
        made |= {
            path: want._replace(held=made[path].held if path in made else None) for path, want in _changed(place, one)
        }
    return made


def recorded(place: Installed) -> dict[str, Want]:
    """What the RECORD files of a place say; of two that list one file, the first one's word."""
    made: dict[str, Want] = {}
    for path, data in place.records.items():
        for row, digest in record.rows(data, path).items():
            full = posixpath.normpath(posixpath.join(place.site, row))
            if row.endswith((".pyc", "/RECORD")) or full.startswith("../"):
                continue
            made.setdefault(full, Want(_digest(digest, path), f"/{path}"))
    return made


def _digest(text: str, where: str) -> str:
    """A RECORD's hash in the form of all other digests; nothing where it has none, or one of another kind."""
    kind, _, value = text.partition("=")
    if kind != "sha256":
        return ""
    try:
        found = base64.urlsafe_b64decode(f"{value}=").hex()
    except (binascii.Error, ValueError) as bad:
        raise SourceMismatch(f"a hash of this RECORD is none: {text}", where=where) from bad
    return f"sha256:{found}"


def _locked(place: Installed, lock: Lock, overlays: Sequence[Overlay]) -> dict[str, Want]:
    """What the base has there, and the RECORD files as a cut corrects them."""
    start, by = f"{place.root}/", "the base lock"
    made = {path: Want(file.digest, by) for path, file in lock.contents.files.items() if path.startswith(start)}
    made |= {path: Want(digests.of(data), by) for path, data in lock.records.items() if path in place.records}
    for path, entry in (append.entries(lock, places.place(lock, overlays), {}) if overlays else {}).items():
        if entry.kind == "file" and (path in place.records or path.startswith(start)):
            made[path] = Want(digests.of(entry.data), "the cut", held=Held(entry.mode, entry.uid, entry.gid))
    return {path: want for path, want in made.items() if want.digest}


def _changed(place: Installed, one: Patched) -> Iterator[tuple[str, Want]]:
    for change in one.overlay.changes:
        if change.path.split("/", 1)[0] == place.top:
            digest = GONE if change.new is None else digests.of(change.new.data)
            old = digests.of(change.old.data) if change.old else ""
            by = f"the overlay of {one.overlay.name}"
            runs = None if change.new is None else bool(change.new.mode & 0o100)
            patches = one.patches.get(change.path, ())
            yield posixpath.join(place.site, change.path), Want(digest, by, patches, old, runs=runs)
