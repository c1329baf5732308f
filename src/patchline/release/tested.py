"""Whether what a registry holds, and what is carried today, is still what a nightly's record says."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from patchline.errors import SourceMismatch
from patchline.image import model
from patchline.image.model import Document
from patchline.image.registry import download, referrers
from patchline.image.registry.repository import Repository
from patchline.lines.carries import Carries
from patchline.release import held
from patchline.release.needs import Need
from patchline.release.record import Record


class _Said(msgspec.Struct):
    """One series, as an image's label has it."""

    pin: str
    overlay: str


def manifest(repository: Repository, record: Record) -> Document:
    """The image's manifest.

    Raises:
        SourceMismatch: it is not there, or the nightly's tag means another image.
    """
    now, found = repository.digest_of(record.tag), repository.manifest(record.image)
    if found is None or now != record.image:
        raise SourceMismatch(
            f"{record.tag} is not what its record says\n  record:   {record.image}"
            f"\n  registry: {now or 'no such tag'}{'' if found else ', and the image is not there'}",
            where=repository.where,
            next=f"nox -s publish -- {record.line} --to {repository.where}, if it was never finished",
        )
    return found.document


def image(repository: Repository, record: Record, found: Document) -> Need:
    """That manifest, configuration, labels, layers and what is attached are those of the record."""
    next = f"nox -s publish -- {record.line} --to {repository.where}"
    return Need("image", f"{repository.where}@{record.image}", "; ".join(_faults(repository, record, found)), next)


def _faults(repository: Repository, record: Record, found: Document) -> Iterator[str]:
    described, layers = model.manifest(found, repository.where)
    if described.digest != record.config or layers[-1].digest != record.layer:
        yield "its configuration or its layer is not that of its record"
        return
    config = model.document(b"".join(download.blob(repository, described)), repository.where)
    labels = (model.config(config, repository.where).config or {}).get("Labels") or {}
    said = {"patchline.overlay": record.overlay, "patchline.base": record.base.digest, "patchline.line": record.line}
    yield from (f"its label {name} is {labels.get(name)}" for name, value in said.items() if labels.get(name) != value)
    if _series(labels.get("patchline.series", "")) != {one.pin: one.overlay for one in record.series}:
        yield "its label patchline.series is not that of its record"
    if lacking := held.missing(repository, [described, *layers]):
        yield f"the registry lacks {lacking[0].digest}"
    there = {one.digest for one in referrers.listed(repository, record.image)}
    yield from (f"{kind} is not attached" for kind, digest in record.referrers.items() if digest not in there)


def _series(label: str) -> dict[str, str]:
    try:
        return {one.pin: one.overlay for one in msgspec.json.decode(label, type=list[_Said])}
    except msgspec.MsgspecError:
        return {}


def overlay(carries: Carries, record: Record) -> Need:
    """That the series carried today make the overlays that the image has: else other patches would be released."""
    today = {one.name: made.digest for one, made in zip(carries.carried, carries.overlays, strict=True)}
    there = {one.pin: one.overlay for one in record.series}
    other = sorted(pin for pin in {*today, *there} if today.get(pin) != there.get(pin))
    missing = "; ".join(f"{pin}: the image has {there.get(pin)}, and today it is {today.get(pin)}" for pin in other)
    return Need(
        "overlay", record.overlay, missing, f"nox -s publish -- {record.line}, for a nightly of today's patches"
    )
