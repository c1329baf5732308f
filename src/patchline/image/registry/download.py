"""One blob out of a repository; where the connection breaks, it goes on from there."""

from __future__ import annotations

from collections.abc import Iterator

from patchline.errors import SourceMismatch
from patchline.image import digests
from patchline.image.model import Descriptor
from patchline.image.registry.patience import Broken
from patchline.image.registry.repository import Repository
from patchline.urls import shown


def blob(repository: Repository, descriptor: Descriptor) -> Iterator[bytes]:
    """The blob in pieces, checked at its end.

    Raises:
        SourceMismatch: it is not there, or is another one.
        Unreachable: the connection broke too often.
    """
    where = f"{repository.where}, {descriptor.digest}"
    yield from digests.checked(_whole(repository, descriptor), descriptor.digest, descriptor.size, where)


def _whole(repository: Repository, descriptor: Descriptor) -> Iterator[bytes]:
    url = f"{repository.client.url}{repository.path(f'blobs/{descriptor.digest}')}"
    done, tries = 0, 0
    while True:
        try:
            for piece in _from(repository, url, done):
                done, tries = done + len(piece), 0
                yield piece
            return
        except Broken as broken:
            tries += 1
            repository.client.patience.pause(tries, broken, shown(url))


def _from(repository: Repository, url: str, start: int) -> Iterator[bytes]:
    client = repository.client
    headers = {"Range": f"bytes={start}-"} if start else {}
    with client.stream("GET", url, repository.scopes, ok=(200, 206, 404, 416), headers=headers) as response:
        if response.status == 404:
            raise SourceMismatch("the registry does not have this blob", where=shown(url))
        if response.status == 416:
            return  # all of it came, and then the connection broke
        skip = start if response.status == 200 else 0
        for piece in client.transport.pieces(response):
            rest = piece[skip:]
            skip -= len(piece) - len(rest)
            if rest:
                yield rest
