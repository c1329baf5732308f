"""Manifests, indexes and configurations of images, by the OCI image specification and Docker's schema 2.

Documents keep the fields that we do not know: what is written again has them.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import msgspec

from patchline.errors import SourceMismatch
from patchline.image import digests

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"

MANIFESTS = (MANIFEST, DOCKER_MANIFEST)
INDEXES = (INDEX, DOCKER_LIST)

MOST = 8 * 2**20
"""Bytes of a document that are read; registries take manifests of 4 MiB."""

_FOREIGN = "application/vnd.oci.image.layer.nondistributable.v1.tar"
_OCI_OF = {
    "application/vnd.docker.container.image.v1+json": CONFIG,
    "application/vnd.docker.image.rootfs.diff.tar": LAYER,
    "application/vnd.docker.image.rootfs.diff.tar.gzip": f"{LAYER}+gzip",
    "application/vnd.docker.image.rootfs.diff.tar.zstd": f"{LAYER}+zstd",
    "application/vnd.docker.image.rootfs.foreign.diff.tar": _FOREIGN,
    "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip": f"{_FOREIGN}+gzip",
}
"""Docker's media types of the same bytes."""

T = TypeVar("T")


class Platform(msgspec.Struct, frozen=True):
    """What an image runs on."""

    os: str = ""
    architecture: str = ""
    variant: str = ""

    def __str__(self) -> str:
        return "/".join(part for part in (self.os, self.architecture, self.variant) if part)


class Descriptor(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Content by its digest; `size` is in bytes."""

    media_type: str
    digest: str
    size: int
    urls: list[str] = []
    annotations: dict[str, str] = {}
    platform: Platform | None = None

    @property
    def foreign(self) -> bool:
        """Whether it is kept elsewhere, and not in registries (Windows' base layers)."""
        return "foreign" in self.media_type or "nondistributable" in self.media_type


NOTHING = b"{}"
EMPTY = Descriptor("application/vnd.oci.empty.v1+json", digests.of(NOTHING), len(NOTHING))
"""What a manifest without a configuration names as one: the descriptor of NOTHING (OCI image specification, 1.1)."""


class Document(NamedTuple):
    """A manifest, an index or a configuration: its bytes, and what they say."""

    data: bytes
    fields: dict[str, Any]

    @property
    def digest(self) -> str:
        """sha256 of the bytes."""
        return digests.of(self.data)


class _Manifest(msgspec.Struct, rename="camel"):
    schema_version: int
    config: Descriptor
    layers: list[Descriptor]


class _Index(msgspec.Struct, rename="camel"):
    schema_version: int
    manifests: list[Descriptor]


class _RootFs(msgspec.Struct):
    diff_ids: list[str]


class _Config(msgspec.Struct):
    architecture: str
    os: str
    rootfs: _RootFs
    created: str | None = None
    config: dict[str, Any] | None = None
    history: list[dict[str, Any]] | None = None


def document(data: bytes, where: str) -> Document:
    """The document in `data`.

    Raises:
        SourceMismatch: it is no JSON object.
    """
    return Document(data, _as(data, dict[str, Any], where))


def made(fields: dict[str, Any]) -> Document:
    """A document of ours: JSON without blanks, fields in the order given."""
    return Document(msgspec.json.encode(fields), fields)


def manifest(found: Document, where: str) -> tuple[Descriptor, list[Descriptor]]:
    """The configuration and the layers, lowest first, that a manifest names."""
    said = _as(found.data, _Manifest, where)
    if said.schema_version != 2:
        raise SourceMismatch(f"this manifest is of schema {said.schema_version}, and not of 2", where=where)
    return _sound(said.config, where), [_sound(one, where) for one in said.layers]


def index(found: Document, where: str) -> list[Descriptor]:
    """The manifests that an index (or Docker's list) names."""
    return [_sound(one, where) for one in _as(found.data, _Index, where).manifests]


def config(found: Document, where: str) -> _Config:
    """What a configuration says, as far as it is used here."""
    return _as(found.data, _Config, where)


def platform(found: Document, where: str) -> Platform:
    """What the image of this configuration runs on."""
    said = _as(found.data, Platform, where)
    return Platform(said.os, said.architecture, said.variant)


def descriptor(fields: Any, where: str) -> Descriptor:
    """The descriptor in a document's `fields`."""
    try:
        return _sound(msgspec.convert(fields, Descriptor), where)
    except msgspec.ValidationError as bad:
        raise SourceMismatch(f"this is no descriptor: {bad}", where=where) from bad


def as_oci(media_type: str) -> str:
    """OCI's name of a media type that may be Docker's."""
    return _OCI_OF.get(media_type, media_type)


def _sound(found: Descriptor, where: str) -> Descriptor:
    if not digests.is_digest(found.digest) or found.size < 0:
        raise SourceMismatch(f"no digest that can be checked: {found.digest!r}, {found.size} bytes", where=where)
    return found


def _as(data: bytes, kind: type[T], where: str) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, RecursionError) as bad:
        raise SourceMismatch(f"this is not what it should be: {bad}", where=where) from bad
