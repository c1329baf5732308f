"""Where an image is read from, whatever holds it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from patchline.errors import SourceMismatch
from patchline.image import model
from patchline.image.model import Descriptor, Document


class Source(Protocol):
    """One image, or an index of some, in a registry, a layout or an archive."""

    @property
    def where(self) -> str:
        """For messages."""

    def root(self, digest: str = "") -> Descriptor:
        """The manifest or index of that `digest`; without one, the only one there, or the one the tag means.

        Raises:
            SourceMismatch: it is not there.
            UsageError: there are several, and no digest says which.
        """

    def chunks(self, descriptor: Descriptor) -> Iterator[bytes]:
        """The content, in pieces of at most some megabytes.

        Raises:
            SourceMismatch: it is not there, or at the end its bytes were not those of its digest.
        """


def read(source: Source, descriptor: Descriptor) -> Document:
    """A manifest, an index or a configuration, checked.

    Raises:
        SourceMismatch: it is not there, is not what its digest says, or is too long.
    """
    if descriptor.size > model.MOST:
        raise SourceMismatch(
            f"{descriptor.digest} has {descriptor.size} bytes; a document may have {model.MOST}", where=source.where
        )
    data = b"".join(source.chunks(descriptor))
    return model.document(data, f"{source.where}, {descriptor.digest}")
