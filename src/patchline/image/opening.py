"""Sources by their names: `oci:FOLDER`, `docker-archive:FILE`, or an image in a registry."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from patchline.image.archive import Archive
from patchline.image.layout import Layout
from patchline.image.reference import parse
from patchline.image.source import Source


@contextmanager
def opened(name: str) -> Iterator[Source]:
    """The source that `name` means, for as long as the block runs.

    Raises:
        UsageError: it is no name of one, or nothing is there.
    """
    kind, colon, path = name.partition(":")
    if colon and kind == "oci":
        yield Layout(Path(path))
    elif colon and kind == "docker-archive":
        yield Archive(Path(path))
    else:
        from patchline.image.registry.client import Client
        from patchline.image.registry.remote import Remote
        from patchline.image.registry.repository import Repository

        reference = parse(name)
        with Client(reference.host) as client:
            yield Remote(Repository(client, reference.name), reference)
