"""Git's binary patches: base 85 of a zlib stream that holds a file, or a delta on one."""

from __future__ import annotations

import base64
import binascii
import zlib
from hashlib import sha1, sha256
from typing import NamedTuple

from patchline.series.refusals import BadPatch

LIMIT = 1 << 30
"""Bytes that one binary patch may unpack to."""

_LENGTHS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


class Binary(NamedTuple):
    """The forward half of a binary patch."""

    kind: str
    """`literal`: `data` is the new file; `delta`: it is a delta on the old one."""
    data: bytes
    size: int
    """What the patch says the new file or the delta weighs."""
    old_id: str = ""
    """Git's id (sha1 or sha256, in hex) of the old file; zeros where there is none."""
    new_id: str = ""

    def result(self, old: bytes) -> bytes:
        """The new file.

        Raises:
            BadPatch: the patch is for another file than `old`, or does not make what it says.
        """
        if old or self.old_id.strip("0"):
            _check(old, self.old_id, "is for another file than the one in the tree")
        new = self.data if self.kind == "literal" else _patched(old, self.data)
        if new or self.new_id.strip("0"):
            _check(new, self.new_id, "makes another file than it says")
        return new


def _check(data: bytes, id: str, why: str) -> None:
    hashed = (sha256 if len(id) == 64 else sha1)(b"blob %d\0%b" % (len(data), data)).hexdigest()
    if hashed != id:
        raise BadPatch(f"the binary patch {why}: its id is {hashed}, and the patch says {id}")


def decoded(kind: str, size: int, lines: list[bytes]) -> Binary:
    """Reads the data lines of one half.

    Raises:
        BadPatch: the lines do not decode to `size` bytes.
    """
    try:
        packed = b"".join(_line(line) for line in lines)
        stream = zlib.decompressobj()
        data = stream.decompress(packed, min(size, LIMIT) + 1)
    except (ValueError, IndexError, binascii.Error, zlib.error) as bad:
        raise BadPatch(f"a binary patch does not decode: {bad}") from bad
    if len(data) != size or not stream.eof:
        raise BadPatch(f"a binary patch holds {len(data)} bytes and says {size}")
    return Binary(kind, data, size)


def _line(line: bytes) -> bytes:
    count = 1 + _LENGTHS.index(line[:1])
    if len(line) != 1 + 5 * ((count + 3) // 4):
        raise ValueError("a line is not as long as it says")
    return base64.b85decode(line[1:])[:count]


def _patched(old: bytes, delta: bytes) -> bytes:
    out = bytearray()
    try:
        at, source = _varint(delta, 0)
        at, target = _varint(delta, at)
        if source != len(old):
            raise BadPatch(f"a binary delta is for a file of {source} bytes; this one has {len(old)}")
        while at < len(delta) and len(out) <= min(target, LIMIT):
            at = _step(delta, at, old, out)
    except IndexError:
        raise BadPatch("a binary delta is cut short") from None
    if len(out) != target:
        raise BadPatch(f"a binary delta makes {len(out)} bytes and says {target}")
    return bytes(out)


def _step(delta: bytes, at: int, old: bytes, out: bytearray) -> int:
    code = delta[at]
    at += 1
    if not code & 0x80:
        out += delta[at : at + code]
        return at + code
    values = []
    for bits in (range(4), range(4, 7)):
        value = 0
        for shift, bit in enumerate(bits):
            if code & (1 << bit):
                value |= delta[at] << (8 * shift)
                at += 1
        values.append(value)
    offset, size = values[0], values[1] or 0x10000
    out += old[offset : offset + size]
    return at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return at, value
