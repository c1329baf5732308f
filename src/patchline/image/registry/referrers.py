"""What is attached to an image: manifests with a `subject`, by the OCI image and distribution specifications, 1.1.

A registry with the referrers API lists them. For one without it (no `OCI-Subject` in its answer) the client keeps an
index under a tag made of the subject's digest, `sha256-<hex>`: the specification's referrers tag schema.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec

from patchline.errors import SourceMismatch, Unreachable
from patchline.image import digests, model
from patchline.image.model import Descriptor, Document
from patchline.image.registry import download
from patchline.image.registry.listing import next_link
from patchline.image.registry.repository import Repository
from patchline.image.registry.upload import upload

SETTLE = 0.25
"""Seconds after which an index that we wrote is read once more."""

_NO_INDEX: dict[str, Any] = {"schemaVersion": 2, "mediaType": model.INDEX, "manifests": []}
_TRIES = 12
_PAGES = 100


class Artifact(NamedTuple):
    """What is attached: one document of a media type."""

    kind: str
    """Media type of the document, and the artifact's type."""
    data: bytes
    annotations: Mapping[str, str] = {}


class Attached(msgspec.Struct, frozen=True, rename="camel"):
    """One referrer, as a registry or an index lists it."""

    media_type: str
    digest: str
    """Of the artifact's manifest."""
    size: int
    artifact_type: str = ""
    annotations: dict[str, str] = {}


def manifest_of(artifact: Artifact, subject: Descriptor) -> Document:
    """The manifest by which an artifact is attached to `subject`: the same one each time."""
    layer = {"mediaType": artifact.kind, "digest": digests.of(artifact.data), "size": len(artifact.data)}
    to = {"mediaType": subject.media_type, "digest": subject.digest, "size": subject.size}
    head = {"schemaVersion": 2, "mediaType": model.MANIFEST, "artifactType": artifact.kind}
    fields = {**head, "config": msgspec.to_builtins(model.EMPTY), "layers": [layer], "subject": to}
    return model.made(fields | ({"annotations": dict(artifact.annotations)} if artifact.annotations else {}))


def attach(repository: Repository, subject: Descriptor, artifacts: Sequence[Artifact]) -> list[str]:
    """Attaches what is not attached yet, and gives the digests of the artifacts' manifests, in their order.

    Stopped anywhere and run again, it completes.

    Raises:
        Unreachable: the registry did not do it, or others kept writing over the index.
        SourceMismatch: the tag of the index means something else, or the registry holds other bytes.
    """
    made = [(one, manifest_of(one, subject)) for one in artifacts]
    there = {one.digest for one in listed(repository, subject.digest)}
    lacking = [(one, manifest) for one, manifest in made if manifest.digest not in there]
    own = [one for one in lacking if not _put(repository, *one)]
    if own:
        _list(repository, subject.digest, [_described(*one) for one in own])
    return [manifest.digest for _, manifest in made]


def listed(repository: Repository, digest: str) -> list[Attached]:
    """All that is attached to the manifest of that digest.

    Raises:
        SourceMismatch: what the registry answers is no index.
    """
    found = _by_api(repository, digest)
    if found is None:
        index = _index(repository, digest)
        found = index.fields["manifests"] if index else []
    try:
        return [msgspec.convert(one, Attached) for one in found]
    except msgspec.ValidationError as bad:
        raise SourceMismatch(f"this is no list of referrers: {bad}", where=f"{repository.where}, {digest}") from bad


def read(repository: Repository, attached: Attached) -> Artifact:
    """What is attached, checked.

    Raises:
        SourceMismatch: it is not there, is no single document, or its bytes are others.
    """
    found, where = repository.manifest(attached.digest), f"{repository.where}, {attached.digest}"
    if found is None:
        raise SourceMismatch("a referrer is listed and is not there", where=where)
    _, layers = model.manifest(found.document, where)
    if len(layers) != 1 or layers[0].size > model.MOST:
        raise SourceMismatch(f"a referrer of {len(layers)} layers, or of too long a one", where=where)
    kind = found.document.fields.get("artifactType") or attached.artifact_type
    data = b"".join(download.blob(repository, layers[0]))
    return Artifact(kind, data, found.document.fields.get("annotations") or {})


