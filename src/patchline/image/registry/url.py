"""Urls as far as registries use them: what is checked is the very thing that is connected to."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote, urljoin, urlsplit

_PORTS = {"http": 80, "https": 443}
_KEPT = "!#$%&'()*+,/:;=?@[]~"
"""Of a path and a query; everything else that is not plain ASCII is percent-encoded (RFC 3986, 2)."""


class Url(NamedTuple):
    """One place at one server; a name and a password in a url are left out, and so is a fragment."""

    scheme: str
    host: str
    """In lower case; an IPv6 address without brackets."""
    port: int
    target: str
    """Path and query, as a request names them."""

    def __str__(self) -> str:
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{self.authority}{port}{self.target}"

    @property
    def authority(self) -> str:
        """The host, an IPv6 address in brackets."""
        return f"[{self.host}]" if ":" in self.host else self.host

    @property
    def origin(self) -> tuple[str, str, int]:
        """Who is asked."""
        return self[:3]

    @property
    def without_query(self) -> Url:
        """For messages: a query may hold a signature."""
        return self._replace(target=self.target.partition("?")[0])


def parse(text: str) -> Url:
    """The url in `text`.

    Raises:
        ValueError: it is none, or neither of HTTP nor of HTTPS.
    """
    parts = urlsplit(text)
    host, port = parts.hostname or "", parts.port
    if parts.scheme not in _PORTS or not host or not host.isascii() or not host.isprintable() or " " in host:
        raise ValueError(f"no url of HTTP: {text!r}")
    query = f"?{parts.query}" if parts.query else ""
    return Url(
        parts.scheme, host, _PORTS[parts.scheme] if port is None else port, quote(f"{parts.path or '/'}{query}", _KEPT)
    )


def join(base: str, location: str) -> Url:
    """Where `location` leads from `base` (RFC 3986, 5.2).

    Raises:
        ValueError: to no url of HTTP or HTTPS.
    """
    return parse(urljoin(base, location))
