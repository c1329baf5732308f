"""Layers as they come: the members of a tar stream, plain, gzip or zstd."""

from __future__ import annotations

import hashlib
import io
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import IO, Any, Self, cast

from patchline.errors import Refused, SourceMismatch
from patchline.image.digests import CHUNK
from patchline.image.model import Descriptor, as_oci

HEAD = 16 * 2**20
"""Bytes that are read at one time at most: tarfile takes a member's extended head whole, however long it says it is."""

_LONG = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
_EXTENDED = (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE)

Read = Callable[[], bytes]
"""Gives the next bytes of a member; none at its end."""


def members(
    layer: Descriptor, chunks: Iterator[bytes], where: str, diff_id: str = ""
) -> Iterator[tuple[tarfile.TarInfo, Read]]:
    """The members of a layer in their order, with what reads their content until the next one is asked for.

    The whole stream has been read at the end, so `chunks` has checked it. With `diff_id`, the digest that the image's
    configuration gives for the unpacked bytes, these are checked as well.

    Raises:
        Refused: the layer is kept elsewhere, or is packed in a way that is not known here.
        SourceMismatch: it cannot be unpacked, or unpacks to something else.
    """
    if layer.foreign:
        raise Refused(
            f"the layer {layer.digest} is a foreign one ({layer.media_type}): registries do not have it", where=where
        )
    kind = as_oci(layer.media_type).rpartition(".")[2]
    unpacked = _unpacked(kind, chunks, where)
    if diff_id:
        unpacked = _checked(unpacked, layer, diff_id, where)
    stream = Forward(unpacked)
    guard = partial(_unpacking, layer, chunks, where)
    with guard():
        with tarfile.open(fileobj=cast(IO[bytes], stream), mode="r:", tarinfo=_strict()) as tar:
            for member in tar:
                if {*tar.pax_headers} - {"comment"}:
                    raise tarfile.ReadError("a global head: tarfile obeys it, container runtimes pass over it")
                cast(Any, tar).members = []  # else it keeps all of them, and a base has hundreds of thousands
                yield member, partial(_read, member, stream, guard)
        _drain(unpacked)
        _drain(chunks)


def _checked(pieces: Iterator[bytes], layer: Descriptor, diff_id: str, where: str) -> Iterator[bytes]:
    """The same; at their end they are compared with what the configuration says. Of a plain tar that is its digest."""
    plain = layer.digest if as_oci(layer.media_type).endswith("tar") else ""
    total = hashlib.sha256()
    for piece in pieces:
        if not plain:
            total.update(piece)
        yield piece
    found = plain or f"sha256:{total.hexdigest()}"
    if found != diff_id:
        what = f"the layer {layer.digest} unpacks to {found}, and the configuration says {diff_id}"
        raise SourceMismatch(what, where=where)


def _strict() -> type[tarfile.TarInfo]:
    """Heads of which tarfile and container runtimes (all use Go's archive/tar) read the same name; others are refused.

    A member with an extended head and a long name of GNU's has two names, and each reader prefers another one. A
    prefix of the name counts in POSIX heads only; tarfile takes it in all.
    """
    before = set[bool]()

    class Head(tarfile.TarInfo):
        @classmethod
        def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
            found = super().frombuf(buf, encoding, errors)
            if found.type in _LONG or found.type in _EXTENDED:
                before.add(found.type in _LONG)
                return found
            if len(before) == 2 or (buf[345] and buf[257:263] != b"ustar\0"):
                raise tarfile.ReadError(f"a head that is read in two ways: {found.name!r}")
            before.clear()
            return found

    return Head


def _read(member: tarfile.TarInfo, stream: Forward, guard: Callable[[], AbstractContextManager[None]]) -> bytes:
    with guard():
        if member.sparse is not None:
            raise tarfile.ReadError(f"{member.name} is a sparse file, which no image tool writes")
        stream.seek(max(stream.tell(), member.offset_data))
        wanted = min(member.offset_data + member.size - stream.tell(), CHUNK)
        piece = stream.read(wanted)
        if len(piece) < wanted:
            raise tarfile.ReadError(f"{member.name} ends early")
        return piece


@contextmanager
def _unpacking(layer: Descriptor, chunks: Iterator[bytes], where: str) -> Iterator[None]:
    try:
        yield
    except (tarfile.TarError, zlib.error, EOFError, OSError) as bad:
        _drain(chunks)  # wrong bytes have a better message
        raise SourceMismatch(f"the layer {layer.digest} cannot be unpacked: {bad}", where=where) from bad
    except (ValueError, OverflowError, RecursionError) as bad:  # numbers and texts that tarfile takes on trust
        raise SourceMismatch(f"the layer {layer.digest} has a head that makes no sense: {bad}", where=where) from bad


def _unpacked(kind: str, chunks: Iterator[bytes], where: str) -> Iterator[bytes]:
    if kind == "tar":
        return chunks
    if kind == "tar+gzip":
        return _gunzip(chunks)
    if kind == "tar+zstd":
        return _unzstd(chunks)
    raise Refused(f"layers packed as {kind!r} are not known here; tar, gzip and zstd are", where=where)


def _gunzip(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """All members of a gzip stream: parallel packers write several."""
    member = zlib.decompressobj(31)
    for chunk in chunks:
        rest = chunk
        while rest:
            if member.eof:
                if not rest.strip(b"\0"):
                    break  # padding
                member = zlib.decompressobj(31)
            yield member.decompress(rest, CHUNK)
            rest = member.unused_data if member.eof else member.unconsumed_tail
    yield member.flush()
    if not member.eof:
        raise EOFError("the gzip stream ends early")


def _unzstd(chunks: Iterator[bytes]) -> Iterator[bytes]:
    import zstandard

    source = zstandard.ZstdDecompressor().stream_reader(cast(IO[bytes], Forward(chunks)), read_across_frames=True)
    try:
        while piece := source.read(CHUNK):
            yield piece
    except zstandard.ZstdError as bad:
        raise EOFError(str(bad)) from bad


class Forward:
    """As much of a file as tarfile asks for, over an iterator of pieces; it seeks forward without copying."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = memoryview(b"")
        self._at = 0

    def tell(self) -> int:
        """Bytes that were read or passed over."""
        return self._at

    def seek(self, position: int) -> int:
        """Passes over everything before `position`; past the end it stays there."""
        if position < self._at:
            raise io.UnsupportedOperation("a stream is read once")
        while self._at < position and self._more():
            self._take(position - self._at)
        return self._at

    def read(self, size: int = CHUNK) -> bytes:
        """That many bytes; fewer only at the end."""
        if size > HEAD:
            raise tarfile.ReadError(f"a member's head of {size} bytes")
        pieces, left = [], size
        while left > 0 and self._more():
            piece = self._take(left)
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)

    def _more(self) -> bool:
        while not self._rest:
            piece = next(self._chunks, None)
            if piece is None:
                return False
            self._rest = memoryview(piece)
        return True

    def _take(self, most: int) -> memoryview:
        piece, self._rest = self._rest[:most], self._rest[most:]
        self._at += len(piece)
        return piece


def _drain(chunks: Iterator[bytes]) -> None:
    for _ in chunks:
        pass
