"""An image into a repository: only what it lacks travels, and the manifest comes last."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from patchline.image import model
from patchline.image.append import Image
from patchline.image.model import Descriptor
from patchline.image.registry.remote import Remote
from patchline.image.registry.repository import Repository
from patchline.image.registry.upload import upload
from patchline.progress import say

_AT_ONCE = 4
"""Layers of the base that are asked for, mounted or copied at one time."""


class Pushed(NamedTuple):
    """What a push did."""

    digest: str
    """Of the manifest, which the repository has now."""
    there: int
    """Blobs that the repository had."""
    mounted: int
    """Blobs that it took from another repository of the same registry."""
    copied: int
    """Layers of the base that had to be sent, though they are not ours."""
    sent: int
    """Bytes of request bodies, of all kinds."""


def push(image: Image, target: Repository) -> Pushed:
    """Brings an image to a repository, under its digest only: no tag means it yet.

    Stopped anywhere and run again, it completes. What is there already is not sent again.

    Raises:
        Unreachable: the registry did not do it, again and again.
        Refused: it does not let us.
        SourceMismatch: the base has another layer than its manifest says, or the registry holds something else.
    """
    before = target.client.transport.sent
    own = {blob.digest: data for blob, data in image.blobs}
    config, layers = model.manifest(image.manifest, target.where)
    wanted = {one.digest: one for one in (*layers, config) if not one.foreign}
    if target.manifest(image.digest) is not None:  # registries take no manifest whose blobs they lack
        return Pushed(image.digest, len(wanted), 0, 0, 0)
    theirs = [one for one in wanted.values() if one.digest not in own]
    with ThreadPoolExecutor(_AT_ONCE) as pool:  # ours travel while it is asked for the base's
        ours = [pool.submit(_send, target, one, own[one.digest]) for one in wanted.values() if one.digest in own]
        has = pool.map(target.has, theirs)
        lacks = [one for one, there in zip(theirs, has, strict=True) if not there]
        _say(target, lacks)
        mounted = sum(pool.map(lambda one: _bring(image, target, one), lacks))
        sent = sum(one.result() for one in ours)
    target.put(image.manifest)
    there, copied = len(wanted) - len(lacks) - sent, len(lacks) - mounted
    return Pushed(image.digest, there, mounted, copied, target.client.transport.sent - before)


def _say(target: Repository, lacks: list[Descriptor]) -> None:
    if lacks:
        size = sum(one.size for one in lacks) / 1e6
        say(f"{target.where} lacks {len(lacks)} layers of the base ({size:.1f} MB): mounted where it can, else copied")


def _send(target: Repository, blob: Descriptor, data: bytes) -> bool:
    """Sends one of ours; false where it is there already."""
    if target.has(blob):
        return False
    upload(target, blob, lambda: iter([data]))
    return True


def _bring(image: Image, target: Repository, blob: Descriptor) -> bool:
    """Brings one of the base; true where it was mounted, and not copied."""
    return upload(target, blob, lambda: image.base.source.chunks(blob), mount=_beside(image, target))


def _beside(image: Image, target: Repository) -> str:
    """The repository of the base, where it is another one of the same registry."""
    source = image.base.source
    if not isinstance(source, Remote) or source.repository.client.host != target.client.host:
        return ""
    return source.repository.name if source.repository.name != target.name else ""
