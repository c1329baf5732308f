"""OCI image layouts: a folder with `oci-layout`, `index.json` and `blobs/`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from patchline.errors import Refused, SourceMismatch, UsageError
from patchline.files import folder_replaced
from patchline.image import digests, model
from patchline.image.model import Descriptor, Document
from patchline.image.source import Source


class Layout:
    """A layout that is read."""

    def __init__(self, folder: Path) -> None:
        """Opens it.

        Raises:
            UsageError: there is no layout of version 1.
        """
        self.folder = folder
        self.where = f"oci:{folder}"
        try:
            version = msgspec.json.decode((folder / "oci-layout").read_bytes(), type=dict[str, str])
            self._index = model.document((folder / "index.json").read_bytes(), str(folder / "index.json"))
        except (OSError, msgspec.MsgspecError) as bad:
            raise UsageError(f"there is no OCI image layout here: {bad}", where=str(folder)) from bad
        if not version.get("imageLayoutVersion", "").startswith("1."):
            raise UsageError(f"this layout is of another version: {version}", where=str(folder))

    def root(self, digest: str = "") -> Descriptor:
        """See `Source`."""
        return choose(model.index(self._index, self.where), digest, self.where)

    def chunks(self, descriptor: Descriptor) -> Iterator[bytes]:
        """See `Source`."""
        path = blob_path(self.folder, descriptor.digest)
        if not path.is_file():
            raise SourceMismatch(f"the layout has no {descriptor.digest}", where=str(path))
        with path.open("rb") as file:
            yield from digests.checked(iter(lambda: file.read(digests.CHUNK), b""), *_of(descriptor), str(path))


def choose(found: list[Descriptor], digest: str, where: str) -> Descriptor:
    """The one with that digest, or the only one.

    Raises:
        SourceMismatch: none has that digest.
        UsageError: there are several, or none.
    """
    listed = "".join(f"\n  {one.digest}" for one in found) or "\n  nothing"
    if digest:
        for one in found:
            if one.digest == digest:
                return one
        raise SourceMismatch(f"the image is not there\n  wanted: {digest}\nthere are{listed}", where=where)
    if len({one.digest for one in found}) != 1:
        raise UsageError(f"there is not one image, but{listed}", where=where, next="name one by its digest")
    return found[0]


def blob_path(folder: Path, digest: str) -> Path:
    """Where a layout keeps the content of that digest."""
    return folder / "blobs" / digest.replace(":", "/", 1)


def write(folder: Path, manifest: Document, blobs: Iterable[tuple[Descriptor, bytes]], base: Source | None) -> None:
    """Writes a layout of one image, which takes the place of what was at `folder` when it is whole.

    `blobs` are its configuration and its own layers. Its other layers are copied from `base`, checked; without a
    `base` they are left out, which the specification allows, and only a registry that has them can take the image.

    Raises:
        Refused: something else lies there.
        SourceMismatch: a layer of the base is not what its digest says.
    """
    if folder.exists() and not (folder / "oci-layout").is_file() and any(folder.iterdir()):
        raise Refused(f"{folder} is no OCI image layout; it was left as it is", next="give another folder")
    _, layers = model.manifest(manifest, str(folder))
    own = {one.digest: (one, data) for one, data in blobs}
    root = Descriptor(model.MANIFEST, manifest.digest, len(manifest.data))
    with folder_replaced(folder) as part:
        (part / "blobs" / "sha256").mkdir(parents=True)
        for one, data in (*own.values(), (root, manifest.data)):
            blob_path(part, one.digest).write_bytes(b"".join(digests.checked([data], *_of(one), str(folder))))
        for one in layers if base else []:
            if base and one.digest not in own and not one.foreign:
                with blob_path(part, one.digest).open("wb") as file:
                    file.writelines(base.chunks(one))
        finish(part, root)


def finish(folder: Path, root: Descriptor) -> None:
    """Writes the index of a layout whose blobs are there, of one manifest, and the mark that makes it a layout."""
    index = {"schemaVersion": 2, "mediaType": model.INDEX, "manifests": [msgspec.to_builtins(root)]}
    (folder / "index.json").write_bytes(model.made(index).data)
    (folder / "oci-layout").write_bytes(b'{"imageLayoutVersion":"1.0.0"}')


def _of(descriptor: Descriptor) -> tuple[str, int]:
    return descriptor.digest, descriptor.size
