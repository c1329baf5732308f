"""From what a person types to one pin."""

from __future__ import annotations

import re
from collections.abc import Mapping

from patchline.errors import UsageError
from patchline.nearest import hint
from patchline.pins.model import ArchivePin, Pin, Upstream

_SPEC = re.compile(r"([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)(?:==([^\s=<>~]+))?")


def select(upstreams: Mapping[str, Upstream], spec: str) -> tuple[Upstream, Pin]:
    """The pin that `NAME` or `NAME==VERSION` means; NAME is an upstream or a distribution of one.

    A bare name means the carried version. An upstream's name means the first pin of that
    version: the one that carries patches.

    Raises:
        UsageError: no such name, or no pin of that version; the nearest is named.
    """
    name, version = split(spec)
    upstream, distribution = _named(upstreams, name)
    version = version or upstream.carried
    pins = [pin for pin in upstream.pins if distribution is None or _is_of(pin, distribution)]
    for pin in pins:
        if pin.version == version:
            return upstream, pin
    raise UsageError(
        f"{name} {version} is not pinned; {hint(version, (pin.version for pin in pins))}",
        where="builds/upstreams.toml",
        next=f"nox -s pin -- {name}=={version}",
    )


def split(spec: str) -> tuple[str, str | None]:
    """`NAME==VERSION` or `NAME` as its two parts.

    Raises:
        UsageError: `spec` is neither.
    """
    match = _SPEC.fullmatch(spec)
    if not match:
        raise UsageError(f"'{spec}' is not NAME or NAME==VERSION", next="for example: vllm==0.31.0, or vllm")
    return match[1], match[2]


def owner(upstreams: Mapping[str, Upstream], distribution: str) -> Upstream | None:
    """The upstream that has pins of `distribution`."""
    owners = (up for up in upstreams.values() if any(_is_of(pin, distribution) for pin in up.pins))
    return next(owners, None)


def normal(name: str) -> str:
    """A distribution's name in the spelling that all its spellings share (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _named(upstreams: Mapping[str, Upstream], name: str) -> tuple[Upstream, str | None]:
    if name in upstreams:
        return upstreams[name], None
    if found := owner(upstreams, name):
        return found, name
    pins = (pin for upstream in upstreams.values() for pin in upstream.pins)
    legal = {*upstreams, *(pin.distribution for pin in pins if isinstance(pin, ArchivePin))}
    raise UsageError(
        f"no upstream '{name}'; {hint(name, legal)}",
        where="builds/upstreams.toml",
        next=f"nox -s pin -- {name}==VERSION",
    )


def _is_of(pin: Pin, distribution: str) -> bool:
    return isinstance(pin, ArchivePin) and normal(pin.distribution) == normal(distribution)
