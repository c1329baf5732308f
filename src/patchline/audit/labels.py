"""What an image says of itself: its labels, its annotations and the file inside, held against each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from patchline.audit.finding import Finding
from patchline.errors import SourceMismatch
from patchline.image import identity
from patchline.image.base import Base
from patchline.image.identity import Identity, Patch, Series

OURS = "patchline."
_OCI = "org.opencontainers.image."


class _Patch(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    id: str


class _Series(msgspec.Struct, forbid_unknown_fields=True):
    pin: str
    overlay: str
    patches: list[_Patch]


class Said(NamedTuple):
    """What the labels say, as far as it is understood."""

    labels: dict[str, str]
    """All of ours, and the common ones that we set."""
    line: str
    base: str
    overlay: str
    series: tuple[Series, ...]
    findings: tuple[Finding, ...]

    @property
    def silent(self) -> bool:
        """Whether the image says nothing in our name."""
        return not any(name.startswith(OURS) for name in self.labels)


_KNOWN = {f"{OURS}{name}" for name in ("line", "pins", "series", "overlay", "base")}


def read(image: Base) -> Said:
    """The labels of an image; what they say in a form that is not known here is a finding.

    Raises:
        SourceMismatch: they, or the manifest's annotations, are no object.
    """
    settings = image.config.fields.get("config") or {}
    every = {name: str(value) for name, value in _texts(settings, "Labels", image).items()}
    labels = {name: value for name, value in every.items() if name.startswith((OURS, _OCI))}
    findings = list(_annotations(labels, _texts(image.manifest.fields, "annotations", image)))
    own = {name for name in labels if name.startswith(OURS)}
    if own:
        findings += [_schema(name, "it is not known here") for name in sorted(own - _KNOWN)]
        findings += [_schema(name, "it is not there") for name in sorted(_KNOWN - own)]
    series, bad = _series(labels.get(f"{OURS}series", ""))
    said = Said(
        labels,
        labels.get(f"{OURS}line", ""),
        labels.get(f"{OURS}base", ""),
        labels.get(f"{OURS}overlay", ""),
        series,
        (),
    )
    return said._replace(findings=(*findings, *bad, *_together(said)))


def _texts(fields: Mapping[str, Any], name: str, image: Base) -> dict[str, Any]:
    found = fields.get(name) or {}
    if not isinstance(found, dict):
        raise SourceMismatch(f"its {name} are no object: {str(found)[:80]!r}", where=image.where)
    return found


def _schema(name: str, what: str) -> Finding:
    return Finding("schema", name, f"{what}: this image was cut by another version of patchline; the rest was compared")


def _series(text: str) -> tuple[tuple[Series, ...], list[Finding]]:
    if not text:
        return (), []
    try:
        found = msgspec.json.decode(text, type=list[_Series])
    except (msgspec.MsgspecError, RecursionError) as bad:
        return (), [_schema(f"{OURS}series", f"it is not understood ({bad})")]
    made = (Series(one.pin, tuple(Patch(each.name, each.id) for each in one.patches), one.overlay) for one in found)
    return tuple(made), []


def _annotations(labels: Mapping[str, str], annotations: Mapping[str, Any]) -> Iterator[Finding]:
    """Our labels are annotations of the manifest as well."""
    if not any(name.startswith(OURS) for name in labels):
        return
    for name, value in labels.items():
        if name in annotations and annotations[name] != value:
            what = f"the label says {value}, the manifest's annotation {annotations[name]}"
            yield Finding("label", name, what)


def _together(said: Said) -> Iterator[Finding]:
    """What labels say twice has to be the same."""
    pairs = {f"{_OCI}title": "line", f"{_OCI}base.digest": "base"}
    for name, own in pairs.items():
        mine = said.labels.get(f"{OURS}{own}", "")
        if mine and said.labels.get(name, mine) != mine:
            yield Finding("label", name, f"it says {said.labels[name]}, and {OURS}{own} says {mine}")
    if said.series and said.overlay != (found := _identity(said).overlay):
        what = f"it says {said.overlay}, and {OURS}series makes it {found}"
        yield Finding("label", f"{OURS}overlay", what)
    pins = said.labels.get(f"{OURS}pins", "").split()
    for one in said.series:
        if pins and one.pin not in pins:
            yield Finding("label", f"{OURS}pins", f"{OURS}series speaks of {one.pin}, which it does not name")


def _identity(said: Said) -> Identity:
    value = said.labels.get
    return Identity(
        line=said.line,
        version=value(f"{_OCI}version", ""),
        series=said.series,
        base_name=value(f"{_OCI}base.name", ""),
        pins=tuple(value(f"{OURS}pins", "").split()),
        revision=value(f"{_OCI}revision", ""),
    )


def inside(said: Said, data: bytes | None) -> Iterator[Finding]:
    """Holds the file inside the image, `identity.FILE`, against the labels; None where it is not there."""
    if data is None:
        if not said.silent:
            yield Finding("label", identity.FILE, "the image has labels of patchline and no such file")
        return
    if said.silent:
        yield Finding("label", identity.FILE, "it is there, and the image has no label of patchline")
        return
    try:
        found = msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError) as bad:
        yield _schema(identity.FILE, f"it is not understood ({bad})")
        return
    wanted = msgspec.json.decode(
        identity.build_file(_identity(said), said.base, said.labels.get(f"{_OCI}created", "")), type=dict[str, Any]
    )
    for name in sorted({*found, *wanted}):
        if name not in wanted or name not in found:
            there = "it has" if name in found else "it lacks"
            yield _schema(identity.FILE, f"{there} the field {name}")
        elif found[name] != wanted[name]:
            shown = msgspec.json.encode(found[name]).decode()
            yield Finding("label", identity.FILE, f"its field {name} is not what the labels say: {shown[:300]}")
