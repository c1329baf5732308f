"""Where an overlay's files go in a locked base; every file that one replaces has the pin's bytes there."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from patchline.errors import Refused, SourceMismatch
from patchline.image import record, unsuited
from patchline.image.lock import Lock
from patchline.overlay import Change, Overlay

_AGAIN = "make the base lock again: it was made for other packages"


class Placed(NamedTuple):
    """One change of an overlay, at its place in the image."""

    path: str
    """From the image's root."""
    change: Change
    record: str
    """Path of the RECORD that lists the file, or will."""
    bytecode: tuple[str, ...]
    """Byte-code of the module that it replaces, adds or removes: what the base has of it, by its paths."""


class _Listed(NamedTuple):
    """A RECORD of the base."""

    site: str
    rows: dict[str, str]


def place(lock: Lock, overlays: Sequence[Overlay]) -> list[Placed]:
    """Where each change goes in the base, after all of them were held against the lock.

    Raises:
        SourceMismatch: the base's package is of another version than the pin, is already patched, or has other
            bytes; all files are named.
        Refused: two overlays change one file, or the base would run something else than a replaced file.
    """
    where = f"base {lock.contents.base}"
    listed = {path: _Listed(_site(path), record.rows(data, path)) for path, data in lock.records.items()}
    faults = [fault for one in overlays for fault in unsuited.versions(one, _owners(lock, one, listed))]
    changes = [change for one in overlays for change in one.changes]
    compiled = unsuited.compiled(lock)
    faults = faults or [fault for one in changes for fault in unsuited.file(lock, path_of(lock, one), one, compiled)]
    if faults:
        raise SourceMismatch(
            "this base is not what the overlay was made for\n" + "\n".join(f"  {fault}" for fault in faults),
            where=where,
            next="pin a base that holds the pin's version, unpatched",
        )
    placed = [one for overlay in overlays for one in _placed(lock, overlay, listed)]
    twice = sorted({one.path for one in placed if sum(other.path == one.path for other in placed) > 1})
    if twice:
        raise Refused(f"two overlays change the same file: {', '.join(twice)}", where=where)
    return sorted(placed, key=lambda one: one.path)


def path_of(lock: Lock, change: Change) -> str:
    """Where a changed file lies in the image.

    Raises:
        SourceMismatch: the lock does not speak of its package.
    """
    top = change.path.split("/", 1)[0]
    site = lock.contents.sites.get(top)
    if site is None:
        raise SourceMismatch(f"the base lock says nothing of the package {top}", next=_AGAIN)
    return f"{site}/{change.path}"


def _site(path_of_record: str) -> str:
    return posixpath.dirname(posixpath.dirname(path_of_record))


def _owners(lock: Lock, overlay: Overlay, listed: Mapping[str, _Listed]) -> set[str]:
    """The RECORDs that list a file which the overlay replaces; where it only adds files, all of their packages."""
    replaced = [one for one in overlay.changes if one.old is not None]
    found = set()
    for change in replaced:
        site = path_of(lock, change).removesuffix(f"/{change.path}")
        found |= {path for path, one in listed.items() if one.site == site and change.path in one.rows}
    if found:
        return found
    sites = {
        path_of(lock, one).removesuffix(f"/{one.path}"): f"{one.path.split('/', 1)[0]}/" for one in overlay.changes
    }
    return {
        path
        for path, one in listed.items()
        if one.site in sites and any(row.startswith(sites[one.site]) for row in one.rows)
    }


def _placed(lock: Lock, overlay: Overlay, listed: Mapping[str, _Listed]) -> Iterator[Placed]:
    owners = _owners(lock, overlay, listed)
    for change in overlay.changes:
        path = path_of(lock, change)
        site = path.removesuffix(f"/{change.path}")
        own = [one for one in owners if listed[one].site == site]
        if change.old is not None:
            own = [one for one in own if change.path in listed[one].rows]
        if len(own) != 1:
            owned = "several RECORDs list" if own else "no RECORD lists"
            raise SourceMismatch(f"{owned} /{path}, or could: {sorted(own)}", where=f"base {lock.contents.base}")
        yield Placed(path, change, own[0], _bytecode(lock, path))


def _bytecode(lock: Lock, path: str) -> tuple[str, ...]:
    """What Python could run instead of a module's source: its cached byte-code, and byte-code beside it."""
    if not path.endswith(".py"):
        return ()
    return tuple(one for one in lock.contents.bytecode if source_of(one) == path)


def source_of(bytecode: str) -> str:
    """The module that byte-code is of: `a/__pycache__/b.cpython-312.opt-1.pyc` and `a/b.pyc` give `a/b.py`."""
    folder, name = posixpath.split(bytecode.removesuffix(".pyc"))
    if posixpath.basename(folder) == "__pycache__":
        folder, name = posixpath.dirname(folder), name.split(".", 1)[0]
    return posixpath.join(folder, f"{name}.py")
