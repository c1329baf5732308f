"""The bill of materials that is attached to an image, held against the image: versions, overlays, files."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from patchline.audit.finding import ATTACHED, Finding
from patchline.audit.labels import Said
from patchline.audit.view import View
from patchline.image.base import Base
from patchline.pins.select import normal

_PYPI = "pkg:pypi/"


class _Property(msgspec.Struct, frozen=True):
    name: str
    value: str = ""


class _Hash(msgspec.Struct, frozen=True):
    content: str


class _Component(msgspec.Struct, frozen=True):
    name: str
    type: str = ""
    version: str = ""
    purl: str = ""
    hashes: tuple[_Hash, ...] = ()
    properties: tuple[_Property, ...] = ()
    components: tuple[_Component, ...] = ()

    def property(self, name: str) -> str:
        return next((one.value for one in self.properties if one.name == f"patchline:{name}"), "")


class _About(msgspec.Struct, frozen=True):
    component: _Component


class _Bill(msgspec.Struct, frozen=True):
    metadata: _About
    components: tuple[_Component, ...]


def findings(image: Base, said: Said, view: View, data: bytes, path: str) -> Iterator[Finding]:
    """Everything in the bill at `path` that is not so."""
    try:
        found = msgspec.json.decode(data, type=_Bill)
    except (msgspec.MsgspecError, RecursionError) as bad:
        yield Finding(ATTACHED, path, f"it is not understood ({bad})")
        return
    about = found.metadata.component
    if image.digest not in [f"sha256:{one.content}" for one in about.hashes]:
        yield Finding(ATTACHED, path, f"it is of another image than {image.digest}")
    if (told := about.property("overlay")) != said.overlay:
        yield Finding(
            ATTACHED, path, f"its overlay is {told or 'not said'}, and the label says {said.overlay or 'none'}"
        )
    bases = [one.version for one in found.components if one.type == "container"]
    if bases != [said.base]:
        yield Finding(ATTACHED, path, f"its base is {', '.join(bases) or 'not said'}, and the label says {said.base}")
    yield from _distributions(found, said, view, path)
    for layer in found.components:
        yield from (_file(one, view, path) for one in layer.components if _is_other(one, view))


def _distributions(found: _Bill, said: Said, view: View, path: str) -> Iterator[Finding]:
    """Its Python distributions: in the image, in that version, and with the overlays of the labels."""
    there, overlays = _installed(view), {one.pin: one.overlay for one in said.series}
    for one in found.components:
        series = one.property("series")
        if series and one.property("overlay") != overlays.get(series):
            what = f"its overlay of {series} is {one.property('overlay')}, and the labels say {overlays.get(series)}"
            yield Finding(ATTACHED, path, what)
        if one.purl.startswith(_PYPI):
            versions = there.get(normal(one.name), set())
            if one.version not in versions:
                has = ", ".join(sorted(versions)) or "none"
                yield Finding(ATTACHED, path, f"it lists {one.name} {one.version}, and the image has {has}")


def _installed(view: View) -> dict[str, set[str]]:
    """The public versions of the distributions in the image, by name: what a build adds after `+` is no other one."""
    found: dict[str, set[str]] = {}
    for file in view.files:
        folder, _, name = file.rpartition("/")
        if name == "RECORD" and folder.endswith(".dist-info"):
            distribution, _, version = folder.rpartition("/")[2].removesuffix(".dist-info").partition("-")
            found.setdefault(normal(distribution), set()).add(version.partition("+")[0])
    return found


def _is_other(one: _Component, view: View) -> bool:
    seen = view.files.get(one.name.removeprefix("/"))
    return bool(seen and seen.digest and one.hashes and seen.digest != f"sha256:{one.hashes[0].content}")


def _file(one: _Component, view: View, path: str) -> Finding:
    found = view.files[one.name.removeprefix("/")].digest
    return Finding(ATTACHED, path, f"it lists {one.name} of sha256:{one.hashes[0].content}, and the image has {found}")
