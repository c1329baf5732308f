"""What a pin is: one upstream version, with the hashes of its bytes."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

ArchiveKind: TypeAlias = Literal["sdist", "wheel"]


class PinFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file of a release; `size` is in bytes."""

    name: str
    sha256: str
    size: int


class ArchivePin(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A release on a package index: one sdist, or the wheels of one version."""

    kind: ArchiveKind
    distribution: str
    version: str
    files: tuple[PinFile, ...]


class GitPin(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tag of a git repository, with the full id of its commit."""

    kind: Literal["git"]
    version: str
    url: str
    tag: str
    commit: str


Pin: TypeAlias = ArchivePin | GitPin


class Upstream(Struct, frozen=True, kw_only=True):
    """A project that patches are carried on; `carried` is the version that the fork carries today."""

    name: str
    carried: str
    pins: tuple[Pin, ...]


def name_of(upstream: Upstream, pin: Pin) -> str:
    """The name that a pin's work folder and messages use: its distribution, else its upstream."""
    return pin.distribution if isinstance(pin, ArchivePin) else upstream.name
