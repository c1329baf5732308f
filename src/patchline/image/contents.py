"""What the layers of an image make of the files that are asked for: whiteouts, replaced folders, hard links."""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Iterable, Mapping
from tarfile import TarInfo
from typing import TYPE_CHECKING, NamedTuple

from patchline.errors import SourceMismatch
from patchline.image.layer import MARK
from patchline.paths import ancestors, fault

if TYPE_CHECKING:
    from patchline.image.unpack import Read

MOST = 16 * 2**20
"""Bytes of a file that is read; of a longer one no digest is known."""

_HIDDEN = MARK + MARK
"""Before the name of what is about the layer itself."""
OPAQUE = f"{_HIDDEN}.opq"
"""The name of what hides all that lower layers have in its folder."""


class Node(NamedTuple):
    """What lies at a path. `mode` has the permission bits only."""

    kind: str
    """`file`, `folder`, `symlink` or `other`."""
    mode: int = 0o755
    uid: int = 0
    gid: int = 0
    size: int = 0
    digest: str = ""
    """Of a file that was asked for and is not too long."""
    data: bytes = b""
    """Of a file whose bytes were asked for."""
    target: str = ""
    """What a hard link leads to, where that was not asked for."""


class Asked(NamedTuple):
    """Which files' digests are taken, and of which the bytes are kept too; patterns of whole paths."""

    files: re.Pattern[str]
    kept: re.Pattern[str]
    also: Mapping[str, bool] = {}
    """Paths whose digests are taken as well, and whether their bytes are kept."""

    def wants(self, path: str) -> bool:
        """Whether anything is to be known of `path`, beyond that it is a folder."""
        return path in self.also or bool(self.files.fullmatch(path) or self.kept.fullmatch(path))


class Contents:
    """All folders of an image, and the nodes that were asked for, by their paths without a leading slash."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.nodes: dict[str, Node] = {}

    def lay(self, members: Iterable[tuple[TarInfo, Read]], where: str) -> None:
        """Puts a layer on top; what it removes is what lies in the layers below, wherever in it that is said."""
        added: dict[str, Node] = {}
        removed: list[tuple[str, bool]] = []
        for member, read in members:
            path = _path(member.name, where)
            folder, name = posixpath.split(path)
            if name.startswith(MARK):
                if name == OPAQUE:
                    removed.append((folder, False))
                elif not name.startswith(_HIDDEN):  # bookkeeping of aufs
                    removed.append((posixpath.join(folder, name.removeprefix(MARK)), True))
            elif path:
                self._add(added, path, member, read, where)
        for path, itself in removed:
            _remove(self.nodes, path, itself=itself)
        for path, node in added.items():
            if node.kind != "folder" and self.nodes.get(path, node).kind == "folder":
                _remove(self.nodes, path, itself=True)
        self.nodes |= added
        if removed or added:
            self._fill(added)

    def _add(self, added: dict[str, Node], path: str, member: TarInfo, read: Read, where: str) -> None:
        had = added.get(path)
        if had is not None and had.kind == "folder" and not member.isdir():
            _remove(added, path, itself=True)
        who = (member.mode & 0o7777, member.uid, member.gid)
        if member.isdir():
            added[path] = Node("folder", *who)
        elif not self.asked.wants(path):
            if path in self.nodes:
                added[path] = Node("other", *who)  # hides what lies there, or below it
            else:
                added.pop(path, None)
        elif member.islnk():
            target = _path(member.linkname, where)
            found = added.get(target) or self.nodes.get(target)
            added[path] = found if found and found.kind in ("file", "symlink") else Node("file", *who, target=target)
        elif member.isreg():
            added[path] = self._read(path, member, read)
        else:
            added[path] = Node("symlink" if member.issym() else "other", *who)

    def _read(self, path: str, member: TarInfo, read: Read) -> Node:
        node = Node("file", member.mode & 0o7777, member.uid, member.gid, member.size)
        if member.size > MOST:
            return node
        if self.asked.kept.fullmatch(path) or self.asked.also.get(path):
            data = b"".join(iter(read, b""))
            return node._replace(digest=f"sha256:{hashlib.sha256(data).hexdigest()}", data=data)
        total = hashlib.sha256()
        while piece := read():
            total.update(piece)
        return node._replace(digest=f"sha256:{total.hexdigest()}")

    def _fill(self, added: dict[str, Node]) -> None:
        """Folders that no layer states are there all the same."""
        for path in added:
            for folder in ancestors(path):
                self.nodes.setdefault(folder, Node("folder"))


def unresolved(contents: Contents) -> dict[str, bool]:
    """What hard links lead to that has to be asked for as well, as `Asked.also`."""
    found: dict[str, bool] = {}
    for path, node in contents.nodes.items():
        if node.target:
            found[node.target] = found.get(node.target, False) or bool(contents.asked.kept.fullmatch(path))
    return found


def _remove(nodes: dict[str, Node], path: str, *, itself: bool) -> None:
    found = nodes.get(path, Node("folder") if path == "" else None)
    if found is None:  # every folder that holds anything is known
        return
    if found.kind != "folder":
        if itself:
            del nodes[path]
        return
    start = f"{path}/" if path else ""
    for one in [one for one in nodes if one.startswith(start)]:
        del nodes[one]
    if itself:
        nodes.pop(path, None)


def _path(name: str, where: str) -> str:
    """A member's path from the image's root; `` for the root itself."""
    path = name.rstrip("/").removeprefix("/").removeprefix("./")
    if path in ("", "."):
        return ""
    parts = path.split("/")
    if ".." in parts or "" in parts or "." in parts or "\0" in path:
        raise SourceMismatch(f"a layer holds a path that leaves the image, or has two spellings: {name!r}", where=where)
    return path


def is_safe(path: str) -> bool:
    """Whether a path of an image may be written, and stands in a file of ours as it is."""
    return fault(path) is None and "\n" not in path
