"""Why a base does not suit an overlay: another version, other bytes, or something that Python would take first."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence

from patchline.image import digests
from patchline.image.lock import File, Lock
from patchline.overlay import Change, Overlay


def versions(overlay: Overlay, records: Iterable[str]) -> Iterator[str]:
    """A distribution that owns files of the overlay has to be of the pin's version; `+cu130` may follow."""
    name, _, wanted = overlay.name.partition("==")
    for path in sorted(records):
        distribution = posixpath.basename(posixpath.dirname(path)).removesuffix(".dist-info")
        there = distribution.partition("-")[2]
        if there != wanted and not _same(there, wanted):
            yield f"it has {distribution}, and the overlay is one of {name} {wanted}"


def _same(there: str, wanted: str) -> bool:
    from packaging.version import InvalidVersion, Version

    try:
        return Version(there).public == Version(wanted).public
    except InvalidVersion:
        return False


def compiled(lock: Lock) -> list[str]:
    """The compiled modules of the locked packages."""
    return [one for one in (*lock.contents.files, *lock.contents.odd) if one.endswith((".so", ".pyd"))]


def file(lock: Lock, path: str, change: Change, compiled: Sequence[str]) -> Iterator[str]:
    """What is wrong with the file at `path`, which `change` replaces, adds or removes; `compiled` is the lock's."""
    found = lock.contents.files.get(path)
    new = None if change.new is None else digests.of(change.new.data)
    if path in lock.contents.odd or path in lock.contents.folders:
        yield f"/{path} is no regular file there"
    elif found is None:
        if change.old is not None:
            yield f"/{path} is not there" + (", as if the overlay were in place already" if new is None else "")
    elif found.digest == new and (change.old is None or change.old.data != getattr(change.new, "data", None)):
        yield f"/{path} has the overlay's bytes already: this base is patched"
    elif change.old is None:
        yield f"/{path} is there, and the pin has no such file: {found.digest}"
    elif found.digest != digests.of(change.old.data):
        yield f"/{path} is not the pin's: {digests.of(change.old.data)} was wanted, {_said(found)} is there"
    yield from (f"/{path} would not run: Python takes /{other} first" for other in _shadows(compiled, path))


def _said(found: File) -> str:
    return found.digest or f"a file of {found.size} bytes, too long to be read,"


def _shadows(compiled: Sequence[str], path: str) -> list[str]:
    """Compiled modules of the same name: the import system takes them before a source file."""
    if not path.endswith(".py"):
        return []
    name = path.removesuffix("py")
    near = [one for one in compiled if one.startswith(name)]
    return [one for one in near if re.fullmatch(r"([^/]+\.)?(so|pyd)", one.removeprefix(name))]
