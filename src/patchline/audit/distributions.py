"""The distribution that a package belongs to: what lies in its `.dist-info` folder, a second one of its name, none."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterator, Sequence

from patchline.audit.finding import Finding
from patchline.audit.syspath import USER
from patchline.audit.view import View
from patchline.audit.wanted import Installed
from patchline.image import record
from patchline.image.lock import Lock
from patchline.pins.select import normal

_UNLISTED = ("RECORD", "RECORD.jws", "RECORD.p7s")
"""What no RECORD need list ("Recording installed projects")."""


def findings(view: View, place: Installed, lock: Lock | None, wants: Collection[str]) -> Iterator[Finding]:
    """Files there that no RECORD lists, as an entry point that was slipped in, and distributions of the same name.

    `importlib.metadata`, and so every plugin's loader, answers with whichever of these it finds first.
    """
    own = [path for path in sorted(place.records) if lock is None or path in lock.records] or sorted(place.records)
    listed = {*wants, *_locked(place, lock)}
    folders = {normal(_name(path)): posixpath.dirname(path) for path in reversed(own)}
    for folder in folders.values():
        for path in view.below(folder):
            if path not in listed and posixpath.basename(path) not in _UNLISTED:
                seen = view.files[path]
                what = f"no RECORD lists it, {seen.size} bytes" if seen.kind == "file" else f"a {seen.kind}"
                yield Finding("extra", path, what, found=seen.digest)
    for other in _others(view, place.site):
        first = folders.get(normal(_name(f"{other}/RECORD")))
        if first not in (None, other):
            what = f"a second distribution of that name beside /{first}: importlib.metadata answers with either"
            yield Finding("shadowed", other, what)


def _locked(place: Installed, lock: Lock | None) -> Iterator[str]:
    """What the base's own RECORD files list: that of the image may be forged."""
    for path, data in lock.records.items() if lock is not None else ():
        if path in place.records:
            yield from (posixpath.normpath(posixpath.join(place.site, row)) for row in record.rows(data, path))


def _others(view: View, site: str) -> list[str]:
    start = f"{site}/" if site else ""
    parts = (path.removeprefix(start).partition("/")[0] for path in view.below(site))
    return sorted({f"{start}{part}" for part in parts if part.endswith(".dist-info")})


def _name(record: str) -> str:
    return record.split("/")[-2].removesuffix(".dist-info").partition("-")[0]


def unlisted(view: View, places: Sequence[Installed]) -> Iterator[Finding]:
    """Copies of a package in site-packages of other Pythons or environments, where no RECORD says what they must be.

    Users' own places and Debian's are not among them: `entries` knows who looks there.
    """
    for top in sorted({one.top for one in places}):
        known = {one.site for one in places if one.top == top}
        inside = re.compile(rf"((?:.+/)?site-packages)/{re.escape(top)}/__init__(?:\.[^/]+)?\.(?:py|pyc|so)")
        sites = {found[1] for path in view.files if (found := inside.fullmatch(path))} - known
        for site in sorted(one for one in sites if not USER.fullmatch(one)):
            what = f"{top} lies here, too, and no RECORD lists it: nothing says what it has to be"
            yield Finding("shadowed", posixpath.join(site, top), what)
