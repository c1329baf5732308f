"""Connections that are kept for the next request, and how one is made: with TLS, through a proxy, or neither.

The standard library's: a cut and its push take less time than it takes to import a client that can do more.
"""

from __future__ import annotations

import base64
import select
import ssl
import threading
from collections.abc import Iterator
from functools import cached_property
from http.client import HTTPConnection, HTTPSConnection
from urllib.parse import unquote, urlsplit

from patchline.errors import UsageError
from patchline.image.registry.url import Url
from patchline.urls import shown

CONNECT = 10.0
"""Seconds for making a connection."""
SILENCE = 120.0
"""Seconds without a byte, either way, before a connection is given up: a registry may think about a large upload."""

_Origin = tuple[str, str, int]


class Connections:
    """The idle connections to each server; threads may share it, and each takes one for itself."""

    def __init__(self) -> None:
        self._idle: dict[_Origin, list[HTTPConnection]] = {}
        self._lock = threading.Lock()

    def take(self, url: Url) -> HTTPConnection:
        """One that was kept and still stands, or a new one; `OSError` where none can be had."""
        for kept in self._kept(url.origin):
            if _stands(kept):
                return kept
            kept.close()
        return self._new(url)

    def keep(self, url: Url, connection: HTTPConnection) -> None:
        """For the next request to the same server."""
        with self._lock:
            self._idle.setdefault(url.origin, []).append(connection)

    def close(self) -> None:
        """Closes all that are idle."""
        with self._lock:
            idle, self._idle = self._idle, {}
        for connection in (one for kept in idle.values() for one in kept):
            connection.close()

    def _kept(self, origin: _Origin) -> Iterator[HTTPConnection]:
        while True:
            with self._lock:
                kept = self._idle.get(origin)
                connection = kept.pop() if kept else None
            if connection is None:
                return
            yield connection

    def _new(self, url: Url) -> HTTPConnection:
        if url.scheme == "http":  # this machine: no proxy, and no certificates, since reading those takes longer
            made = HTTPConnection(url.host, url.port, timeout=CONNECT)
        else:
            made = _secure(url, self._certificates)
        made.connect()
        made.sock.settimeout(SILENCE)
        return made

    @cached_property
    def _certificates(self) -> ssl.SSLContext:
        """The system's, or those that SSL_CERT_FILE and SSL_CERT_DIR name."""
        return ssl.create_default_context()


def _stands(connection: HTTPConnection) -> bool:
    """Whether the other side left it open; who has something to say while nothing was asked has closed it."""
    if connection.sock is None:
        return False
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return not poll.poll(0)


def _secure(url: Url, certificates: ssl.SSLContext) -> HTTPSConnection:
    proxy = _proxy(url)
    if not proxy:
        return HTTPSConnection(url.host, url.port, timeout=CONNECT, context=certificates)
    parts = urlsplit(proxy)
    made = HTTPSConnection(parts.hostname or "", parts.port or 80, timeout=CONNECT, context=certificates)
    who = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    basic = f"Basic {base64.b64encode(who.encode()).decode()}"
    made.set_tunnel(url.host, url.port, {"Proxy-Authorization": basic} if parts.username else {})
    return made


def _proxy(url: Url) -> str:
    """The proxy that the environment names for HTTPS, unless it excepts this host (`NO_PROXY`).

    Raises:
        UsageError: it is one that is itself asked over TLS or SOCKS.
    """
    from urllib.request import getproxies, proxy_bypass

    named = getproxies()
    proxy = named.get("https") or named.get("all") or ""
    if not proxy or proxy_bypass(f"{url.authority}:{url.port}"):
        return ""
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    if not proxy.startswith("http://"):
        raise UsageError(f"this proxy is not asked over plain HTTP: {shown(proxy)}", next="set HTTPS_PROXY=http://…")
    return proxy
