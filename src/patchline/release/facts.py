"""What is known of an image that was cut: the one source of its SBOM, its provenance and its record."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote

from patchline import __version__
from patchline.errors import SourceMismatch
from patchline.image import digests, identity, model
from patchline.image.append import Image
from patchline.image.identity import Identity
from patchline.lines.build import Built
from patchline.overlay import Overlay
from patchline.pins import ArchivePin, Pin, load, name_of, select
from patchline.pins.select import normal
from patchline.project import Project
from patchline.release import record
from patchline.release.record import Record
from patchline.seal import sealed
from patchline.series.carried import Carried

BUILDER = "append"


class PatchFile(NamedTuple):
    """One carried patch, with its bytes."""

    path: str
    """From the project's root."""
    name: str
    id: str
    """Of the commit that it becomes."""
    data: bytes

    @property
    def digest(self) -> str:
        """Of the file."""
        return digests.of(self.data)


class Part(NamedTuple):
    """One pinned distribution, and the patches carried on it: none for one that the image holds unchanged."""

    name: str
    version: str
    pin: Pin
    series: str
    """The pin as its series names it, with the upstream's name; empty where none is carried."""
    overlay: Overlay | None
    patches: tuple[PatchFile, ...]

    @property
    def spec(self) -> str:
        """`ai-dynamo==1.6.0`."""
        return f"{self.name}=={self.version}"

    @property
    def purl(self) -> str:
        """Its package URL."""
        if isinstance(self.pin, ArchivePin):
            return f"pkg:pypi/{normal(self.name)}@{self.version}"
        source = quote(f"git+{self.pin.url}@{self.pin.commit}", safe="")
        return f"pkg:generic/{self.name}@{self.version}?vcs_url={source}"

    @property
    def files(self) -> dict[str, str]:
        """sha256 in hex, by file; of a git pin its commit, by its url."""
        if isinstance(self.pin, ArchivePin):
            return {file.name: file.sha256 for file in self.pin.files}
        return {self.pin.url: self.pin.commit}


class Facts(NamedTuple):
    """All of it."""

    image: Image
    line: str
    who: Identity
    lock: str
    """Seal of the base lock."""
    parts: tuple[Part, ...]
    """By name."""
    evidence: Mapping[str, str]
    """Digest by path, from the project's root."""
    patchline: str

    @property
    def created(self) -> str:
        """What the image says; empty where it says nothing."""
        return model.config(self.image.config, self.image.digest).created or ""

    @property
    def layer(self) -> str:
        """Digest of the layer that was added."""
        return digests.of(self.image.layer)


def of(project: Project, built: Built, evidence: Mapping[str, str], patchline: str = __version__) -> Facts:
    """The facts of an image that was just cut.

    Raises:
        SourceMismatch: the image does not carry what `built` says.
        UsageError: a pin is not there.
    """
    said = {one.pin: one for one in built.who.series}
    carries = [(one.name, made.digest) for one, made in zip(built.carried, built.overlays, strict=True)]
    if sorted(carries) != sorted((one.pin, one.overlay) for one in said.values()):
        raise SourceMismatch(f"the image of {built.line.name} says that it carries something else than it was cut from")
    upstreams = load(project.upstreams)
    parts: dict[str, Part] = {}
    for one, made in zip(built.carried, built.overlays, strict=True):
        patches = tuple(_patch(project, one, patch) for patch in said[one.name].patches)
        part = Part(name_of(one.upstream, one.pin), one.pin.version, one.pin, one.name, made, patches)
        parts[part.spec] = part
    for spec in built.line.pins:
        upstream, pin = select(upstreams, spec)
        part = Part(name_of(upstream, pin), pin.version, pin, "", None, ())
        parts.setdefault(part.spec, part)
    ordered = tuple(parts[spec] for spec in sorted(parts))
    lock = built.lock.contents.seal
    return Facts(built.image, built.line.name, built.who, lock, ordered, dict(sorted(evidence.items())), patchline)


def _patch(project: Project, one: Carried, patch: identity.Patch) -> PatchFile:
    path = one.folder / patch.name
    return PatchFile(path.relative_to(project.root).as_posix(), patch.name, patch.id, path.read_bytes())


def record_of(facts: Facts, tag: str, repository: str, referrers: Mapping[str, str], commit: str) -> Record:
    """The record of a nightly, made now."""
    image, base = facts.image, facts.image.base
    made = Record(
        schema=record.SCHEMA,
        tag=tag,
        line=facts.line,
        dynamo=facts.who.version,
        repositories=(repository,),
        image=image.digest,
        config=image.config.digest,
        layer=facts.layer,
        builder=BUILDER,
        created=facts.created,
        revision=facts.who.revision,
        base=record.Base(facts.who.base_name, base.digest, base.config.digest, base.platform, facts.lock),
        pins={part.spec: part.files for part in facts.parts},
        overlay=facts.who.overlay,
        series=tuple(_series(part, part.overlay) for part in facts.parts if part.overlay),
        referrers=dict(referrers),
        evidence=dict(facts.evidence),
        nightly="",
        patchline=facts.patchline,
        project=commit,
        made=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    )
    return sealed(made)


def _series(part: Part, made: Overlay) -> record.Series:
    patches = tuple(record.Patch(one.name, one.id, one.digest) for one in part.patches)
    return record.Series(part.series, part.spec, made.digest, made.base, made.head, patches)
