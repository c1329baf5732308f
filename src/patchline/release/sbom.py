"""What an image is made of, as CycloneDX: pins with their hashes, carried patches, base, layer and its files.

The same image gives the same bytes: the serial number follows from its digest, and the time is the one it states.
"""

from __future__ import annotations

import base64
import gzip
import io
import posixpath
import tarfile
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime

from cyclonedx.model import (
    AttachedText,
    Encoding,
    ExternalReference,
    ExternalReferenceType,
    HashAlgorithm,
    HashType,
    Property,
    XsUri,
)
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType, Diff, Patch, PatchClassification, Pedigree
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from patchline.errors import SourceMismatch
from patchline.image import digests
from patchline.image.layer import removed_by
from patchline.image.registry.referrers import Artifact
from patchline.pins import ArchivePin
from patchline.release.facts import Facts, Part, PatchFile

KIND = "application/vnd.cyclonedx+json"
_EPOCH = "1970-01-01T00:00:00Z"


def sbom(facts: Facts) -> Artifact:
    """The bill of materials of an image.

    Raises:
        SourceMismatch: the image states a time that is none.
    """
    image = _image(facts)
    base, layer, parts = _base(facts), _layer(facts), [_part(one) for one in facts.parts]
    when = _time(facts.created or _EPOCH)
    bom = Bom(
        serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"sbom of {facts.image.digest}"),
        metadata=BomMetaData(component=image, timestamp=when, tools=[]),
        components=[base, layer, *parts],
    )
    bom.metadata.tools.components.add(
        Component(name="patchline", version=facts.patchline, type=ComponentType.APPLICATION)
    )
    bom.register_dependency(image, [base, layer, *parts])
    return Artifact(KIND, JsonV1Dot6(bom).output_as_string(indent=1).encode() + b"\n")


def _image(facts: Facts) -> Component:
    said = {"patchline:overlay": facts.who.overlay, "patchline:config": facts.image.config.digest}
    return Component(
        name=facts.line,
        version=facts.who.version,
        type=ComponentType.CONTAINER,
        bom_ref="image",
        purl=_oci(facts.line, facts.image.digest),
        hashes=[_hash(facts.image.digest)],
        properties=_properties(said),
    )


def _base(facts: Facts) -> Component:
    base, name = facts.image.base, facts.who.base_name or "base"
    said = {"patchline:config": base.config.digest, "patchline:base-lock": facts.lock}
    layers = {f"patchline:layer:{number:03d}": one.digest for number, one in enumerate(base.layers, 1)}
    return Component(
        name=name,
        version=base.digest,
        type=ComponentType.CONTAINER,
        bom_ref="base",
        purl=_oci(posixpath.basename(name).partition(":")[0], base.digest),
        hashes=[_hash(base.digest)],
        properties=_properties(said | layers),
    )


def _oci(name: str, digest: str) -> PackageURL:
    return PackageURL(type="oci", name=name.lower(), version=digest)


def _layer(facts: Facts) -> Component:
    """The layer that was added, with every file in it, and what it removes of the base."""
    files: list[Component] = []
    removed: dict[str, str] = {}
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(facts.image.layer))) as tar:
        for member in tar:
            if gone := removed_by(member.name):
                removed[f"patchline:removed:{len(removed) + 1:04d}"] = f"/{gone}"
            elif member.isreg() and (file := tar.extractfile(member)):
                files.append(_file(f"/{member.name}", file.read()))
    return Component(
        name="layer",
        version=facts.layer,
        type=ComponentType.FILE,
        bom_ref="layer",
        hashes=[_hash(facts.layer)],
        components=files,
        properties=_properties(removed),
    )


def _file(path: str, data: bytes) -> Component:
    return Component(
        name=path,
        type=ComponentType.FILE,
        bom_ref=f"file:{path}",
        hashes=[_hash(digests.of(data))],
    )


def _part(part: Part) -> Component:
    """A pinned distribution; a changed one descends from the pinned one by its patches."""
    if part.overlay is None:
        return _pinned(part, part.spec)
    said = {"patchline:series": part.series, "patchline:overlay": part.overlay.digest}
    for patch in part.patches:  # in their names, since the list of patches below has an order of its own
        said |= {f"patchline:patch:{patch.name}:commit": patch.id, f"patchline:patch:{patch.name}:file": patch.digest}
    return Component(
        name=part.name,
        version=part.version,
        type=ComponentType.LIBRARY,
        bom_ref=part.spec,
        purl=PackageURL.from_string(part.purl),
        pedigree=Pedigree(
            ancestors=[_pinned(part, f"{part.spec} as pinned")],
            patches=[_patch(one) for one in part.patches],
            notes=f"{len(part.patches)} patches, in the order of their names",
        ),
        properties=_properties(said),
    )


def _pinned(part: Part, ref: str) -> Component:
    return Component(
        name=part.name,
        version=part.version,
        type=ComponentType.LIBRARY,
        bom_ref=ref,
        purl=PackageURL.from_string(part.purl),
        external_references=list(_files(part)),
        hashes=[HashType(alg=_SHA, content=value) for value in part.files.values()]
        if isinstance(part.pin, ArchivePin)
        else [],
    )


def _files(part: Part) -> Iterator[ExternalReference]:
    """The files of a release, by their names; of a git pin its repository."""
    for name, value in part.files.items():
        if isinstance(part.pin, ArchivePin):
            hashes = [HashType(alg=_SHA, content=value)]
            yield ExternalReference(type=ExternalReferenceType.DISTRIBUTION, url=XsUri(name), hashes=hashes)
        else:
            yield ExternalReference(type=ExternalReferenceType.VCS, url=XsUri(name), comment=f"commit {value}")


def _patch(patch: PatchFile) -> Patch:
    """Its whole file: the message says why it is carried."""
    try:
        text = AttachedText(content=patch.data.decode(), content_type="text/x-patch")
    except UnicodeDecodeError:
        coded = base64.b64encode(patch.data).decode()
        text = AttachedText(content=coded, content_type="text/x-patch", encoding=Encoding.BASE_64)
    return Patch(type=PatchClassification.UNOFFICIAL, diff=Diff(text=text, url=XsUri(patch.path)))


_SHA = HashAlgorithm.SHA_256


def _hash(digest: str) -> HashType:
    return HashType(alg=_SHA, content=digest.removeprefix("sha256:"))


def _properties(said: dict[str, str]) -> list[Property]:
    return [Property(name=name, value=value) for name, value in said.items()]


def _time(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError as bad:
        raise SourceMismatch(f"the image was created at a time that is none: {text!r}") from bad
    return found if found.tzinfo else found.replace(tzinfo=UTC)
