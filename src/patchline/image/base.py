"""The image that a line builds on: one manifest for one platform, with its configuration."""

from __future__ import annotations

from typing import NamedTuple

from patchline.errors import SourceMismatch, UsageError
from patchline.image import model
from patchline.image.model import Descriptor, Document, Platform
from patchline.image.source import Source, read

PLATFORM = "linux/amd64"


class Base(NamedTuple):
    """An image whose manifest and configuration were read and checked; its layers were not."""

    source: Source
    manifest: Document
    config: Document
    layers: tuple[Descriptor, ...]
    """The lowest first."""
    platform: str
    """`linux/amd64`."""

    @property
    def digest(self) -> str:
        """Of the platform's manifest, also where an index was named."""
        return self.manifest.digest

    @property
    def where(self) -> str:
        """For messages."""
        return f"{self.source.where}, {self.digest}"


def find(source: Source, digest: str = "", platform: str = PLATFORM) -> Base:
    """The image of that platform, from the manifest or index of that `digest`; without one, from the only one there.

    Raises:
        SourceMismatch: it is not there, has no image for the platform, or is not what its digest says.
        UsageError: there are several, or `platform` is none.
    """
    root = _of_platform(source, source.root(digest), _platform(platform))
    manifest = read(source, root)
    where = f"{source.where}, {root.digest}"
    said = manifest.fields.get("mediaType", root.media_type)
    if root.media_type not in model.MANIFESTS or said != root.media_type:
        raise SourceMismatch(f"this is no image's manifest: {root.media_type}, and it says {said}", where=where)
    described, layers = model.manifest(manifest, where)
    config = read(source, described)
    ids = model.config(config, where).rootfs.diff_ids
    if len(ids) != len(layers):
        raise SourceMismatch(f"its configuration has {len(ids)} layers, its manifest {len(layers)}", where=where)
    found = model.platform(config, where)
    if not _suits(found, _platform(platform)):
        raise SourceMismatch(f"this image is for {found}, and not for {platform}", where=where)
    return Base(source, manifest, config, tuple(layers), str(_platform(platform)))


def _of_platform(source: Source, root: Descriptor, wanted: Platform) -> Descriptor:
    """The manifest for a platform, where an index was found (an index in an index included)."""
    for _ in range(3):
        if root.media_type not in model.INDEXES:
            return root
        where = f"{source.where}, {root.digest}"
        listed = model.index(read(source, root), where)
        suited = [one for one in listed if one.platform is None or _suits(one.platform, wanted)]
        if len({one.digest for one in suited}) != 1:
            there = ", ".join(sorted({str(one.platform or "any platform") for one in listed})) or "nothing"
            count = "several images" if suited else "no image"
            raise SourceMismatch(f"this index has {count} for {wanted}; there is {there}", where=where)
        root = suited[0]
    raise SourceMismatch("this index leads to an index, which leads to another", where=source.where)


def _suits(found: Platform, wanted: Platform) -> bool:
    return (found.os, found.architecture) == (wanted.os, wanted.architecture) and (
        not wanted.variant or found.variant == wanted.variant
    )


def _platform(text: str) -> Platform:
    parts = text.split("/")
    if not 2 <= len(parts) <= 3 or not all(parts):
        raise UsageError(f"{text!r} is no platform", next="a platform is named as os/architecture: linux/amd64")
    return Platform(*parts)
