"""What a base lock needs not know of a layer's members, noted while they pass: times, links, first bytes, odd kinds."""

from __future__ import annotations

import hashlib
import math
import posixpath
from collections.abc import Iterable, Iterator
from tarfile import TarInfo
from typing import NamedTuple

from patchline.audit.view import real
from patchline.errors import SourceMismatch
from patchline.image.contents import MOST, OPAQUE, Asked
from patchline.image.layer import MARK, removed_by
from patchline.image.unpack import Read

_BYTECODE_HEAD = 16
_NO_NAMES = (MARK, f"{MARK}.", f"{MARK}..")


class Noted(NamedTuple):
    """Of one member."""

    mtime: int
    head: bytes = b""
    digest: str = ""
    """Of a file that is too long to be kept; it was read past."""


class Watch:
    """Notes on the layers of one image, the lowest first; a later note on a path takes the place of an earlier one."""

    def __init__(self, asked: Asked, where: str) -> None:
        self.asked, self.where = asked, where
        self.links: dict[str, str] = {}
        self.noted: dict[str, Noted] = {}
        self.odd: dict[str, str] = {}

    def layer(self, members: Iterable[tuple[TarInfo, Read]]) -> Iterator[tuple[TarInfo, Read]]:
        """The members of one layer, with the names that they have once symbolic links on the way are followed.

        So do container runtimes: a file below a link to a folder goes where that link leads.
        """
        own = set[str]()
        folders = dict[str, str]()
        for member, read in members:
            known = len(self.links)
            self._refuse(member)
            path = self._follow(member, folders)
            yield from self._noted(member, path, read, own)
            if member.issym() or len(self.links) != known:
                folders.clear()

    def _refuse(self, member: TarInfo) -> None:
        """Refuses what container runtimes read as another file than tarfile does, or do not read at all.

        An empty `path` of an extended header means the plain header's name to them, and `GNU.sparse.name` counts for
        sparse files only (Go's archive/tar, which they all use). A whiteout of `..` would remove the folder above.
        """
        empty = [name for name in ("path", "linkpath") if member.pax_headers.get(name) == ""]
        sparse = [name for name in member.pax_headers if name.startswith("GNU.sparse.")]
        known = "GNU.sparse.map" in sparse or "GNU.sparse.major" in sparse
        if empty or (sparse and not known):
            what = f"a layer names {member.name!r} in a way that unpackers do not agree on: {(empty + sparse)[0]}"
            raise SourceMismatch(what, where=self.where)
        if not math.isfinite(member.mtime):
            raise SourceMismatch(f"a layer gives {member.name!r} the time {member.mtime}", where=self.where)
        if posixpath.basename(member.name.rstrip("/")) in _NO_NAMES:
            raise SourceMismatch(f"a layer holds a whiteout of no name: {member.name!r}", where=self.where)

    def _follow(self, member: TarInfo, folders: dict[str, str]) -> str:
        if member.name.startswith("/"):
            self.odd[_plain(member.name)] = f"it is named by an absolute path: {member.name}"
        path = member.name = self._through(_plain(member.name), folders)
        if member.islnk():
            member.linkname = self._through(_plain(member.linkname), folders)
        return path

    def _through(self, path: str, folders: dict[str, str]) -> str:
        folder, name = posixpath.split(path)
        if not folder or ".." in path.split("/"):  # what leaves the image is refused by whoever lays the layer
            return path
        if folder not in folders:
            found = real(folder, self.links)
            if found is None:
                raise SourceMismatch(f"a layer writes {path!r} through symbolic links without an end", where=self.where)
            folders[folder] = found
        return posixpath.join(folders[folder], name)

    def _noted(self, member: TarInfo, path: str, read: Read, own: set[str]) -> Iterator[tuple[TarInfo, Read]]:
        folder, name = posixpath.split(path)
        if (gone := removed_by(path)) is not None:
            self._remove(folder if name == OPAQUE else gone, own)
            yield member, read
            return
        own.add(path)
        self._kind(member, path)
        if not self.asked.wants(path):
            yield member, read
            return
        if member.islnk():
            self.noted[path] = self.noted.get(member.linkname, Noted(int(member.mtime)))
            yield member, read
            return
        digest = _digest(read) if member.isreg() and member.size > MOST else ""
        heads = list[bytes]()
        yield member, _first(read, heads) if path.endswith(".pyc") else read
        self.noted[path] = Noted(int(member.mtime), b"".join(heads), digest)

    def _kind(self, member: TarInfo, path: str) -> None:
        self.links.pop(path, None)
        if self.odd.get(path, "").startswith("a "):
            del self.odd[path]
        if member.issym():
            self.links[path] = member.linkname
        elif member.ischr() or member.isblk():
            self.odd[path] = f"a device, {member.devmajor}:{member.devminor}"
        elif member.isfifo():
            self.odd[path] = "a named pipe"

    def _remove(self, path: str, own: set[str]) -> None:
        """A whiteout: what lies there, or below it, in the layers below."""
        for notes in (self.links, self.odd):
            below = [one for one in notes if not path or one == path or one.startswith(f"{path}/")]
            for one in set(below) - own:
                del notes[one]


def _plain(name: str) -> str:
    return name.rstrip("/").removeprefix("/").removeprefix("./")


def _digest(read: Read) -> str:
    total = hashlib.sha256()
    while piece := read():
        total.update(piece)
    return f"sha256:{total.hexdigest()}"


def _first(read: Read, heads: list[bytes]) -> Read:
    """Reads the same, and keeps the first bytes."""

    def reading() -> bytes:
        piece = read()
        if not heads and piece:
            heads.append(piece[:_BYTECODE_HEAD])
        return piece

    return reading
