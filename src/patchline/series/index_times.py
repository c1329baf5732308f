"""Tells git's index the times of files that were just put in place, so that git need not read them again.

`git update-index --refresh` does the same by looking at every file of the work tree, which is a
tenth of the time that a whole series takes. The form is git's index-format, versions 2 and 3.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

_TIMES = struct.Struct(">4L2L")  # ctime and mtime in seconds and nanoseconds, device, inode
_OWNER = struct.Struct(">3L")  # uid, gid, size; the mode between the two stays
_BEFORE_ID = 40  # bytes of an entry before its blob's id
_SHA1 = 20
_LONGEST_NAME = 0xFFF
_32 = 0xFFFFFFFF


class Placed(NamedTuple):
    """A file in the work tree: its blob, and its state as it was when git had just written it."""

    path: str
    blob: str
    mtime_ns: int
    size: int
    inode: int


def freshen(index: Path, repo: Path, placed: Iterable[Placed], draft: Path) -> bool:
    """Puts the files' present times into `index`, as git would write it; False where git has to do it.

    A file that is not as it was placed keeps no times: git will look at it. The new index is
    written at `draft`, which also is git's lock meanwhile: whoever finds the two to be one file
    knows whose lock a dead run left.
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
    if data[:4] != b"DIRC" or struct.unpack_from(">L", data, 4)[0] not in (2, 3):
        return b""
    for file in sorted(placed, key=lambda file: os.fsencode(file.path)):
        name, blob = os.fsencode(file.path), bytes.fromhex(file.blob)
        width = len(blob)
        at = data.find(blob + struct.pack(">H", min(len(name), _LONGEST_NAME)) + name + b"\0", at)
        if at < 0:
            return b""
        status = os.lstat(f"{repo}/{file.path}")
        if (status.st_mtime_ns, status.st_size, status.st_ino) == file[2:]:
            _write(data, at - _BEFORE_ID, status)
    if width and any(data[-width:]):  # git can be told to leave the checksum out
        data[-width:] = (hashlib.sha1 if width == _SHA1 else hashlib.sha256)(data[:-width]).digest()
    return bytes(data)


def _write(data: bytearray, at: int, status: os.stat_result) -> None:
    ctime, mtime = (divmod(time, 1_000_000_000) for time in (status.st_ctime_ns, status.st_mtime_ns))
    _TIMES.pack_into(data, at, *(part & _32 for part in (*ctime, *mtime, status.st_dev, status.st_ino)))
    _OWNER.pack_into(data, at + 28, *(part & _32 for part in (status.st_uid, status.st_gid, status.st_size)))
