"""An image from one repository to another, by its digest, with what is attached to it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

from patchline.errors import SourceMismatch
from patchline.image import model
from patchline.image.model import Descriptor, Document
from patchline.image.registry import download, referrers
from patchline.image.registry.repository import Repository
from patchline.image.registry.upload import upload
from patchline.release import held


def copy(source: Repository, target: Repository, manifest: Document, attached: Collection[str]) -> None:
    """Brings an image and the referrers of the digests `attached` to `target`; what it has is not sent again.

    Raises:
        SourceMismatch: something is not in `source`, or has other bytes.
        Refused, Unreachable: a registry does not let us, or did not do it.
    """
    if target.manifest(manifest.digest) is None:
        _blobs(source, target, manifest)
        target.put(manifest)
    there = {one.digest for one in referrers.listed(target, manifest.digest)}
    wanted = [one for one in referrers.listed(source, manifest.digest) if one.digest in attached]
    if {one.digest for one in wanted} != {*attached}:
        raise SourceMismatch(f"what is attached to {manifest.digest} is not all there", where=source.where)
    for one in wanted:
        if one.digest not in there:
            found = source.manifest(one.digest)
            if found is None:
                raise SourceMismatch(f"{one.digest} is listed and is not there", where=source.where)
            _blobs(source, target, found.document)
            if not target.put(found.document):
                referrers.enlist(target, manifest.digest, [one])


def _blobs(source: Repository, target: Repository, manifest: Document) -> None:
    config, layers = model.manifest(manifest, source.where)
    for blob in held.missing(target, _once([config, *layers])):
        upload(target, blob, partial(download.blob, source, blob), mount=_beside(source, target))


def _once(blobs: Sequence[Descriptor]) -> list[Descriptor]:
    return list({one.digest: one for one in blobs}.values())


def _beside(source: Repository, target: Repository) -> str:
    """The source's name, where it is another repository of the same registry."""
    return source.name if source.client.host == target.client.host and source.name != target.name else ""
