"""What an image says of itself: labels and annotations, and a file inside."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from patchline.overlay import Overlay

FILE = "etc/patchline/build.json"
"""Where the build file lies in an image, from its root."""

_OCI = "org.opencontainers.image"
_OURS = "patchline"

OF_THE_BASE = (f"{_OCI}.revision", f"{_OCI}.ref.name")
"""What a base says of itself and what would not be true of an image on it; the other fields are ours to set."""


class Patch(NamedTuple):
    """One carried patch."""

    name: str
    id: str
    """Of the commit that it became, which follows from the pin and the patches up to it."""


class Series(NamedTuple):
    """The patches carried on one pin, in their order."""

    pin: str
    """`vllm==0.31.0`."""
    patches: tuple[Patch, ...]
    overlay: str
    """Digest of the overlay that they make."""


class Identity(NamedTuple):
    """What goes into an image, but for the base's digest. No tag: it is given to the image later."""

    line: str
    version: str
    """Dynamo's."""
    series: tuple[Series, ...]
    base_name: str = ""
    """The base without its digest, as the line names it."""
    pins: tuple[str, ...] = ()
    """All pins of the line, also those without a series."""
    created: str = ""
    """As ISO 8601 in UTC; without one, the base's. No clock is asked: the same inputs give the same image."""
    revision: str = ""
    """Commit of the project, where an image is to hang on it."""

    @property
    def overlay(self) -> str:
        """One digest of all overlays: the one there is, or sha256 over each one and a NUL, in the pins' order."""
        if len(self.series) == 1:
            return self.series[0].overlay
        joined = "".join(f"{one.overlay}\0" for one in sorted(self.series))
        return f"sha256:{hashlib.sha256(joined.encode()).hexdigest()}"


def series(made: Overlay, patches: Sequence[tuple[str, str]]) -> Series:
    """Of an overlay, and the name and commit of each of its patches."""
    return Series(made.name, tuple(Patch(*one) for one in patches), made.digest)


def labels(identity: Identity, base: str, created: str) -> dict[str, str]:
    """The image's labels, which are its annotations as well; `base` is the digest of the base's manifest."""
    said = {
        f"{_OCI}.title": identity.line,
        f"{_OCI}.version": identity.version,
        f"{_OCI}.created": created,
        f"{_OCI}.revision": identity.revision,
        f"{_OCI}.base.name": identity.base_name,
        f"{_OCI}.base.digest": base,
        f"{_OURS}.line": identity.line,
        f"{_OURS}.pins": " ".join(_pins(identity)),
        f"{_OURS}.series": _json([_series(one) for one in sorted(identity.series)]),
        f"{_OURS}.overlay": identity.overlay,
        f"{_OURS}.base": base,
    }
    return {name: value for name, value in said.items() if value}


def build_file(identity: Identity, base: str, created: str) -> bytes:
    """The file inside the image, as JSON; it says what the labels say."""
    said = {
        "line": identity.line,
        "version": identity.version,
        "created": created,
        "revision": identity.revision,
        "base": {"name": identity.base_name, "digest": base},
        "pins": _pins(identity),
        "overlay": identity.overlay,
        "series": [_series(one) for one in sorted(identity.series)],
    }
    return msgspec.json.format(msgspec.json.encode(said), indent=1) + b"\n"


def _pins(identity: Identity) -> list[str]:
    return sorted({*identity.pins, *(one.pin for one in identity.series)})


def _series(one: Series) -> dict[str, object]:
    patches = [{"name": patch.name, "id": patch.id} for patch in one.patches]
    return {"pin": one.pin, "overlay": one.overlay, "patches": patches}


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
