"""The builder `append`: a base's manifest and configuration, its lock and overlays make an image with one layer more.

No layer of the base is read, no daemon is asked, and no clock: the same inputs give the same digest.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from patchline.errors import SourceMismatch
from patchline.image import digests, identity, layer, layout, model, places, record
from patchline.image.base import Base
from patchline.image.identity import Identity
from patchline.image.layer import WHITEOUT, Entry
from patchline.image.lock import File, Folder, Lock, check_base
from patchline.image.model import Descriptor, Document
from patchline.image.places import Placed
from patchline.overlay import Overlay
from patchline.paths import ancestors


class Image(NamedTuple):
    """An image that was cut; the layers of its base are where the base is."""

    manifest: Document
    config: Document
    layer: bytes
    """The one that was added, as registries hold it."""
    base: Base

    @property
    def digest(self) -> str:
        """Of the manifest."""
        return self.manifest.digest

    @property
    def blobs(self) -> list[tuple[Descriptor, bytes]]:
        """The layer and the configuration: all that a registry with the base lacks, but for the manifest."""
        config, layers = model.manifest(self.manifest, self.digest)
        return [(layers[-1], self.layer), (config, self.config.data)]


def cut(base: Base, lock: Lock, overlays: Sequence[Overlay], who: Identity) -> Image:
    """The image of `overlays` on `base`.

    Raises:
        SourceMismatch: the base is not the locked one, or an overlay does not belong on it.
        Refused: two overlays change one file.
    """
    check_base(lock, base)
    _check_identity(overlays, who)
    created = who.created or model.config(base.config, base.where).created or ""
    said = identity.labels(who, base.digest, created)
    file = identity.build_file(who, base.digest, created)
    tar = layer.tar(entries(lock, places.place(lock, overlays), {identity.FILE: file}))
    data = layer.gzip(tar)
    described = Descriptor(f"{model.LAYER}+gzip", digests.of(data), len(data))
    config = _config(base, digests.of(tar), said, created, f"patchline append {who.overlay}")
    return Image(_manifest(base, described, config, said), config, data, base)


def _check_identity(overlays: Sequence[Overlay], who: Identity) -> None:
    wanted = sorted(one.digest for one in overlays)
    found = sorted(one.overlay for one in who.series)
    if wanted != found or not wanted:
        raise SourceMismatch(f"an image's identity has to name its overlays: {found} is not {wanted}")


def write(image: Image, folder: Path, *, whole: bool = True) -> None:
    """Writes an OCI layout of the image; without `whole` it lacks the base's layers, see `layout.write`."""
    layout.write(folder, image.manifest, image.blobs, image.base.source if whole else None)


def entries(lock: Lock, placed: Sequence[Placed], files: Mapping[str, bytes]) -> dict[str, Entry]:
    """What the layer does: the overlay's files, corrected RECORDs, whiteouts of old byte-code, and `files`."""
    made: dict[str, Entry] = {}
    for one in placed:
        made[one.path] = _entry(lock, one)
        made |= dict.fromkeys(one.bytecode, WHITEOUT)
    for path in sorted({one.record for one in placed}):
        made[path] = _like(lock.contents.files[path], _corrected(lock, path, placed))
    for path, data in files.items():
        made[path] = Entry("file", data)
    for path in [path for path in made if any(made.get(above, WHITEOUT).kind == "file" for above in ancestors(path))]:
        del made[path]  # a file took the place of the folder that this was removed from
    for folder in sorted({above for path in made for above in ancestors(path)}):
        made[folder] = _folder(lock, folder)
    return made


def _entry(lock: Lock, one: Placed) -> Entry:
    """An overlay's file takes owner, group and mode of the one that it replaces; a new one those of its RECORD."""
    if one.change.new is None:
        return WHITEOUT
    like = _like(lock.contents.files.get(one.path, lock.contents.files[one.record]), one.change.new.data)
    if one.change.new.mode & 0o100:
        return like._replace(mode=like.mode | (like.mode & 0o444) >> 2)
    return like._replace(mode=like.mode & ~0o111)


def _like(file: File, data: bytes) -> Entry:
    return Entry("file", data, file.mode, file.uid, file.gid)


def _folder(lock: Lock, path: str) -> Entry:
    """A folder as the base has it; a new one as the folder above it.

    It is stated, since what unpacks a layer without it gives the base's folder another owner and mode.
    """
    known = lock.contents.folders
    near = next((one for one in (path, *reversed(ancestors(path))) if one in known), None)
    found = known[near] if near else Folder(0o755, 0, 0)
    return Entry("folder", b"", found.mode, found.uid, found.gid)


def _corrected(lock: Lock, path: str, placed: Sequence[Placed]) -> bytes:
    own = [one for one in placed if one.record == path]
    new = {one.change.path: one.change.new.data for one in own if one.change.new is not None}
    gone = {one.change.path for one in own if one.change.new is None}
    changed = {*new, *gone}
    rows = record.rows(lock.records[path], path)
    gone |= {row for row in rows if row.endswith(".pyc") and places.source_of(row) in changed}
    return record.corrected(lock.records[path], new, gone, path)


def _config(base: Base, diff_id: str, labels: dict[str, str], created: str, by: str) -> Document:
    fields = copy.deepcopy(base.config.fields)
    settings = fields.get("config") or {}
    fields["config"] = {**settings, "Labels": _said(settings.get("Labels"), labels)}
    fields["rootfs"]["diff_ids"].append(diff_id)
    when = {"created": created} if created else {}
    fields |= when
    if fields.get("history") or not base.layers:  # without one, tools would miss the base's layers in it
        fields["history"] = [*(fields.get("history") or []), {**when, "created_by": by}]
    return model.made(fields)


def _manifest(base: Base, added: Descriptor, config: Document, labels: dict[str, str]) -> Document:
    """An OCI manifest, whatever the base's was: Docker's own has no annotations."""
    fields: dict[str, Any] = copy.deepcopy(base.manifest.fields)
    fields.pop("subject", None)
    layers = [{**one, "mediaType": model.as_oci(one["mediaType"])} for one in fields["layers"]]
    own = {"mediaType": added.media_type, "digest": added.digest, "size": added.size}
    described = {"mediaType": model.CONFIG, "digest": config.digest, "size": len(config.data)}
    annotations = _said(fields.get("annotations"), labels)
    fields |= {"mediaType": model.MANIFEST, "config": described, "layers": [*layers, own], "annotations": annotations}
    return model.made(fields)


def _said(before: dict[str, str] | None, labels: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in (before or {}).items() if name not in identity.OF_THE_BASE} | labels
