"""The merged view of an image's layers: they are read once, as a stream, and nothing is unpacked to disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from patchline.audit.view import Held, Patterns, Seen, View
from patchline.audit.watch import Watch
from patchline.errors import SourceMismatch
from patchline.image import model, unpack
from patchline.image.ahead import ahead
from patchline.image.base import Base
from patchline.image.contents import Asked, Contents, Node, unresolved
from patchline.progress import bytes_of


def view(image: Base, wanted: Patterns) -> View:
    """Reads the layers; only where a hard link leads to what nobody asked for, they are read once more.

    Raises:
        SourceMismatch: a layer is not what its digest says, is cut short, or holds paths that leave the image.
        Refused: a layer is a foreign one, or packed in an unknown way.
    """
    asked = Asked(wanted.files, wanted.kept)
    for _ in range(3):
        found, watch = _read(image, asked)
        links = unresolved(found)
        if not links:
            return _view(found, watch)
        asked = asked._replace(also={**asked.also, **links})
    raise SourceMismatch(f"hard links lead to nothing: {', '.join(sorted(links)[:5])}", where=image.where)


def _read(image: Base, asked: Asked) -> tuple[Contents, Watch]:
    found, watch = Contents(asked), Watch(asked, image.where)
    with bytes_of(f"the layers of {image.digest[:19]}", sum(layer.size for layer in image.layers)) as came:
        ids = model.config(image.config, image.where).rootfs.diff_ids
        for layer, diff_id in zip(image.layers, ids, strict=True):
            with ahead(_counted(image.source.chunks(layer), came)) as chunks:
                members = unpack.members(layer, chunks, image.where, diff_id)
                found.lay(watch.layer(members), image.where)
    return found, watch


def _counted(chunks: Iterator[bytes], came: Callable[[int], None]) -> Iterator[bytes]:
    for chunk in chunks:
        came(len(chunk))
        yield chunk


def _view(found: Contents, watch: Watch) -> View:
    files = {
        path: _seen(node, watch, path)
        for path, node in found.nodes.items()
        if node.kind != "folder" and found.asked.wants(path)
    }
    folders = {path for path, node in found.nodes.items() if node.kind == "folder"}

    def read(path: str) -> bytes:
        return files[path].data

    return View(files, folders, watch.links, watch.odd, read)


def _seen(node: Node, watch: Watch, path: str) -> Seen:
    noted, held = watch.noted.get(path), Held(node.mode, node.uid, node.gid)
    if noted is None:
        return Seen(node.kind, node.size, node.digest, 0, b"", node.data, held)
    return Seen(node.kind, node.size, node.digest or noted.digest, noted.mtime, noted.head, node.data, held)
