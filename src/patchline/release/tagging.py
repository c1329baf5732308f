"""Gives an image the next free tag: in the registry and in the records at once, and never one that means another."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from patchline.errors import Refused, SourceMismatch
from patchline.image import tags
from patchline.image.model import Document
from patchline.image.registry.listing import tags as all_tags
from patchline.image.registry.repository import Repository
from patchline.image.tags import Tag
from patchline.progress import say
from patchline.release import claims
from patchline.release.record import Record
from patchline.release.records import Records

TRIES = 20

Write = Callable[[Tag], Record]
"""Makes the record of an image under a tag."""


def known(records: Records, wanted: Tag, image: str) -> Record | None:
    """The record of an image that has a tag like `wanted`, or was about to get one when a run died."""
    done = [one for one in records.like(wanted) if one.image == image]
    return records.waiting(wanted, image) or (done[-1] if done else None)


def meaning(repository: Repository, listed: Iterable[str], wanted: Tag, image: str) -> Tag | None:
    """The highest tag like `wanted` that means the image already."""
    like = [tag for tag in tags.ours(listed) if tag._replace(number=1) == wanted._replace(number=1)]
    return next((tag for tag in reversed(like) if repository.digest_of(str(tag)) == image), None)


def take(
    repository: Repository, manifest: Document, wanted: Tag, records: Records, write: Write, *, another: bool
) -> Record:
    """Tags the image of `manifest`, which the repository has, and completes its record.

    The tag that it has, or was about to get, is taken again; with `another` only the one it was about to get.

    Raises:
        SourceMismatch: a record says that a tag means this image, and in the registry it means another.
        Refused: others were faster each time.
        As `Repository.tag`.
    """
    claimed: set[str] = set()
    for _ in range(TRIES):
        listed = [*all_tags(repository), *claimed]
        waits, tag = candidate(repository, listed, records, wanted, manifest.digest, another=another)
        done = _try(repository, manifest, tag, records, waits, write)
        if done:
            return done
        say(f"{repository.where}: {tag} goes to another image, or may; trying again")
        if not claims.gone(repository, str(tag), manifest.digest):
            claimed.add(str(tag))
            _lost(records, waits, None)
    raise Refused(
        f"others took every tag like {wanted} first, {TRIES} times",
        where=repository.where,
        next="run the same command again",
    )


def candidate(
    repository: Repository, listed: list[str], records: Records, wanted: Tag, image: str, *, another: bool
) -> tuple[Record | None, Tag]:
    """The tag that an image is to get, and its record where there is one."""
    made = records.waiting(wanted, image) if another else known(records, wanted, image)
    if made:
        return made, tags.parse(made.tag)
    there = None if another else meaning(repository, listed, wanted, image)
    return None, there or tags.next_free(wanted, [*listed, *records.names()])


def _try(
    repository: Repository, manifest: Document, tag: Tag, records: Records, made: Record | None, write: Write
) -> Record | None:
    """Takes one tag; None where another image has it, or is about to."""
    name, image = str(tag), manifest.digest
    now = repository.digest_of(name)
    if now == image:
        return complete(repository, records, made or records.wait(write(tag)))
    if now:
        return _lost(records, made, now)
    with claims.claimed(repository, name, image):
        if not claims.alone(repository, name, image):
            return None
        now = repository.digest_of(name)  # asked after the claims: who took his back has set the tag
        record = made or records.wait(write(tag))
        try:
            if now in (None, image):
                repository.tag(manifest, name)
        except Refused:
            now = repository.digest_of(name)
            if now in (None, image):
                raise
        if now not in (None, image):
            return _lost(records, record, now)
        return complete(repository, records, record)


def _lost(records: Records, made: Record | None, now: str | None) -> Record | None:
    """The tag of a record goes to another image: a pending record goes away, a complete one was true once."""
    if made and not records.path(made.tag).is_file():
        records.drop(made)
    elif made and now:
        raise SourceMismatch(
            f"the tag {made.tag} was moved\n  record:   {made.image}\n  registry: {now}",
            where=str(records.path(made.tag)),
            next="see who moved it, and give it back; or publish another one with --another",
        )
    return None


def complete(repository: Repository, records: Records, record: Record) -> Record:
    """Makes the record of a tag that stands one of the changelog, and clears away what served the way to it."""
    records.complete(record)
    claims.clear(repository, all_tags(repository), record.tag, record.image)
    return record