def enlist(repository: Repository, digest: str, wanted: Sequence[Attached]) -> None:
    """Adds referrers to the index of what is attached to `digest`, where the registry has no API that does it.

    Raises:
        Unreachable: others kept writing over it.
    """
    entries: list[dict[str, Any]] = msgspec.to_builtins(wanted)
    _list(repository, digest, [{key: value for key, value in one.items() if value} for one in entries])


def tag_of(digest: str) -> str:
    """The tag of the index of what is attached to `digest`, where a registry has no referrers API."""
    return digest.replace(":", "-", 1)


def _put(repository: Repository, artifact: Artifact, manifest: Document) -> bool:
    """Brings blobs and manifest; true where the registry lists it itself."""
    config, layers = model.manifest(manifest, repository.where)
    for blob, data in ((config, model.NOTHING), (layers[0], artifact.data)):
        if not repository.has(blob):
            upload(repository, blob, partial(iter, [data]))
    return repository.put(manifest)


def _described(artifact: Artifact, manifest: Document) -> dict[str, Any]:
    """The entry of an index."""
    named = {"annotations": dict(artifact.annotations)} if artifact.annotations else {}
    head = {"mediaType": model.MANIFEST, "digest": manifest.digest, "size": len(manifest.data)}
    return {**head, "artifactType": artifact.kind, **named}


def _by_api(repository: Repository, digest: str) -> list[Any] | None:
    """By the referrers API; None where the registry has none."""
    client, found = repository.client, list[Any]()
    path = repository.path(f"referrers/{digest}")
    for _ in range(_PAGES):
        answer = client.ask("GET", path, repository.scopes, ok=(200, 404, 405), headers={"Accept": model.INDEX})
        if answer.status != 200:
            return None
        found += _manifests(model.document(answer.data, f"{repository.where}, {digest}"), repository)
        following = next_link(answer.headers.get("Link", ""))
        if not following:
            return found
        path = client.resolve(answer.url, following).target
    raise SourceMismatch("the registry's list of referrers has no end", where=f"{repository.where}, {digest}")


def _index(repository: Repository, digest: str) -> Document | None:
    """The index under the tag; None where there is none."""
    found = repository.manifest(tag_of(digest))
    if found is None:
        return None
    if found.descriptor.media_type != model.INDEX:
        raise SourceMismatch(
            f"the tag {tag_of(digest)} should mean an index, and means a {found.descriptor.media_type}",
            where=repository.where,
        )
    _manifests(found.document, repository)
    return found.document


def _manifests(index: Document, repository: Repository) -> list[Any]:
    found = index.fields.get("manifests")
    if not isinstance(found, list):
        raise SourceMismatch("this is no list of referrers: it has no manifests", where=repository.where)
    return found


def _list(repository: Repository, digest: str, wanted: Sequence[dict[str, Any]]) -> None:
    """Adds entries to the index; what others add at the same moment is kept.

    No registry can be told to take an index only if nobody else wrote meanwhile. So it is read again after it was
    written, and once more when everybody who had read the old one has written his.
    """
    for number in range(_TRIES):
        if not _write(repository, digest, wanted):
            time.sleep(SETTLE)
            if not _write(repository, digest, wanted):
                return
        time.sleep(random.uniform(0, 0.05 * number))  # not all at one moment
    raise Unreachable(
        f"others kept writing over the list of what is attached to {digest}",
        where=repository.where,
        next="run the same command again: what is there is not sent twice",
    )


def _write(repository: Repository, digest: str, wanted: Sequence[dict[str, Any]]) -> bool:
    """Writes the index with the entries that it lacks; false where it lacked none."""
    index = _index(repository, digest)
    fields = index.fields if index else _NO_INDEX
    there = {one.get("digest") for one in fields["manifests"] if isinstance(one, dict)}
    lacking = [one for one in wanted if one["digest"] not in there]
    if lacking:
        repository.put(model.made({**fields, "manifests": [*fields["manifests"], *lacking]}), tag_of(digest))
    return bool(lacking)
