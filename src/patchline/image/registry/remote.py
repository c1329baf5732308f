"""An image in a registry, as a source."""

from __future__ import annotations

from collections.abc import Iterator

from patchline.errors import SourceMismatch
from patchline.image import model
from patchline.image.model import Descriptor
from patchline.image.reference import Reference
from patchline.image.registry.download import blob
from patchline.image.registry.repository import Found, Repository


class Remote:
    """The image of a reference; see `Source`."""

    def __init__(self, repository: Repository, reference: Reference) -> None:
        self.repository, self.reference = repository, reference
        self.where = str(reference)
        self._last: Found | None = None
        """What `root` found: it is asked for next."""

    def root(self, digest: str = "") -> Descriptor:
        """See `Source`; where there is a tag beside a digest, it still has to mean that digest.

        Raises:
            SourceMismatch: the tag moved, or the digest is gone.
        """
        wanted, tag = digest or self.reference.digest, self.reference.tag
        if not wanted:
            found = self.repository.manifest(tag or "latest")
            if found is None:
                raise SourceMismatch(f"the registry has no {tag or 'latest'}", where=self.where)
            self._last = found
            return found.descriptor
        now = self.repository.digest_of(tag) if tag else wanted
        found = self.repository.manifest(wanted)
        if found is None or now != wanted:
            gone = ", which is gone" if found is None else ""
            means = f"\n  tag {tag}: {now or 'gone'}" if tag else ""
            raise SourceMismatch(
                f"this is not the image that was pinned\n  pinned: {wanted}{gone}{means}",
                where=self.where,
                next="see what moved it, then pin the base again",
            )
        self._last = found
        return found.descriptor

    def chunks(self, descriptor: Descriptor) -> Iterator[bytes]:
        """See `Source`."""
        if descriptor.media_type not in (*model.MANIFESTS, *model.INDEXES):
            yield from blob(self.repository, descriptor)
            return
        found = self._last
        if found is None or found.descriptor != descriptor:
            found = self.repository.manifest(descriptor.digest)
        if found is None:
            raise SourceMismatch(f"the registry has no {descriptor.digest}", where=self.where)
        yield found.document.data
