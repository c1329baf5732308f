"""What a registry holds of an image, against what was meant."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from patchline.errors import Refused, SourceMismatch
from patchline.image import model
from patchline.image.append import Image
from patchline.image.model import Descriptor
from patchline.image.registry import download
from patchline.image.registry.repository import Repository

T = TypeVar("T")

_AT_ONCE = 4  # layers that are asked for
_TRIES = 5


def settled(act: Callable[[], T]) -> T:
    """What `act` gives; it is done again while the registry misses blobs that it just said it has.

    Registries on file systems do, for a moment, where two clients bring the same blob at once.
    """
    for number in range(1, _TRIES):
        try:
            return act()
        except Refused as refused:
            if "BLOB_UNKNOWN" not in refused.what:
                raise
        time.sleep(random.uniform(0, 0.1 * number))
    return act()


def check(image: Image, repository: Repository) -> None:
    """Reads back manifest, configuration and our layer, and asks for the base's layers.

    Raises:
        SourceMismatch: something is not there, or is another than was meant; all of the layers are named.
    """
    where = f"{repository.where}, {image.digest}"
    found = repository.manifest(image.digest)
    if found is None or found.document.data != image.manifest.data:
        raise SourceMismatch("the registry does not hold the image's manifest", where=where)
    for blob, data in image.blobs:
        if b"".join(download.blob(repository, blob)) != data:
            raise SourceMismatch(f"the registry holds another {blob.digest}", where=where)
    lacking = missing(repository, list(image.base.layers))
    if lacking:
        names = "".join(f"\n  {one.digest}" for one in lacking)
        raise SourceMismatch(
            f"the registry lacks layers of the base{names}", where=where, next="run the same command again"
        )


def missing(repository: Repository, blobs: list[Descriptor]) -> list[Descriptor]:
    """Those that a repository does not have; what is kept elsewhere is not asked for."""
    wanted = [one for one in blobs if not one.foreign]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return [one for one, there in zip(wanted, pool.map(repository.has, wanted), strict=True) if not there]


def described(repository: Repository, digest: str) -> Descriptor:
    """The descriptor of a manifest that a repository has.

    Raises:
        SourceMismatch: it has none of that digest, or what it has is no image's.
    """
    found = repository.manifest(digest)
    if found is None or found.descriptor.media_type not in model.MANIFESTS:
        what = "is not there" if found is None else f"is a {found.descriptor.media_type}"
        raise SourceMismatch(f"the image {what}: {digest}", where=repository.where)
    return found.descriptor
