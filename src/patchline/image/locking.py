"""Makes base locks: reads a base's layers once, and shows that what overlays replace is the pin's."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterable, Sequence

from patchline.errors import Refused
from patchline.image import digests, installed, lock, model, places
from patchline.image.base import Base
from patchline.image.contents import Contents, Node, is_safe
from patchline.image.installed import Package
from patchline.image.lock import File, Folder, Lock
from patchline.overlay import Overlay
from patchline.paths import ancestors
from patchline.seal import sealed

ALSO = ("etc",)
"""Folders outside the packages that a layer of ours writes to."""


def make(base: Base, overlays: Sequence[Overlay], sites: Collection[str] = ()) -> Lock:
    """Reads the base's layers once; the lock holds for any overlay of the same packages.

    Raises:
        SourceMismatch: a layer is not what its digest says; the base lacks a package, has it in several places of
            which `sites` names none, or a file that an overlay replaces is not the pin's.
        Refused: byte-code of the base lies where it cannot be found, or a layer cannot be read.
    """
    _refuse_prefix(base)
    tops = tops_of(overlays)
    contents = installed.contents(base, tops)
    found = installed.packages(contents, tops, base.where, sites)
    made = _lock(base, contents, found)
    places.place(made, overlays)
    return made


def tops_of(overlays: Iterable[Overlay]) -> list[str]:
    """The packages that overlays change."""
    return sorted({change.path.split("/", 1)[0] for one in overlays for change in one.changes})


def _refuse_prefix(base: Base) -> None:
    settings = (model.config(base.config, base.where).config or {}).get("Env") or []
    if any(one.startswith("PYTHONPYCACHEPREFIX=") for one in settings):
        raise Refused(
            "the base sets PYTHONPYCACHEPREFIX: byte-code of replaced modules may lie outside the packages",
            where=base.where,
        )


def _lock(base: Base, contents: Contents, found: dict[str, Package]) -> Lock:
    roots = tuple(f"{package.site}/{top}/" for top, package in found.items())
    records = {path: data for package in found.values() for path, data in package.records.items()}
    inside = {path: node for path, node in contents.nodes.items() if path.startswith(roots)}
    regular = {path: node for path, node in inside.items() if node.kind == "file"}
    wanted = {*ALSO, *(root.rstrip("/") for root in roots), *(posixpath.dirname(path) for path in records)}
    wanted |= {path for path, node in inside.items() if node.kind == "folder"}
    wanted |= {above for path in wanted for above in ancestors(path)}
    for path in (*regular, *records, *wanted):
        if not is_safe(path):
            raise Refused(f"the base has a file of a name that cannot be written here: {path!r}", where=base.where)
    files = {path: node for path, node in regular.items() if not _is_pyc(path)}
    files |= {path: contents.nodes[path] for path in records}
    made = lock.Contents(
        schema=lock.SCHEMA,
        base=base.digest,
        config=base.config.digest,
        platform=base.platform,
        sites={top: package.site for top, package in sorted(found.items())},
        records={path: digests.of(data) for path, data in sorted(records.items())},
        files={path: _file(node) for path, node in sorted(files.items())},
        odd=sorted(path for path, node in inside.items() if node.kind not in ("file", "folder")),
        bytecode=sorted(path for path in regular if _is_pyc(path)),
        folders={path: _folder(contents, path) for path in sorted(wanted)},
        distributions=installed.distributions(contents),
    )
    return Lock(sealed(made), dict(sorted(records.items())))


def _file(node: Node) -> File:
    return File(node.digest, node.size, node.mode, node.uid, node.gid)


def _folder(contents: Contents, path: str) -> Folder:
    node = contents.nodes.get(path, Node("folder"))
    return Folder(node.mode, node.uid, node.gid)


def _is_pyc(path: str) -> bool:
    return path.endswith(".pyc")
