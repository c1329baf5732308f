"""Makes a nightly that was tested a release: the same digest gets a tag without a date, and nothing is built again.

Stopped anywhere and run again, it completes; an image that has a release's tag keeps it.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import msgspec

from patchline import __version__
from patchline.errors import UsageError
from patchline.image import tags
from patchline.image.model import Document
from patchline.image.registry import referrers
from patchline.image.registry.listing import tags as all_tags
from patchline.image.registry.repository import Repository
from patchline.image.tags import Tag
from patchline.lines import carries
from patchline.lines.line import Line
from patchline.progress import say
from patchline.project import Project
from patchline.release import copying, needs, proof, records, tagging, tested
from patchline.release.held import settled
from patchline.release.needs import Need
from patchline.release.plan import Plan, Step, is_done, text
from patchline.release.publish import commit_of
from patchline.release.record import Record
from patchline.release.records import Records
from patchline.release.released import Released
from patchline.seal import sealed


class _Way(NamedTuple):
    """From where to where a nightly goes."""

    nightly: Record
    source: Repository
    target: Repository
    records: Records
    wanted: Tag


def promote(
    project: Project,
    line: Line,
    nightly: str,
    source: Repository,
    target: Repository | None = None,
    *,
    dry_run: bool = False,
) -> Released:
    """Releases the nightly of that tag or image digest, which `source` has; in `target`, where that is another one.

    Raises:
        UsageError: there is no record of it, or it is of another line.
        Refused: a proof, a gate or the smoke test is missing or does not stand; all that is missing is named.
        SourceMismatch: the registry holds something else than the record says, or a record or evidence was edited.
        Unreachable: the registry did not do it.
    """
    found = records.of(project)
    one = _nightly(found, line, nightly)
    way = _Way(one, source, target or source, found, tags.first(line.dynamo, line.name))
    manifest = tested.manifest(source, one)
    tag, steps = _plan(way)
    if is_done(steps) and (known := found.get(tag)):
        if not dry_run:
            tagging.complete(way.target, found, known)
        return _promoted(way, tag, steps, already=True, dry_run=dry_run)
    all_needs = list(_needs(project, line, way, manifest))
    plan = (*(need.step for need in all_needs), *steps)
    say(text(plan))
    needs.refuse_missing(all_needs)
    if dry_run:
        return _promoted(way, tag, plan, already=False, dry_run=True)
    if source is not way.target:
        settled(lambda: copying.copy(source, way.target, manifest, one.referrers.values()))
    evidence = proof.files(project, [each.pin for each in one.series], line.name, _digests(one))
    commit = commit_of(project)

    def write(tag: Tag) -> Record:
        return _release(one, str(tag), way.target.where, evidence, commit)

    done = tagging.take(way.target, manifest, way.wanted, found, write, another=False)
    return _promoted(way, done.tag, plan, already=False, dry_run=False)


def _nightly(found: Records, line: Line, name: str) -> Record:
    known = [one for one in records.find(found, name) if not one.nightly]
    if not known or known[-1].line != line.name or known[-1].dynamo != line.dynamo:
        what = f"of {known[-1].line} on Dynamo {known[-1].dynamo}" if known else "a release already"
        raise UsageError(f"{name} is {what}, and a nightly of {line.name} on Dynamo {line.dynamo} is wanted")
    return known[-1]


def _needs(project: Project, line: Line, way: _Way, manifest: Document) -> list[Need]:
    """Everything that has to hold, whether it does or not."""
    today = carries.of(project, line, way.nightly.base.name)
    found = [tested.image(way.source, way.nightly, manifest), tested.overlay(today, way.nightly)]
    if found[-1].missing:
        return found  # other patches than the image's have other proofs
    for one in today.carried:
        found += needs.of_series(one)
    return [*found, *needs.of_gates(project, line, way.nightly), *needs.of_smoke(project, line, way.nightly)]


def _plan(way: _Way) -> tuple[str, Plan]:
    """The tag that the image gets, or has, and the steps to it; nothing is changed."""
    target, digest = way.target, way.nightly.image
    _, tag = tagging.candidate(target, all_tags(target), way.records, way.wanted, digest, another=False)
    steps = []
    if target is not way.source:
        there = target.manifest(digest) is not None
        attached = {one.digest for one in referrers.listed(target, digest)} if there else set()
        whole = there and attached >= {*way.nightly.referrers.values()}
        steps.append(Step("copy", f"{target.where}@{digest}", whole))
    steps.append(Step("record", way.records.path(str(tag)).name, way.records.get(str(tag)) is not None))
    steps.append(Step("tag", str(tag), target.digest_of(str(tag)) == digest))
    return str(tag), tuple(steps)


def _release(nightly: Record, tag: str, repository: str, evidence: dict[str, str], commit: str) -> Record:
    """The record of a release: that of the nightly, with the evidence that there is now."""
    return sealed(
        msgspec.structs.replace(
            nightly,
            tag=tag,
            repositories=(repository,),
            nightly=nightly.tag,
            evidence=evidence,
            patchline=__version__,
            project=commit,
            made=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        )
    )


def _digests(nightly: Record) -> set[str]:
    return {nightly.image, nightly.overlay, *(one.overlay for one in nightly.series)}


def _promoted(way: _Way, tag: str, plan: Plan, *, already: bool, dry_run: bool) -> Released:
    one, path = way.nightly, way.records.path(tag)
    return Released(tag, one.image, way.target.where, path, plan, already, dry_run, nightly=one.tag)
