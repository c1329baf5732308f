"""Layers of a made base: written in a stream, since they have gigabytes, and the same bytes on every machine."""

from __future__ import annotations

import hashlib
import os
import struct
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple, cast

from patchline.image import layout, model
from patchline.image.layer import EPOCH
from patchline.image.model import Descriptor

_STORED = 65535  # bytes of a stored block, at most (RFC 1951, 3.2.4)
_HEAD = struct.pack("<4BI2B", 0x1F, 0x8B, 8, 0, 0, 0, 255)


class Layer(NamedTuple):
    """A layer that lies in a layout."""

    descriptor: Descriptor
    diff_id: str
    by: str
    """What made it, for the history."""


class _Stored:
    """A file that keeps what is written to it as gzip with nothing compressed, and both digests.

    Nothing compressed: see `patchline.image.layer`. On two cores compression would take minutes as well.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._tar, self._packed = hashlib.sha256(), hashlib.sha256()
        self._crc = self._count = self.size = 0
        self._rest = b""
        self._put(_HEAD)

    def tell(self) -> int:
        """Bytes so far, as tarfile asks it."""
        return self._count

    def write(self, data: bytes) -> int:
        """Takes `data` in."""
        self._tar.update(data)
        self._crc = zlib.crc32(data, self._crc)
        self._count += len(data)
        whole = self._rest + data
        cut = max(0, (len(whole) - 1) // _STORED * _STORED)  # the last block is known at the end only
        self._put(b"".join(_block(whole[at : at + _STORED], last=False) for at in range(0, cut, _STORED)))
        self._rest = whole[cut:]
        return len(data)

    def _put(self, data: bytes) -> None:
        self._packed.update(data)
        self.size += len(data)
        self._file.write(data)

    def end(self) -> tuple[str, str]:
        """Writes the end; gives the digests of the tar and of the packed file."""
        self._put(_block(self._rest, last=True) + struct.pack("<2I", self._crc, self._count % 2**32))
        self._file.close()
        return f"sha256:{self._tar.hexdigest()}", f"sha256:{self._packed.hexdigest()}"

    def close(self) -> None:
        """Closes the file, also where the end was not reached."""
        self._file.close()


def _block(data: bytes, *, last: bool) -> bytes:
    return struct.pack("<B2H", last, len(data), len(data) ^ 0xFFFF) + data


class Making:
    """A layer that is being made; `done` is there when the block of `layer` has ended."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self.tar = tar
        self.done: Layer | None = None

    def folder(self, path: str, mode: int, uid: int = 0, gid: int = 0) -> None:
        """Adds a folder."""
        self.tar.addfile(info(path, tarfile.DIRTYPE, mode, uid, gid))


def info(path: str, kind: bytes, mode: int, uid: int, gid: int) -> tarfile.TarInfo:
    """The head of a member; every one has the same time."""
    made = tarfile.TarInfo(path)
    made.type, made.mode, made.uid, made.gid, made.mtime = kind, mode, uid, gid, EPOCH
    return made


@contextmanager
def layer(folder: Path, by: str) -> Iterator[Making]:
    """A new layer in the layout at `folder`, for what the block adds to it."""
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=blobs)
    os.close(handle)
    packed = _Stored(Path(name))
    try:
        file = cast("IO[bytes]", packed)  # tarfile asks it for these two things only
        with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT, encoding="utf-8") as tar:
            tar.copybufsize = 2**20  # type: ignore[attr-defined]  # 16 KiB by default: twice the time
            making = Making(tar)
            yield making
        diff_id, digest = packed.end()
    finally:
        packed.close()
    os.chmod(name, 0o644)
    os.replace(name, layout.blob_path(folder, digest))
    making.done = Layer(Descriptor(f"{model.LAYER}+gzip", digest, packed.size), diff_id, by)
