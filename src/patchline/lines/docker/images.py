"""Images in a docker daemon: taken in from where they are, without a registry, and pushed."""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, TypeAlias

import msgspec
from docker import DockerClient
from docker.errors import ImageNotFound

from patchline.errors import Unreachable
from patchline.image import model
from patchline.image.append import Image
from patchline.image.base import Base
from patchline.image.model import Descriptor, Document
from patchline.lines.docker.daemon import OURS, followed
from patchline.progress import say

Chunks: TypeAlias = Callable[[Descriptor], Iterator[bytes]]


def load_base(client: DockerClient, base: Base) -> str:
    """The id of a base in the daemon, where it is taken in if it is not there yet (a minute for gigabytes).

    An id is the digest of an image's configuration, and so the same in every daemon.

    Raises:
        Unreachable: the daemon cannot take it.
        SourceMismatch: a layer is not what its digest says.
    """
    return _load(client, base.config, base.layers, base.source.chunks)


def load(client: DockerClient, image: Image) -> str:
    """The id of an image that was cut, in the daemon.

    Raises:
        As `load_base`.
    """
    own, _ = image.blobs[0]

    def chunks(one: Descriptor) -> Iterator[bytes]:
        return iter([image.layer]) if one.digest == own.digest else image.base.source.chunks(one)

    return _load(client, image.config, [*image.base.layers, own], chunks)


def _load(client: DockerClient, config: Document, layers: Sequence[Descriptor], chunks: Chunks) -> str:
    """The daemon reads the older form of `docker save` only; layers that it has may be missing in that."""
    if _has(client, config.digest):
        return config.digest
    there = _known(client, model.config(config, config.digest).rootfs.diff_ids)
    size = sum(one.size for one in layers[there:])
    say(f"docker takes in {config.digest[:19]}: {len(layers) - there} of {len(layers)} layers, {size / 1e6:.1f} MB")
    what = f"take in {config.digest}"
    api: Any = client.api  # some of its methods have no types
    for _ in followed(api.load_image(_archive(config, layers, there, chunks)), what):
        pass
    if not _has(client, config.digest):
        raise Unreachable(f"docker said that it took in {config.digest}, and does not have it")
    return config.digest


def _has(client: DockerClient, id: str) -> bool:
    api: Any = client.api
    try:
        api.inspect_image(id)
    except ImageNotFound:
        return False
    return True


def _known(client: DockerClient, diff_ids: Sequence[str]) -> int:
    """How many of the lowest layers the daemon has as the lowest of some image."""
    api: Any = client.api
    most = 0
    for one in api.images(quiet=True, all=True):
        layers = api.inspect_image(one)["RootFS"].get("Layers") or []
        same = 0
        while same < min(len(layers), len(diff_ids)) and layers[same] == diff_ids[same]:
            same += 1
        most = max(most, same)
    return most


def _archive(config: Document, layers: Sequence[Descriptor], there: int, chunks: Chunks) -> Iterator[bytes]:
    """The archive as it is sent; nothing of it is kept. Docker unpacks layers that are packed."""
    name = f"{_hex(config.digest)}.json"
    listed = [{"Config": name, "RepoTags": None, "Layers": [f"{_hex(one.digest)}/layer.tar" for one in layers]}]
    for path, data in ((name, config.data), ("manifest.json", msgspec.json.encode(listed))):
        yield _head(path, len(data)) + data + _filled(len(data))
    for one in layers[there:]:
        yield _head(f"{_hex(one.digest)}/layer.tar", one.size)
        yield from chunks(one)
        yield _filled(one.size)
    yield b"\0" * 1024


def _hex(digest: str) -> str:
    return digest.partition(":")[2]


def _head(path: str, size: int) -> bytes:
    info = tarfile.TarInfo(path)
    info.size = size
    return info.tobuf(tarfile.PAX_FORMAT)


def _filled(size: int) -> bytes:
    return b"\0" * (-size % 512)


def keep_only(client: DockerClient, ids: Collection[str]) -> None:
    """Removes all other images of a daemon of our own, whose bases have gigabytes; nobody else's are touched."""
    api: Any = client.api
    if OURS not in (client.info().get("Labels") or []):
        return
    for one in api.images(quiet=True):
        if one not in ids:
            api.remove_image(one, force=True)


def push(client: DockerClient, id: str, repository: str, tag: str) -> str:
    """Pushes an image; gives the digest that the registry has it under.

    Raises:
        Unreachable: the registry does not take it. Docker's stream would end well.
    """
    client.api.tag(id, repository, tag, force=True)
    digest = ""
    for one in followed(client.api.push(repository, tag, stream=True, decode=True), f"push {repository}:{tag}"):
        digest = (one.get("aux") or {}).get("Digest", digest)
    if not digest:
        raise Unreachable(f"docker pushed {repository}:{tag}, and did not say which digest it has")
    return digest
