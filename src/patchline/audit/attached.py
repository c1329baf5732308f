"""What a registry has attached to an image, held against the image, its release records and the project."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from patchline.audit import bill, statement
from patchline.audit.finding import ATTACHED, Finding
from patchline.audit.labels import Said
from patchline.audit.view import View
from patchline.errors import SourceMismatch, UsageError
from patchline.image import tags
from patchline.image.base import Base
from patchline.image.registry import referrers
from patchline.image.registry.referrers import Artifact
from patchline.image.registry.remote import Remote
from patchline.image.source import Source
from patchline.project import Project
from patchline.release import provenance, records, sbom
from patchline.release.record import Record

_KINDS = {provenance.KIND: "provenance", sbom.KIND: "bill of materials"}


class Attached(NamedTuple):
    """What there is, and what is wrong with the list of it."""

    artifacts: tuple[tuple[str, Artifact], ...]
    """By the digest of its manifest."""
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]


_NOT_THERE = Attached((), (), ("what is attached to an image is in registries only: it was not there to be asked for",))


def read(project: Project, source: Source, image: Base) -> Attached:
    """Reads it, while the source is open; every release has what its record says, and provenance anyhow.

    Raises:
        SourceMismatch: a release record was edited.
        Unreachable: the registry does not answer.
    """
    if not isinstance(source, Remote):
        return _NOT_THERE
    artifacts, bad = list[tuple[str, Artifact]](), list[Finding]()
    for one in referrers.listed(source.repository, image.digest):
        if one.artifact_type in ("", *_KINDS):
            try:
                artifacts.append((one.digest, referrers.read(source.repository, one)))
            except SourceMismatch as gone:
                bad.append(Finding(ATTACHED, one.digest, gone.what))
    known = [one for one in _records(project) if one.image == image.digest]
    released = sorted({*(one.tag for one in known), *_tag(source)})
    missing = list(_missing(artifacts, released, known))
    notes = () if released or artifacts else ("nothing is attached to it, and no release record is of it",)
    return Attached(tuple(artifacts), (*bad, *missing), notes)


def _records(project: Project) -> Iterator[Record]:
    found = records.of(project)
    for name in found.names():
        one = found.get(name)
        if one is not None:
            yield one


def _tag(source: Remote) -> list[str]:
    """The tag that was asked for, where it is a release's."""
    try:
        return [str(tags.parse(source.reference.tag))] if source.reference.tag else []
    except UsageError:
        return []


def _missing(artifacts: list[tuple[str, Artifact]], released: list[str], known: list[Record]) -> Iterator[Finding]:
    there = {digest for digest, _ in artifacts}
    ours = {one.kind for _, one in artifacts if one.kind != provenance.KIND or statement.is_ours(one.data)}
    for kind, name in _KINDS.items():
        if released and kind not in ours:
            yield Finding(ATTACHED, released[-1], f"this is a release, and no {name} of ours is attached to it: {kind}")
    for one in known:
        for kind, digest in one.referrers.items():
            if kind in ours and digest not in there:
                what = f"its record says that {digest} is attached, and another {_KINDS.get(kind, kind)} is"
                yield Finding(ATTACHED, one.tag, what)


def findings(project: Project, image: Base, said: Said, view: View, found: Attached) -> Iterator[Finding]:
    """Everything that is wrong with what is attached."""
    yield from found.findings
    for digest, one in found.artifacts:
        if one.kind == sbom.KIND:
            yield from bill.findings(image, said, view, one.data, digest)
        elif one.kind == provenance.KIND and statement.is_ours(one.data):
            yield from statement.findings(project, image, said, one.data, digest)
