"""Pinned files: brought into the cache once, and checked at every use."""

from __future__ import annotations

from pathlib import Path

from patchline.download import Wanted, cached, digest, mismatch, save
from patchline.errors import Unreachable
from patchline.pins.model import PinFile
from patchline.urls import shown


def fetch(distribution: str, file: PinFile) -> Path:
    """The pinned file in the cache; an index is asked only for a file that is not there.

    Raises:
        SourceMismatch: the bytes, here or there, are not what the pin says.
        Unreachable: the file is nowhere to be had now.
        Refused: another run downloads it.
    """
    path = cached(file.name, file.sha256)
    if path.exists():
        read(path, file)
        return path
    return save(_url(distribution, file), Wanted(file.name, file.sha256, file.size)).path


def read(path: Path, file: PinFile) -> bytes:
    """The bytes of `path`, which are what the pin says.

    Raises:
        SourceMismatch: they are not.
    """
    data = path.read_bytes()
    found = digest(data)
    if (found, len(data)) != (file.sha256, file.size):
        wanted = Wanted(file.name, file.sha256, file.size)
        raise mismatch(wanted, found, len(data), where=str(path), next=f"rm {path}, then run again")
    return data


def _url(distribution: str, file: PinFile) -> str:
    from patchline import index

    named = [offer for offer in index.offers(distribution) if offer.name == file.name]
    right = [offer for offer in named if offer.sha256 == file.sha256]
    untold = [offer for offer in named if offer.sha256 is None]
    if right or untold:
        return (right or untold)[0].url
    if named:
        says = named[0]
        wanted = Wanted(file.name, file.sha256)
        next = f"nothing was downloaded; {index.CHECK}"
        raise mismatch(
            wanted, str(says.sha256), file.size, where=f"what the index says of {shown(says.url)}", next=next
        )
    raise Unreachable(f"no index offers {file.name} now", where=distribution, next=index.CHECK)
