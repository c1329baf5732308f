"""One layer from files and whiteouts: the same bytes on every machine.

Compressed, its digest would hang on the build of zlib, whose versions and replacements pack differently. A plain tar
would do, but skopeo and others compress such a layer when they copy it, and the image gets another digest. So it is
gzip with nothing compressed (stored blocks, RFC 1951, 3.2.4): a layer of ours has kilobytes, or a megabyte with a long
RECORD.
"""

from __future__ import annotations

import hashlib
import io
import posixpath
import struct
import tarfile
import zlib
from collections.abc import Mapping
from typing import NamedTuple

EPOCH = 315_532_800
"""1980-01-01 in UTC, in seconds: the time of everything but Python modules. Zip files know no earlier one."""


_STORED = 65535  # bytes of a stored block, at most


class Entry(NamedTuple):
    """What a layer makes of one path; `mode` has the permission bits only."""

    kind: str
    """`file`, `folder` or `whiteout`."""
    data: bytes = b""
    mode: int = 0o644
    uid: int = 0
    gid: int = 0


WHITEOUT = Entry("whiteout")
MARK = ".wh."
"""Before the name of what a layer removes (OCI image specification, "Whiteouts")."""


def tar(entries: Mapping[str, Entry]) -> bytes:
    """A layer with `entries`, by their paths from the image's root; every folder above one has to be among them."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT, encoding="utf-8") as made:
        infos = [(_info(path, entry), entry.data) for path, entry in entries.items()]
        for info, data in sorted(infos, key=lambda one: one[0].name.encode("utf-8", "surrogateescape")):
            made.addfile(info, io.BytesIO(data))
    return file.getvalue()


def removed_by(path: str) -> str | None:
    """The path that the whiteout at `path` removes; None where none is there. For layers that `tar` made."""
    folder, name = posixpath.split(path)
    return posixpath.join(folder, name.removeprefix(MARK)) if name.startswith(MARK) else None


def gzip(data: bytes) -> bytes:
    """`data` as gzip, stored; without a name or a time (RFC 1952)."""
    head = struct.pack("<4BI2B", 0x1F, 0x8B, 8, 0, 0, 0, 255)
    blocks = [data[at : at + _STORED] for at in range(0, len(data), _STORED)] or [b""]
    packed = [head]
    for number, block in enumerate(blocks, 1):
        packed += [struct.pack("<B2H", number == len(blocks), len(block), len(block) ^ 0xFFFF), block]
    return b"".join((*packed, struct.pack("<2I", zlib.crc32(data), len(data) % 2**32)))


def _info(path: str, entry: Entry) -> tarfile.TarInfo:
    folder, name = posixpath.split(path)
    info = tarfile.TarInfo(posixpath.join(folder, f"{MARK}{name}") if entry.kind == "whiteout" else path)
    info.type = tarfile.DIRTYPE if entry.kind == "folder" else tarfile.REGTYPE
    info.size, info.mtime = len(entry.data), _time(path, entry.data)
    info.mode, info.uid, info.gid = entry.mode, entry.uid, entry.gid
    return info


def _time(path: str, data: bytes) -> int:
    """Seconds; of a Python module they follow from its bytes.

    Python takes cached byte-code for current when the source's time and size are those that it was made from. So
    byte-code that was kept outside an image (PYTHONPYCACHEPREFIX on a volume) never stands for another overlay's
    module.
    """
    if not path.endswith(".py"):
        return EPOCH
    return EPOCH + int.from_bytes(hashlib.sha256(data).digest()[:4], "big") % 2**28
