"""Publishes an image as a nightly: push by digest, verify, attach, record, and only then the tag.

Stopped anywhere and run again, it completes: with the same tag, and nothing is sent or attached twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from patchline import __version__, git
from patchline.errors import SourceMismatch, UsageError
from patchline.image import tags
from patchline.image.model import Descriptor
from patchline.image.registry import referrers
from patchline.image.registry.listing import tags as all_tags
from patchline.image.registry.push import push
from patchline.image.registry.referrers import Artifact
from patchline.image.registry.repository import Repository
from patchline.image.tags import Tag
from patchline.lines.build import Built
from patchline.project import Project
from patchline.release import facts, held, proof, provenance, records, sbom, tagging
from patchline.release.facts import Facts
from patchline.release.held import settled
from patchline.release.plan import Plan, Step, is_done
from patchline.release.record import Record
from patchline.release.records import Records
from patchline.release.released import Released


class _Whole(NamedTuple):
    """An image with what is attached to it, on its way to a repository."""

    facts: Facts
    subject: Descriptor
    artifacts: Sequence[Artifact]
    records: Records
    wanted: Tag
    another: bool


def publish(
    built: Built, repository: Repository, *, date: str, another: bool = False, dry_run: bool = False
) -> Released:
    """Publishes `built` as a nightly of that `date` (`YYYYMMDD`).

    An image that was published that day keeps its tag, unless `another` is asked for.

    Raises:
        UsageError: it is no date, or the line's name cannot stand in a tag.
        SourceMismatch: the registry holds something else than was meant, a tag was moved, or a record was edited.
        Refused, Unreachable: the registry does not let us, or did not do it.
    """
    if not date:
        raise UsageError("a nightly has a date", next="a release without one comes from promoting a nightly")
    project = built.carried[0].project
    one = _whole(project, built, tags.first(built.line.dynamo, built.line.name, date), another)
    image, at = one.facts.image, repository.where
    tag, plan = _plan(one, repository)
    path = one.records.path(tag)
    known = one.records.get(tag)
    if is_done(plan) and known and not dry_run:
        tagging.complete(repository, one.records, known)
    if is_done(plan) or dry_run:
        return Released(tag, image.digest, at, path, plan, is_done(plan), dry_run)
    settled(lambda: push(image, repository))
    held.check(image, repository)
    attached = settled(lambda: _attach(repository, one))
    commit = commit_of(project)

    def write(tag: Tag) -> Record:
        return facts.record_of(one.facts, str(tag), at, attached, commit)

    done = tagging.take(repository, image.manifest, one.wanted, one.records, write, another=another)
    return Released(done.tag, image.digest, at, one.records.path(done.tag), plan, False, False)


def _whole(project: Project, built: Built, wanted: Tag, another: bool) -> _Whole:
    """What is attached says the same each time: evidence that came later belongs to a later release."""
    image, found = built.image, records.of(project)
    made = found.waiting(wanted, image.digest) if another else tagging.known(found, wanted, image.digest)
    series = [one.name for one in built.carried]
    speaks_of = {*(one.digest for one in built.overlays), image.digest}
    known = made.evidence if made else proof.files(project, series, built.line.name, speaks_of)
    all_facts = facts.of(project, built, known, made.patchline if made else __version__)
    subject = Descriptor(image.manifest.fields["mediaType"], image.digest, len(image.manifest.data))
    return _Whole(all_facts, subject, artifacts(all_facts), found, wanted, another)


def artifacts(found: Facts) -> list[Artifact]:
    """What is attached to an image."""
    return [sbom.sbom(found), provenance.provenance(found)]


def _plan(one: _Whole, repository: Repository) -> tuple[str, Plan]:
    """The tag that the image gets, or has, and the steps; nothing is changed."""
    digest, listed = one.subject.digest, all_tags(repository)
    _, tag = tagging.candidate(repository, listed, one.records, one.wanted, digest, another=one.another)
    there = repository.manifest(digest) is not None
    attached = {other.digest for other in referrers.listed(repository, digest)} if there else set()
    steps = [Step("push", f"{repository.where}@{digest}", there)]
    for artifact in one.artifacts:
        made = referrers.manifest_of(artifact, one.subject).digest
        steps.append(Step("attach", f"{artifact.kind} {made}", made in attached))
    steps.append(Step("record", one.records.path(str(tag)).name, one.records.get(str(tag)) is not None))
    steps.append(Step("tag", str(tag), there and repository.digest_of(str(tag)) == digest))
    return str(tag), tuple(steps)


def _attach(repository: Repository, one: _Whole) -> dict[str, str]:
    """Attaches, and reads back; the digests of the artifacts' manifests, by kind.

    Raises:
        SourceMismatch: the registry does not list them, or holds others.
    """
    made = referrers.attach(repository, one.subject, one.artifacts)
    there = {other.digest: other for other in referrers.listed(repository, one.subject.digest)}
    for digest, artifact in zip(made, one.artifacts, strict=True):
        if digest not in there or referrers.read(repository, there[digest]).data != artifact.data:
            raise SourceMismatch(
                f"the registry does not list what was attached: {artifact.kind} {digest}", where=repository.where
            )
    return dict(zip((artifact.kind for artifact in one.artifacts), made, strict=True))


def commit_of(project: Project) -> str:
    """The commit of the project that is checked out; empty where it is in no git repository."""
    try:
        return git.top(project.root).head
    except UsageError:
        return ""
