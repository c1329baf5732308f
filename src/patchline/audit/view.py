"""What an audit sees of an image or of a folder: the files that matter to it, by their paths from the root."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

_SITE = r"(?:.+/)?(?:site|dist)-packages"

HOPS = 40
"""Symbolic links that Linux follows in one path (MAXSYMLINKS)."""


class Held(NamedTuple):
    """Permission bits and owner of a file."""

    mode: int
    uid: int
    gid: int

    def __str__(self) -> str:
        return f"{self.mode:04o}, owner {self.uid}:{self.gid}"


class Seen(NamedTuple):
    """What lies at a path."""

    kind: str
    """`file`, `symlink` or `other`."""
    size: int = 0
    digest: str = ""
    mtime: int = 0
    """Seconds."""
    head: bytes = b""
    """The first 16 bytes of byte-code."""
    data: bytes = b""
    """Of a file whose bytes were asked for."""
    held: Held | None = None
    """None where nobody looked: in a folder on disk they are the installer's."""


class View(NamedTuple):
    """A merged view; nothing of it is on disk, or all of it is and was only read."""

    files: Mapping[str, Seen]
    """What was asked for, but folders."""
    folders: Collection[str]
    links: Mapping[str, str]
    """Where each symbolic link points, by its path."""
    odd: Mapping[str, str]
    """Members of layers that no image should hold, by their paths, and what they are."""
    read: Callable[[str], bytes]
    """The bytes of a file that was asked for; none where they were not kept."""

    def real(self, path: str) -> str | None:
        """`path` without symbolic links, from the root; None where they lead in a circle or too far."""
        return real(path, self.links)

    def at(self, path: str) -> Seen | None:
        """What Python would open at `path`; a link itself where it leads nowhere."""
        found = self.files.get(path)
        if found is not None and found.kind != "symlink":
            return found
        there = self.real(path)
        return (self.files.get(there) if there is not None else None) or found

    def below(self, folder: str) -> list[str]:
        """The files below a folder that were asked for."""
        start = f"{folder}/" if folder else ""
        return [path for path in self.files if path.startswith(start)]


class Patterns(NamedTuple):
    """Which paths matter to an audit of the packages `tops`."""

    files: re.Pattern[str]
    kept: re.Pattern[str]


def patterns(tops: Collection[str], kept: Collection[str] = (), more: Collection[str] = ()) -> Patterns:
    """Whatever bears a package's name anywhere, what may lead Python to it, and what says what should be there.

    Of RECORD files, `.pth` files, settings of virtual environments, our own file, and of the files `kept` (by their
    paths below site-packages), the bytes are wanted, too. Whether there is a file at the paths `more` is to be known.
    """
    names = "|".join(re.escape(top) for top in sorted(tops))
    files = (
        rf"(?:.+/)?(?:{names})(?:/.*|(?:\.[^/]+)?\.(?:py|pyc|so|pyd))?"
        r"|(?:.+/)?(?:site|user)customize(?:/__init__)?(?:\.[^/]+)?\.(?:py|pyc|so)|(?:.+/)?lib/python3\d+\.zip"
        rf"|(?:.+/)?bin/[^/]*(?:{names})[^/]*|{_SITE}/[^/]+\.dist-info/.*"
    ) + "".join(f"|{re.escape(posixpath.normpath(path))}" for path in sorted(more))
    own = "|".join(re.escape(path) for path in sorted(kept))
    wanted = rf"{_SITE}/[^/]+\.dist-info/RECORD|{_SITE}/[^/]+\.pth|(?:.+/)?pyvenv\.cfg|etc/patchline/[^/]+" + (
        rf"|{_SITE}/(?:{own})" if own else ""
    )
    return Patterns(re.compile(files, re.DOTALL), re.compile(wanted, re.DOTALL))


def real(path: str, links: Mapping[str, str]) -> str | None:
    """Follows symbolic links as the kernel would, below the image's root; None where that does not end."""
    left, done, hops = path.split("/")[::-1], list[str](), 0
    while left:
        part = left.pop()
        if part in ("", "."):
            continue
        if part == "..":
            del done[-1:]
            continue
        target = links.get(posixpath.join("", *done, part))
        if target is None:
            done.append(part)
            continue
        hops += 1
        if hops > HOPS:
            return None
        done = [] if target.startswith("/") else done
        left += target.split("/")[::-1]
    return "/".join(done)
