"""Downloads that take their name only when their bytes have been checked."""

from __future__ import annotations

import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from patchline import progress
from patchline.errors import SourceMismatch
from patchline.files import PART, locked
from patchline.project import cache_dir
from patchline.urls import shown


@dataclass(frozen=True)
class Wanted:
    """What a file has to be; `size` is in bytes, and None stands for whatever comes."""

    name: str
    sha256: str | None = None
    size: int | None = None


@dataclass(frozen=True)
class Saved:
    """A file that is what was wanted; `size` is in bytes."""

    path: Path
    sha256: str
    size: int


def cached(name: str, sha256: str) -> Path:
    """Where the file of that name and digest lies once it was downloaded."""
    return cache_dir() / "downloads" / sha256 / name


def save(url: str, wanted: Wanted) -> Saved:
    """Downloads `url` into the cache, under the digest of what came.

    Raises:
        SourceMismatch: what came is not what was wanted; nothing was kept.
        Unreachable: there is no answer, or the connection broke.
        Refused: another run downloads a file of that name.
    """
    folder = cache_dir() / "downloads"
    with locked(folder / f".{wanted.name}.lock", f"the download of {wanted.name}"):
        prefix = f"{PART}{wanted.name}-"
        for left in folder.glob(f"{prefix}*"):
            left.unlink()
        handle, part = tempfile.mkstemp(prefix=prefix, dir=folder)
        try:
            sha256, size = _receive(url, handle, wanted)
            path = cached(wanted.name, sha256)
            path.parent.mkdir(exist_ok=True)
            os.chmod(part, 0o644)
            os.replace(part, path)
        except BaseException:
            os.unlink(part)
            raise
    return Saved(path, sha256, size)


def digest(data: bytes) -> str:
    """The sha256 of `data`, in hex."""
    return hashlib.sha256(data).hexdigest()


def mismatch(wanted: Wanted, sha256: str, size: int, *, where: str, next: str) -> SourceMismatch:
    """The error that names both digests, and both sizes where they differ."""
    sizes = f"\n  bytes:  {wanted.size} wanted, {size} found" if wanted.size not in (None, size) else ""
    return SourceMismatch(
        f"{wanted.name} is not the file that was pinned"
        f"\n  wanted: sha256 {wanted.sha256}\n  found:  sha256 {sha256}{sizes}",
        where=where,
        next=next,
    )


def _receive(url: str, handle: int, wanted: Wanted) -> tuple[str, int]:
    from patchline import index

    hasher, size = hashlib.sha256(), 0
    with os.fdopen(handle, "wb") as file, index.stream(url) as response:
        final = shown(response.url)
        total = wanted.size or int(response.headers.get("Content-Length", 0))
        with progress.bytes_of(wanted.name, total) as came:
            for chunk in index.chunks(response, short=wanted.sha256 is not None):
                hasher.update(chunk)
                size += len(chunk)
                came(len(chunk))
                file.write(chunk)
                if wanted.size is not None and size > wanted.size:
                    break
        file.flush()
        os.fsync(file.fileno())
    found = hasher.hexdigest()
    if wanted.sha256 not in (None, found) or wanted.size not in (None, size):
        raise mismatch(wanted, found, size, where=final, next=f"nothing was kept; {index.CHECK}")
    return found, size
