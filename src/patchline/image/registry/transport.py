"""HTTP connections to a registry and to where it sends us, and what goes over them."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator, Mapping
from functools import cached_property

import httpx2

from patchline import __version__
from patchline.image.registry.patience import Broken

CONNECT = 10.0
"""Seconds for making a connection."""
SILENCE = 120.0
"""Seconds without a byte, either way, before a connection is given up: a registry may think about a large upload."""


class Transport:
    """Sends single requests; whatever breaks on the way is `Broken`. Threads may share it."""

    def __init__(self) -> None:
        self.sent = 0
        """Bytes of bodies that were sent."""
        self.received = 0
        """Bytes of bodies that came."""
        self._count = threading.Lock()

    def close(self) -> None:
        """Closes all connections."""
        for name in ("_plain", "_secure"):
            if name in self.__dict__:
                self.__dict__.pop(name).close()

    @cached_property
    def _plain(self) -> httpx2.Client:
        """For this machine: no proxy, and no certificates, since reading those takes longer than a request."""
        return _connections(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), proxied=False)

    @cached_property
    def _secure(self) -> httpx2.Client:
        return _connections(httpx2.create_ssl_context(), proxied=True)

    def send(self, method: str, url: httpx2.URL, headers: Mapping[str, str], content: bytes) -> httpx2.Response:
        """One request; the answer's body is not read yet. Redirections are answers like others."""
        connections = self._plain if url.scheme == "http" else self._secure
        sends = method not in ("GET", "HEAD") or bool(content)
        try:
            request = connections.build_request(method, url, headers=headers, content=content if sends else None)
            response = connections.send(request, stream=True)
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, UnicodeError) as failed:
            raise Broken(f"no answer: {_line(failed)}") from failed
        with self._count:
            self.sent += len(content)
        return response

    def pieces(self, response: httpx2.Response) -> Iterator[bytes]:
        """The body of an answer; `Broken` where it breaks off."""
        try:
            for piece in response.iter_raw():
                with self._count:
                    self.received += len(piece)
                yield piece
        except (httpx2.HTTPError, httpx2.StreamError, OSError) as failed:
            raise Broken(f"the answer broke off: {_line(failed)}") from failed


def _connections(certificates: ssl.SSLContext, *, proxied: bool) -> httpx2.Client:
    waits = httpx2.Timeout(SILENCE, connect=CONNECT)
    headers = {"User-Agent": f"patchline/{__version__}", "Accept-Encoding": "identity"}
    return httpx2.Client(timeout=waits, verify=certificates, trust_env=proxied, headers=headers)


def _line(failed: Exception) -> str:
    lines = str(failed).splitlines()
    return lines[0] if lines else type(failed).__name__
