"""Reads and writes what git's index remembers of single files, without git looking at every file.

The form is git's index-format, versions 2 and 3. Whatever else an index is, and every entry that
is not found as expected, is left to git itself.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, TypeVar

_TIMES = struct.Struct(">4L2L")  # ctime and mtime in seconds and nanoseconds, device, inode
_OWNER = struct.Struct(">3L")  # uid, gid, size; the mode between the two stays
_BEFORE_ID = 40  # bytes of an entry before its blob's id
_SHA1 = 20
_LONGEST_NAME = 0xFFF
_32 = 0xFFFFFFFF
_SECOND = 1_000_000_000


class Known(NamedTuple):
    """A file as the index should know it."""

    path: str
    blob: str


class Placed(NamedTuple):
    """A file in the work tree: its blob, and its state as it was when it had just been written."""

    path: str
    blob: str
    mtime_ns: int
    size: int
    inode: int


_File = TypeVar("_File", Known, Placed)


def unsettled(index: bytes, repo: Path, files: Iterable[Known]) -> list[str]:
    """Those of `files` of which the index does not vouch that the work tree has their blob.

    That is: no entry with that blob and without flags (assume-unchanged, skip-worktree), or a file
    with another time or size than git saw.
    """
    found = []
    at = 12
    for file in _sorted(files):
        place = _find(index, file.path, file.blob, at) if _readable(index) else -1
        at = max(at, place)
        if place < 0 or not _as_seen(index, place - _BEFORE_ID, f"{repo}/{file.path}"):
            found.append(file.path)
    return found


def _as_seen(index: bytes, at: int, path: str) -> bool:
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return False
    _, _, seconds, nanoseconds, _, _ = _TIMES.unpack_from(index, at)
    size = _OWNER.unpack_from(index, at + 28)[2]
    mtime = divmod(status.st_mtime_ns, _SECOND)
    return (seconds, nanoseconds, size) == (mtime[0] & _32, mtime[1], status.st_size & _32)


def freshen(index: Path, repo: Path, placed: Iterable[Placed], draft: Path) -> bool:
    """Puts the files' present times into `index`, as git would write it; False where git has to do it.

    A file that is not as it was placed keeps no times: git will look at it. `git update-index
    --refresh` does the same by looking at every file, which is a tenth of a whole series' time.
    The new index is written at `draft`, which also is git's lock meanwhile: whoever finds the two
    to be one file knows whose lock a dead run left.
    """
    lock = index.with_name(f"{index.name}.lock")
    draft.touch()
    try:
        os.link(draft, lock)
    except FileExistsError:
        return False
    try:
        data = _fresh(index.read_bytes(), repo, placed)
        if data:
            draft.write_bytes(data)
            lock.replace(index)
        return bool(data)
    finally:
        if lock.exists() and lock.samefile(draft):
            lock.unlink()


def _fresh(old: bytes, repo: Path, placed: Iterable[Placed]) -> bytes:
    """The index with the files' times; empty where its form is not known."""
    data, at, width = bytearray(old), 12, 0
    if not _readable(old):
        return b""
    for file in _sorted(placed):
        at = _find(data, file.path, file.blob, at)
        if at < 0:
            return b""
        width = len(file.blob) // 2
        status = os.lstat(f"{repo}/{file.path}")
        if (status.st_mtime_ns, status.st_size, status.st_ino) == file[2:]:
            _write(data, at - _BEFORE_ID, status)
    if width and any(data[-width:]):  # git can be told to leave the checksum out
        data[-width:] = (hashlib.sha1 if width == _SHA1 else hashlib.sha256)(data[:-width]).digest()
    return bytes(data)


def _readable(index: bytes) -> bool:
    return index[:4] == b"DIRC" and struct.unpack_from(">L", index, 4)[0] in (2, 3)


def _sorted(files: Iterable[_File]) -> list[_File]:
    """In the order of the index, so that one pass finds them all."""
    return sorted(files, key=lambda file: os.fsencode(file.path))


def _find(index: bytes | bytearray, path: str, blob: str, at: int) -> int:
    """Where the id of the entry of `path` stands, if it has that blob and no flags; -1 if not."""
    name = os.fsencode(path)
    flags = struct.pack(">H", min(len(name), _LONGEST_NAME))
    return index.find(bytes.fromhex(blob) + flags + name + b"\0", at)


def _write(data: bytearray, at: int, status: os.stat_result) -> None:
    ctime, mtime = (divmod(time, _SECOND) for time in (status.st_ctime_ns, status.st_mtime_ns))
    _TIMES.pack_into(data, at, *(part & _32 for part in (*ctime, *mtime, status.st_dev, status.st_ino)))
    _OWNER.pack_into(data, at + 28, *(part & _32 for part in (status.st_uid, status.st_gid, status.st_size)))
