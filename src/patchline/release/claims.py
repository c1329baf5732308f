"""Who is about to set a tag says so first, in the registry: a tag is never moved, even by two who set it at one moment.

A registry cannot be told to take a tag only while it is free. So a *claim* is put first, a tag of its own
(`<tag>.claim-…`) on a manifest of its own; then all claims are read, and only who sees no one else's goes on: of two,
the one who claimed later sees the other's. Where both see each other's, the one whose image has the lower digest waits
and the other one steps back. A claim that nobody takes back is of a run that died: the next number is taken.
"""

from __future__ import annotations

import random
import re
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import msgspec

from patchline.errors import Refused, Unreachable, UsageError
from patchline.image import model
from patchline.image.model import Document
from patchline.image.reference import is_tag
from patchline.image.registry.listing import tags as all_tags
from patchline.image.registry.repository import Repository
from patchline.image.registry.upload import upload
from patchline.progress import say

KIND = "application/vnd.patchline.claim"
"""Type of its manifest, and the annotation with its name."""

WAIT = 10.0
"""Seconds until a claim of somebody else's is taken for one of a run that died."""

_POLL = 0.05
_CLAIM = re.compile(r"(?P<tag>.+)\.claim-(?P<image>[0-9a-f]{16})-[0-9a-f]{8}")


class Claim(NamedTuple):
    """One claim, by its name."""

    name: str
    tag: str
    """What is claimed."""
    image: str
    """The first 16 hex digits of the image's digest."""


def claims(listed: Iterable[str]) -> list[Claim]:
    """The claims among a repository's tags."""
    found = (_CLAIM.fullmatch(name) for name in listed)
    return [Claim(one[0], one["tag"], one["image"]) for one in found if one]


def others(repository: Repository, tag: str, image: str) -> list[Claim]:
    """The claims on `tag` that stand for another image than that of the digest `image`."""
    found = [one for one in claims(all_tags(repository)) if one.tag == tag and one.image != _short(image)]
    return [one for one in found if repository.digest_of(one.name) not in (None, _withdrawn().digest)]


def alone(repository: Repository, tag: str, image: str) -> bool:
    """Whether nobody else claims what we claim; waits for those who step back for us."""
    until = time.monotonic() + WAIT
    while found := others(repository, tag, image):
        if time.monotonic() > until or min(one.image for one in found) < _short(image):
            return False
        time.sleep(_POLL)
    return True


def gone(repository: Repository, tag: str, image: str) -> bool:
    """Waits until nobody else claims `tag` any more; false where somebody still does."""
    until = time.monotonic() + WAIT
    while others(repository, tag, image):
        if time.monotonic() > until:
            return False
        time.sleep(random.uniform(0, 2 * _POLL))
    return True


@contextmanager
def claimed(repository: Repository, tag: str, image: str) -> Iterator[None]:
    """Claims `tag` for the image of that digest while the block runs.

    Raises:
        UsageError: the tag is too long for it.
    """
    manifest = _manifest(tag, image, secrets.token_hex(4))
    name = manifest.fields["annotations"][KIND]
    if not is_tag(name):
        raise UsageError(f"the tag {tag} is too long to be claimed before it is set", next="give the line a short name")
    config, _ = model.manifest(manifest, repository.where)
    if not repository.has(config):
        upload(repository, config, lambda: iter([model.NOTHING]))
    repository.put(manifest, name)
    try:
        yield
    except Unreachable:
        raise  # the claim stays, as if this run had died
    except BaseException:
        _withdraw(repository, manifest.digest, name)
        raise
    _withdraw(repository, manifest.digest, name)


def _withdraw(repository: Repository, digest: str, name: str) -> None:
    """Takes a claim back: removed, or else made to say that it stands for nothing."""
    try:
        removed = repository.remove(digest)
    except (Refused, Unreachable):
        removed = False
    try:
        if not removed:
            repository.put(_withdrawn(), name)
    except (Refused, Unreachable):
        say(f"{repository.where}: the registry keeps the claim {name}; it means no image")


def clear(repository: Repository, listed: Iterable[str], tag: str, image: str) -> None:
    """Removes the claims that runs which died left for a tag that means `image` now."""
    for one in claims(listed):
        if one.tag == tag and one.image == _short(image):
            found = repository.digest_of(one.name) or ""
            if found not in ("", _withdrawn().digest):
                _withdraw(repository, found, one.name)


def _manifest(tag: str, image: str, nonce: str) -> Document:
    """A manifest that is like no other: removing it by its digest removes this claim only."""
    return _named(f"{tag}.claim-{_short(image)}-{nonce}")


def _withdrawn() -> Document:
    """What a claim means that was taken back, where a registry removes nothing."""
    return _named("withdrawn")


def _named(name: str) -> Document:
    config = msgspec.to_builtins(model.EMPTY)
    head = {"schemaVersion": 2, "mediaType": model.MANIFEST, "artifactType": KIND, "config": config}
    return model.made({**head, "layers": [config], "annotations": {KIND: name}})


def _short(digest: str) -> str:
    return digest.removeprefix("sha256:")[:16]
