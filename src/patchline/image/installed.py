"""Where an image's Python packages lie: found by the `RECORD` files in its layers, never by a constant."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from patchline.errors import SourceMismatch
from patchline.image import record, unpack
from patchline.image.ahead import ahead
from patchline.image.base import Base
from patchline.image.contents import Asked, Contents, Node, unresolved
from patchline.pins.select import normal
from patchline.progress import bytes_of

_SITE = r"(?:.+/)?(?:site|dist)-packages"
_RECORD = re.compile(rf"{_SITE}/[^/]+\.dist-info/RECORD")


class Package(NamedTuple):
    """One top-level package of an image, with the distributions that own files of it."""

    site: str
    """The folder that it is imported from: `opt/venv/lib/python3.12/site-packages`."""
    records: dict[str, bytes]
    """Their RECORD files, by path."""


def contents(base: Base, tops: Collection[str]) -> Contents:
    """Reads the layers of `base` once and keeps what lies below the packages `tops`, their RECORD files, and folders.

    Only where a hard link leads to a file that nobody asked for, they are read once more.

    Raises:
        SourceMismatch: a layer is not what its digest says, or no layer at all.
        Refused: a layer is a foreign one, or packed in an unknown way.
    """
    names = "|".join(re.escape(top) for top in tops)
    asked = Asked(re.compile(rf"{_SITE}/(?:{names})/.*", re.DOTALL), _RECORD)
    found = _read(base, asked)
    for _ in range(3):
        links = unresolved(found)
        if not links:
            return found
        found = _read(base, asked._replace(also={**asked.also, **links}))
    raise SourceMismatch(f"hard links lead to nothing: {', '.join(sorted(unresolved(found))[:5])}", where=base.where)


def _read(base: Base, asked: Asked) -> Contents:
    found = Contents(asked)
    with bytes_of(f"the layers of {base.digest[:19]}", sum(layer.size for layer in base.layers)) as came:
        for layer in base.layers:
            with ahead(_counted(base.source.chunks(layer), came)) as chunks:
                found.lay(unpack.members(layer, chunks, base.where), base.where)
    return found


def _counted(chunks: Iterator[bytes], came: Callable[[int], None]) -> Iterator[bytes]:
    for chunk in chunks:
        came(len(chunk))
        yield chunk


def packages(found: Contents, tops: Collection[str], where: str, sites: Collection[str] = ()) -> dict[str, Package]:
    """The one place of each of the packages `tops`; of several, the one that is among `sites`.

    Raises:
        SourceMismatch: the image has no Python packages, lacks one of these, or has one in several places.
    """
    records = {path: node for path, node in found.nodes.items() if _RECORD.fullmatch(path) and node.kind == "file"}
    if not records:
        raise SourceMismatch("this image has no installed Python package: no RECORD in its layers", where=where)
    return {top: _package(records, top, where, sites) for top in sorted(tops)}


def distributions(found: Contents) -> dict[str, str]:
    """Version by name of every installed distribution; of two of one name, both versions with a blank between."""
    made: dict[str, set[str]] = {}
    for path in found.nodes:
        if _RECORD.fullmatch(path):
            name, _, version = posixpath.basename(posixpath.dirname(path)).removesuffix(".dist-info").partition("-")
            made.setdefault(normal(name), set()).add(version)
    return {name: " ".join(sorted(versions)) for name, versions in sorted(made.items())}


def _package(records: dict[str, Node], top: str, where: str, sites: Collection[str]) -> Package:
    owners: dict[str, dict[str, bytes]] = {}
    for path, node in records.items():
        listed = record.rows(node.data, f"{where}, {path}") if f"{top}/".encode() in node.data else {}
        if any(one.startswith(f"{top}/") for one in listed):
            owners.setdefault(posixpath.dirname(posixpath.dirname(path)), {})[path] = node.data
    chosen = [site for site in owners if site in sites] if len(owners) > 1 else list(owners)
    if len(chosen) == 1:
        return Package(chosen[0], owners[chosen[0]])
    if not owners:
        raise SourceMismatch(f"this image has no package {top}: no RECORD in its layers lists it", where=where)
    raise SourceMismatch(
        f"this image has the package {top} in several places\n" + "\n".join(f"  /{site}" for site in sorted(owners)),
        where=where,
        next="name the one that is meant",
    )
