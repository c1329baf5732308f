"""What a series is applied to: a commit of a repository, or a folder."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from hashlib import sha1, sha256
from pathlib import Path
from typing import NamedTuple, Protocol

from patchline.errors import UsageError
from patchline.git import git, start
from patchline.paths import ancestors
from patchline.run import Started

_ARGUMENTS = 500_000  # bytes of paths a command line; the system's own limit is about 2 MB


class Entry(NamedTuple):
    """A file: `mode` is git's (0o100644, 0o100755; 0o120000 and 0o160000 are never written)."""

    mode: int
    data: bytes


class Tree(Protocol):
    """Reads files by their path from the top, with `/`."""

    def load(self, paths: Iterable[str]) -> None:
        """Reads ahead what will be asked for."""

    def entry(self, path: str) -> Entry | None:
        """The file at `path`; None where there is none."""

    def below(self, path: str) -> list[str]:
        """The files below the folder `path`, by their paths from the top."""


class CommitTree:
    """The tree of one commit. Files are read in one go, ahead of use.

    Where the work tree holds a file with the very bytes of its blob (its hash says so), the bytes
    come from there: no unpacking.
    """

    def __init__(self, repo: Path, commit: str) -> None:
        self.repo, self.commit = repo, commit
        self._hash = sha1 if len(commit) == 40 else sha256
        self._known: dict[str, tuple[int, str]] = {}
        self._entries: dict[str, Entry | None] = {}
        self._folders: set[str] = set()

    def load(self, paths: Iterable[str]) -> None:
        """Reads ahead; see `Tree`."""
        wanted = {path for path in paths if path not in self._entries}
        wanted |= {folder for path in wanted for folder in ancestors(path)}
        blobs: dict[str, list[tuple[str, int]]] = {}
        options = ("-z", "-t", "--full-tree", self.commit, "--")
        listings = [start(self.repo, "ls-tree", *options, *paths) for paths in _batches(sorted(wanted))]
        try:
            files = {path: self._checked_out(path) for path in wanted}  # while git lists
            listed = list(_listed(listings, wanted))
        finally:
            for one in listings:
                one.stop()
        for path, mode, name in listed:
            if mode == 0o040000:
                self._folders.add(path)
                continue
            self._known[path] = mode, name
            if mode == 0o160000:
                self._entries[path] = Entry(mode, b"")
            elif self.id_of(files[path]) == name:
                self._entries[path] = Entry(mode, files[path])
            else:
                blobs.setdefault(name, []).append((path, mode))
        for name, data in self._blobs(list(blobs)):
            self._entries |= {path: Entry(mode, data) for path, mode in blobs[name]}
        for path in wanted:
            self._entries.setdefault(path, None)

    def _checked_out(self, path: str) -> bytes:
        try:
            with open(f"{self.repo}/{path}", "rb", opener=_no_link) as file:
                return file.read()
        except OSError:
            return b""

    def id_of(self, data: bytes) -> str:
        """The id of a blob in this repository."""
        return self._hash(b"blob %d\0%b" % (len(data), data)).hexdigest()

    def known(self, path: str) -> tuple[int, str] | None:
        """Mode and blob of the file at `path`; None where there is none."""
        self.entry(path)
        return self._known.get(path)

    def _blobs(self, names: list[str]) -> Iterator[tuple[str, bytes]]:
        if not names:
            return
        out, at = git(self.repo, "cat-file", "--batch", input="".join(f"{name}\n" for name in names).encode()), 0
        for name in names:
            end = out.index(b"\n", at)
            size = int(out[at:end].split(b" ")[2])
            yield name, out[end + 1 : end + 1 + size]
            at = end + size + 2

    def entry(self, path: str) -> Entry | None:
        """See `Tree`."""
        if path not in self._entries:
            self.load([path])
        return self._entries[path]

    def below(self, path: str) -> list[str]:
        """See `Tree`."""
        self.entry(path)
        if path not in self._folders:
            return []
        out = git(self.repo, "ls-tree", "-r", "-z", "--name-only", "--full-tree", self.commit, "--", f"{path}/")
        return [os.fsdecode(name) for name in out.split(b"\0")[:-1]]


def _listed(listings: Iterable[Started], among: set[str]) -> Iterator[tuple[str, int, str]]:
    """Path, mode and id of what git lists; only of `among`, since it lists whole folders on the way."""
    names = {os.fsencode(path): path for path in among}
    for listing in listings:
        for record in listing.end().stdout.split(b"\0")[:-1]:
            head, _, name = record.partition(b"\t")
            if name in names:
                mode, _, blob = head.split(b" ")
                yield names[name], int(mode, 8), blob.decode()


def _batches(paths: list[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    weight = 0
    for path in paths:
        weight += len(os.fsencode(path)) + 9  # its NUL, and the pointer to it
        if weight > _ARGUMENTS and batch:
            yield batch
            batch, weight = [], len(path)
        batch.append(path)
    if batch:
        yield batch


def _no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW)


class FolderTree:
    """A folder on disk, with or without git around it."""

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            raise UsageError(f"there is no folder {root}", next="give the source's folder with --source")
        self.root = root

    def load(self, paths: Iterable[str]) -> None:
        """Nothing: the file system reads ahead better than we could."""

    def entry(self, path: str) -> Entry | None:
        """See `Tree`."""
        full = self.root / path
        try:
            status = os.lstat(full)
        except OSError:  # not there, below a file, a loop of links, longer than the file system takes
            return None
        if stat.S_ISLNK(status.st_mode):
            return Entry(0o120000, os.fsencode(os.readlink(full)))
        if stat.S_ISDIR(status.st_mode):
            return None
        if not stat.S_ISREG(status.st_mode):
            return Entry(0o160000, b"")  # a device or a socket: never written, like a submodule
        try:
            return Entry(0o100755 if status.st_mode & 0o100 else 0o100644, full.read_bytes())
        except OSError as bad:
            raise UsageError(f"{full} cannot be read: {bad.strerror}", next=f"ls -l {full}") from bad

    def below(self, path: str) -> list[str]:
        """See `Tree`."""
        full = self.root / path
        if full.is_symlink() or not full.is_dir():
            return []
        found = [Path(folder, name) for folder, _, names in os.walk(full) for name in names]
        return [file.relative_to(self.root).as_posix() for file in found] or [f"{path}/"]
