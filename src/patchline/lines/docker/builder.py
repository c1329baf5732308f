"""The builder `docker`: a line's Dockerfile makes what the builder `append` cut, for lines that need more than files.

Its context holds the files of the layer that was cut, with their owners and modes, and what it removes. The Dockerfile
may install packages or compile code before it adds them.
"""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from docker import DockerClient
from docker.errors import APIError

from patchline.errors import Unreachable, UsageError
from patchline.image import identity, model
from patchline.image.append import Image
from patchline.image.layer import removed_by
from patchline.lines.docker.daemon import followed
from patchline.lines.docker.images import load_base, push
from patchline.lines.line import Line
from patchline.progress import say

DOCKERFILE = "Dockerfile"
FILES = "files.tar"
"""In the context: what the Dockerfile adds at the image's root."""
REMOVED = "etc/patchline/removed"
"""In `FILES`: the paths that the Dockerfile removes, each ended by NUL; it removes this list as well."""


class Made(NamedTuple):
    """An image that docker built."""

    id: str
    """In the daemon: the digest of its configuration."""
    digest: str
    """Of its manifest in the registry that it was pushed to; empty where it was not pushed."""


def build(
    client: DockerClient, line: Line, image: Image, base: str = "", push_to: tuple[str, str] | None = None
) -> Made:
    """Builds the Dockerfile of a line, with what `image`, cut by `append`, has in its layer and its labels.

    `base` is what the Dockerfile begins with, a name with a digest; without one the daemon takes in the base of
    `image`.
    With `push_to`, a repository and a tag, the image is pushed there.

    Raises:
        UsageError: the line has no Dockerfile, or one that docker does not read.
        Unreachable: the daemon or the registry is not there, or a step of the Dockerfile failed; docker's last
            lines are told.
    """
    path = line.folder / DOCKERFILE
    if not path.is_file():
        raise UsageError(f"the line {line.name} has no Dockerfile: the builder `docker` needs one", where=str(path))
    begin = base or load_base(client, image.base)
    id = ""
    try:
        for one in followed(_steps(client, path, image, begin), f"build {line.name}"):
            if (said := str(one.get("stream", "")).strip()).startswith("Step "):
                say(f"docker: {said.splitlines()[0][:160]}")
            id = (one.get("aux") or {}).get("ID", id)
    except APIError as refused:
        raise UsageError(f"docker refuses the Dockerfile: {refused.explanation}", where=str(path)) from refused
    if not id:
        raise Unreachable(f"docker ended building {line.name}, and did not say which image it made")
    return Made(id, push(client, id, *push_to) if push_to else "")


def _steps(client: DockerClient, path: Path, image: Image, begin: str) -> Iterator[Any]:
    user = (model.config(image.config, image.digest).config or {}).get("User") or "0"
    steps: Iterator[Any] = client.api.build(
        fileobj=io.BytesIO(context(path.read_bytes(), image)),
        custom_context=True,
        buildargs={"BASE": begin, "USER": user},
        labels=labels(image),
        network_mode="host",  # for lines that install packages; a daemon of our own has no other
        rm=True,
        forcerm=True,
        nocache=True,
        decode=True,
        use_config_proxy=False,
    )
    return steps


def labels(image: Image) -> dict[str, str]:
    """The labels of an image that was cut. Docker keeps a base's, so those that are gone are made empty."""
    said = (model.config(image.config, image.digest).config or {}).get("Labels") or {}
    of_base = (model.config(image.base.config, image.base.where).config or {}).get("Labels") or {}
    return {name: "" for name in identity.OF_THE_BASE if name in of_base} | said


def context(dockerfile: bytes, image: Image) -> bytes:
    """The context: the Dockerfile, and `FILES`."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, data in ((DOCKERFILE, dockerfile), (FILES, files(image))):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return file.getvalue()


def files(image: Image) -> bytes:
    """The layer that was cut, without its whiteouts, and with the list of what these remove."""
    made, removed = io.BytesIO(), []
    with (
        tarfile.open(fileobj=io.BytesIO(gzip.decompress(image.layer))) as cut,
        tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for one in cut:
            if gone := removed_by(one.name):
                removed.append(f"/{gone}\0")
            else:
                tar.addfile(one, cut.extractfile(one) if one.isreg() else None)
        data = "".join(removed).encode("utf-8", "surrogateescape")
        info = tarfile.TarInfo(REMOVED)
        info.size = len(data)
        tar.addfile(info, io.BytesIO(data))
    return made.getvalue()
