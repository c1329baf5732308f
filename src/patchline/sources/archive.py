"""A verified sdist or wheel as a list of files; everything is checked before the first is given."""

from __future__ import annotations

import io
import posixpath
import stat
import tarfile
import zipfile
import zlib
from calendar import timegm
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from patchline.errors import SourceMismatch
from patchline.sources.paths import fault

FILE, EXECUTABLE, LINK = 0o100644, 0o100755, 0o120000
"""The three modes that git knows for a file."""

_MOST = 4 << 30
"""Bytes that an unpacked source may have; the largest known one has 0.14 GB."""


@dataclass(frozen=True)
class Member:
    """One file of a source; `mode` is git's, `mtime` in seconds UTC, `read` gives the bytes."""

    path: str
    mode: int
    mtime: int
    read: Callable[[], bytes]


def members(name: str, data: bytes) -> list[Member]:
    """The files of the archive called `name`, without the one top folder that an sdist has.

    Raises:
        SourceMismatch: it is no archive, or holds something that a source may not hold.
    """
    read = _wheel if name.endswith(".whl") else _sdist
    try:
        found = list(read(name, data))
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError, UnicodeError) as broken:
        raise _refused(name, f"it cannot be read: {broken}") from broken
    _check(name, found)
    return found


def _sdist(name: str, data: bytes) -> Iterator[Member]:
    plain = _gunzip(name, data)
    tops, regular = set[str](), dict[str, tarfile.TarInfo]()
    for info in _entries(name, plain):
        if problem := fault(info.name):
            raise _refused(name, f"{info.name!r}: {problem}")
        top, _, path = info.name.partition("/")
        tops.add(top)
        if info.isdir():
            continue
        if not path:
            raise _refused(name, f"{info.name!r} lies outside the top folder")
        if info.isreg():
            regular[info.name] = info
        yield _tar_member(name, path, info, regular, plain)
    if len(tops) > 1:
        raise _refused(name, f"it has {len(tops)} top folders: {', '.join(sorted(tops)[:5])}")


def _entries(name: str, plain: bytes) -> Iterator[tarfile.TarInfo]:
    """The entries of a whole tar: `tarfile` itself ends without a word at a damaged header."""
    end = 0
    with tarfile.open(fileobj=io.BytesIO(plain), mode="r:", encoding="utf-8") as tar:
        for info in tar:
            end = info.offset_data + (info.size if info.isreg() else 0)
            if info.issparse() or end > len(plain):
                raise _refused(name, f"{info.name!r} is sparse or cut off")
            yield info
    if plain[end + -end % tarfile.BLOCKSIZE :].strip(b"\0"):
        raise _refused(name, "it is damaged, or holds more than a tar may hold after its last file")


def _tar_member(
    name: str, path: str, info: tarfile.TarInfo, regular: dict[str, tarfile.TarInfo], plain: bytes
) -> Member:
    time = max(0, int(info.mtime))
    if info.issym():
        return Member(path, LINK, time, lambda: info.linkname.encode("utf-8", "surrogateescape"))
    if info.islnk() and info.linkname not in regular:
        raise _refused(name, f"{info.name!r} is a link to {info.linkname!r}, which is no file before it")
    if not (info.isreg() or info.islnk()):
        raise _refused(name, f"{info.name!r} is neither a file nor a link to one")
    source = regular[info.linkname] if info.islnk() else info
    mode = EXECUTABLE if source.mode & 0o100 else FILE
    return Member(path, mode, time, lambda: plain[source.offset_data : source.offset_data + source.size])


def _gunzip(name: str, data: bytes) -> bytes:
    """Stops at the limit, whatever the size that the file states for itself."""
    unzip = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    plain = unzip.decompress(data, _MOST)
    if unzip.unconsumed_tail:
        raise _refused(name, f"it unpacks to more than {_MOST} bytes")
    if not unzip.eof or unzip.unused_data.strip(b"\0"):
        raise _refused(name, "it does not end where its gzip stream says")
    return plain


def _wheel(name: str, data: bytes) -> Iterator[Member]:
    archive = zipfile.ZipFile(io.BytesIO(data))
    infos = [info for info in archive.infolist() if not info.is_dir()]
    if sum(info.file_size for info in infos) > _MOST:
        raise _refused(name, f"it unpacks to more than {_MOST} bytes")
    for info in archive.infolist():
        written = info.orig_filename  # zipfile cuts names at NUL and turns separators round
        if problem := fault(written.removesuffix("/") if info.is_dir() else written):
            raise _refused(name, f"{written!r}: {problem}")
    for info in infos:
        yield Member(info.filename, _zip_mode(name, info), _zip_time(info), _zip_bytes(name, archive, info))


def _zip_mode(name: str, info: zipfile.ZipInfo) -> int:
    mode = info.external_attr >> 16
    if stat.S_IFMT(mode) == stat.S_IFLNK:
        return LINK
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
        raise _refused(name, f"{info.filename!r} is neither a file nor a link to one")
    return EXECUTABLE if mode & 0o100 else FILE


def _zip_time(info: zipfile.ZipInfo) -> int:
    try:
        return max(0, timegm((*info.date_time, 0, 0, 0)))
    except ValueError:  # month 0, day 0: what writers without a clock put there
        return 0


def _zip_bytes(name: str, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Callable[[], bytes]:
    def read() -> bytes:
        try:
            with archive.open(info) as file:
                data = file.read(info.file_size + 1)
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as broken:
            raise _refused(name, f"{info.filename!r} cannot be read: {broken}") from broken
        if len(data) != info.file_size:
            raise _refused(name, f"{info.filename!r} states {info.file_size} bytes and has {len(data)}")
        return data

    return read


def _check(name: str, found: list[Member]) -> None:
    """What only the whole list shows: doubles, a file that is also a folder, links."""
    if not found:
        raise _refused(name, "it holds no file")
    kinds = dict[str, int]()
    for member in found:
        if member.path in kinds:
            raise _refused(name, f"{member.path!r} is in it twice")
        if problem := fault(member.path):
            raise _refused(name, f"{member.path!r}: {problem}")
        kinds[member.path] = member.mode
    for path in kinds:
        if clash := next((parent for parent in _parents(path) if parent in kinds), None):
            raise _refused(name, f"{clash!r} is a file, and {path!r} lies under it")
    for member in found:
        if member.mode == LINK:
            _check_link(name, member, kinds)


def _check_link(name: str, member: Member, kinds: dict[str, int]) -> None:
    target = member.read().decode("utf-8", "surrogateescape")
    landing = posixpath.normpath(posixpath.join(posixpath.dirname(member.path), target))
    if target.startswith("/") or kinds.get(landing) not in (FILE, EXECUTABLE):
        raise _refused(name, f"{member.path!r} is a link to {target!r}, which is no file in it")


def _parents(path: str) -> Iterable[str]:
    while path := posixpath.dirname(path):
        yield path


def _refused(name: str, reason: str) -> SourceMismatch:
    return SourceMismatch(
        f"{name} is not a source that can be unpacked: {reason}",
        where="nothing was written",
        next="look at the file before you pin it; a pinned release of this upstream is another one",
    )


def newest(found: Iterable[Member]) -> int:
    """The newest time in an archive, in seconds UTC: the same on every machine."""
    return max(member.mtime for member in found)
