"""Names of images: `host[:port]/name[:tag][@digest]`, and nothing looser."""

from __future__ import annotations

import re
from typing import NamedTuple

from patchline.errors import UsageError
from patchline.http import is_loopback
from patchline.image.digests import is_digest

# The grammar of the OCI distribution specification (names, tags), and RFC 3986's of hosts as far as it is used.
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_HOST = re.compile(rf"(?P<host>{_LABEL}(?:\.{_LABEL})*|\[[0-9a-fA-F:]+\])(?::(?P<port>[0-9]{{1,5}}))?")
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_NAME = re.compile(rf"{_PART}(?:/{_PART})*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")

_FORM = "an image is named as host[:port]/name[:tag][@sha256:…]"


class Reference(NamedTuple):
    """One image, or one repository of images, in a registry."""

    host: str
    """With its port, where one was given."""
    name: str
    tag: str = ""
    digest: str = ""

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest else ""
        return f"{self.host}/{self.name}{tag}{digest}"

    @property
    def repository(self) -> str:
        """Host and name."""
        return f"{self.host}/{self.name}"


def parse(text: str) -> Reference:
    """What `text` names; no host is assumed where none is given.

    Raises:
        UsageError: it is no such name.
    """
    rest, at, digest = text.partition("@")
    host, slash, path = rest.partition("/")
    name, colon, tag = path.partition(":")
    if at and not is_digest(digest):
        raise _wrong(text, f"{digest!r} is no sha256 digest")
    if not slash or not _is_host(host):
        raise _wrong(text, f"{host!r} is no registry's host")
    if not _NAME.fullmatch(name) or len(rest) > 255:
        raise _wrong(text, f"{name!r} is no name of a repository")
    if colon and not _TAG.fullmatch(tag):
        raise _wrong(text, f"{tag!r} is no tag")
    return Reference(host, name, tag, digest)


def is_tag(text: str) -> bool:
    """Whether a registry would take `text` as a tag."""
    return _TAG.fullmatch(text) is not None


def is_here(host: str) -> bool:
    """Whether `host`, with or without a port, is this machine by its address or by the name `localhost`."""
    found = _HOST.fullmatch(host)
    return found is not None and is_loopback(found["host"])


def _is_host(text: str) -> bool:
    """A host has a dot, a port or brackets, or is `localhost`: `library/name` has none."""
    found = _HOST.fullmatch(text)
    if found is None or (found["port"] and not 0 < int(found["port"]) < 65536):
        return False
    return bool(found["port"]) or "." in text or text.startswith("[") or text == "localhost"


def _wrong(text: str, why: str) -> UsageError:
    return UsageError(f"{text!r} names no image: {why}", next=_FORM)
