"""Images in a tar file: what `docker save` writes, and OCI layouts packed into one.

Where the archive holds a layout, its manifests are the image's own. The older form has none: there a manifest is
made, in one fixed form, of the configuration and of the layers as they lie there. Its digest is not the one that
a registry knows the image by.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import msgspec

from patchline.errors import SourceMismatch, UsageError
from patchline.image import digests, model
from patchline.image.layout import choose
from patchline.image.model import Descriptor, Document


class _Saved(msgspec.Struct, rename="pascal"):
    config: str
    layers: list[str]


class Archive:
    """An archive that is read; its members are found once, and then read where they lie."""

    def __init__(self, path: Path) -> None:
        """Opens it.

        Raises:
            UsageError: there is no such archive.
        """
        self.path = path
        self.where = f"docker-archive:{path}"
        try:
            with tarfile.open(path, "r:") as tar:
                self._members = {one.name.removeprefix("./"): one for one in tar}
        except (OSError, tarfile.TarError) as bad:
            raise UsageError(f"this is no archive of an image: {bad}", where=str(path)) from bad
        self._blobs: dict[str, str] = {}
        self._made: dict[str, bytes] = {}
        self._roots = self._layout() if "index.json" in self._members else self._saved()

    def root(self, digest: str = "") -> Descriptor:
        """See `Source`."""
        return choose(self._roots, digest, self.where)

    def chunks(self, descriptor: Descriptor) -> Iterator[bytes]:
        """See `Source`."""
        name = self._blobs.get(descriptor.digest, f"blobs/{descriptor.digest.replace(':', '/', 1)}")
        made = self._made.get(descriptor.digest)
        found = iter([made]) if made is not None else self._read(name)
        where = f"{self.path}, {name}"
        yield from digests.checked(found, descriptor.digest, descriptor.size, where)

    def _layout(self) -> list[Descriptor]:
        return model.index(model.document(self._whole("index.json"), self.where), self.where)

    def _saved(self) -> list[Descriptor]:
        try:
            saved = msgspec.json.decode(self._whole("manifest.json"), type=list[_Saved])
        except msgspec.MsgspecError as bad:
            raise SourceMismatch(f"its manifest.json is not docker's: {bad}", where=str(self.path)) from bad
        return [self._manifest_of(one) for one in saved]

    def _manifest_of(self, saved: _Saved) -> Descriptor:
        """Makes the manifest that the older form lacks."""
        data = self._whole(saved.config)
        config = Descriptor(model.CONFIG, digests.of(data), len(data))
        self._blobs[config.digest] = saved.config
        ids = model.config(Document(data, {}), f"{self.path}, {saved.config}").rootfs.diff_ids
        if len(ids) != len(saved.layers):
            raise SourceMismatch(
                f"its configuration has {len(ids)} layers, the archive {len(saved.layers)}", where=str(self.path)
            )
        layers = []
        for digest, name in zip(ids, saved.layers, strict=True):
            self._blobs[digest] = name
            layers.append(Descriptor(model.LAYER, digest, self._member(name).size))
        fields = {"schemaVersion": 2, "mediaType": model.MANIFEST, "config": config, "layers": layers}
        made = model.made(msgspec.to_builtins(fields))
        self._made[made.digest] = made.data
        return Descriptor(model.MANIFEST, made.digest, len(made.data))

    def _whole(self, name: str) -> bytes:
        if self._member(name).size > model.MOST:
            raise SourceMismatch(f"{name} is too long for a document", where=str(self.path))
        return b"".join(self._read(name))

    def _read(self, name: str) -> Iterator[bytes]:
        member = self._member(name)
        with self.path.open("rb") as file:
            file.seek(member.offset_data)
            yield from _pieces(file, member.size)

    def _member(self, name: str) -> tarfile.TarInfo:
        """The regular file of that name; `docker save` writes a layer that is there twice as a symbolic link."""
        found = self._members.get(name)
        if found is not None and found.issym():
            above = name.rsplit("/", 1)[0].split("/")
            parts = found.linkname.split("/")
            while parts[0] == ".." and above:
                above, parts = above[:-1], parts[1:]
            found = self._members.get("/".join((*above, *parts)))
        if found is None or not found.isreg():
            raise SourceMismatch(f"the archive has no {name}", where=str(self.path))
        return found


def _pieces(file: IO[bytes], size: int) -> Iterator[bytes]:
    while size > 0 and (piece := file.read(min(size, digests.CHUNK))):
        size -= len(piece)
        yield piece
