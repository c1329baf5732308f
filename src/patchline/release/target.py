"""The repository that is published to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from patchline.errors import UsageError
from patchline.image.reference import parse
from patchline.image.registry.client import Client
from patchline.image.registry.remote import Remote
from patchline.image.registry.repository import Repository
from patchline.image.source import Source


@contextmanager
def pushing(name: str, beside: Source | Repository | None = None) -> Iterator[Repository]:
    """The repository `HOST/NAME`, open for writing for as long as the block runs.

    Blobs may be taken from the repository `beside`, where that is another one of the same registry.

    Raises:
        UsageError: it is no name of a repository, or has a tag or a digest: tags are given, never chosen.
    """
    reference = parse(name)
    if reference.tag or reference.digest:
        raise UsageError(
            f"{name} names an image, and a repository is wanted: the tag is the next free one",
            next=f"give {reference.repository}",
        )
    other = beside.repository if isinstance(beside, Remote) else beside
    near = [other.name] if isinstance(other, Repository) and other.client.host == reference.host else []
    with Client(reference.host) as client:
        yield Repository(client, reference.name, push=True, beside=near)
