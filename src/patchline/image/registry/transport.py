"""Single requests to a registry and to where it sends us, and what goes over the connections."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection, HTTPException, HTTPResponse

from patchline import __version__
from patchline.image.registry.connections import Connections
from patchline.image.registry.patience import Broken
from patchline.image.registry.url import Url

_OWN = {"User-Agent": f"patchline/{__version__}", "Accept": "*/*", "Accept-Encoding": "identity"}
_PIECE = 2**18  # bytes that are read at a time, at most
_REST = 2**16
"""Bytes of a body that nobody wants and that are read all the same, so that its connection can be kept."""


class Headers(Mapping[str, str]):
    """Those of an answer, by their names in any case; what came several times is joined by commas (RFC 9110, 5.3)."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        self._values: dict[str, str] = {}
        for name, value in pairs:
            before = self._values.get(name.lower())
            self._values[name.lower()] = value if before is None else f"{before}, {value}"

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


class Response:
    """An answer whose body is not read yet."""

    def __init__(self, url: Url, connection: HTTPConnection, answer: HTTPResponse, kept: Connections) -> None:
        self.url, self.status, self.reason = url, answer.status, answer.reason
        self.headers = Headers(answer.getheaders())
        self._connection, self._answer, self._connections = connection, answer, kept
        self._open = True

    def read(self) -> bytes:
        """Some of the body, as it comes; nothing at its end. `OSError` or `HTTPException` where it breaks off."""
        piece = self._answer.read1(_PIECE)
        if not piece and self._answer.length:
            raise HTTPException(f"{self._answer.length} bytes did not come")
        return piece

    def close(self) -> None:
        """Keeps the connection where the body was read, or is soon; else closes it."""
        if not self._open:
            return
        self._open = False
        whole = not self._answer.will_close and self._is_read()
        self._answer.close()
        if whole:
            self._connections.keep(self.url, self._connection)
        else:
            self._connection.close()

    def _is_read(self) -> bool:
        if (self._answer.length or 0) > _REST:
            return False
        rest = 0
        try:
            while rest <= _REST and (piece := self.read()):
                rest += len(piece)
        except (HTTPException, OSError):
            return False  # it broke where nobody listens any more
        return rest <= _REST


class Transport:
    """Sends single requests; whatever breaks on the way is `Broken`. Threads may share it."""

    def __init__(self) -> None:
        self.sent = 0
        """Bytes of bodies that were sent."""
        self.received = 0
        """Bytes of bodies that came."""
        self._count = threading.Lock()
        self._connections = Connections()

    def close(self) -> None:
        """Closes all connections."""
        self._connections.close()

    def send(self, method: str, url: Url, headers: Mapping[str, str], content: bytes) -> Response:
        """One request; the answer's body is not read yet. Redirections are answers like others."""
        body = content if content or method not in ("GET", "HEAD") else None
        try:
            connection = self._connections.take(url)
            answer = _exchange(connection, method, url, {**_OWN, **headers}, body)
        except (HTTPException, OSError, UnicodeError) as failed:
            raise Broken(f"no answer: {_line(failed)}") from failed
        with self._count:
            self.sent += len(content)
        return Response(url, connection, answer, self._connections)

    def pieces(self, response: Response) -> Iterator[bytes]:
        """The body of an answer; `Broken` where it breaks off."""
        try:
            while piece := response.read():
                with self._count:
                    self.received += len(piece)
                yield piece
        except (HTTPException, OSError) as failed:
            raise Broken(f"the answer broke off: {_line(failed)}") from failed


def _exchange(
    connection: HTTPConnection, method: str, url: Url, headers: Mapping[str, str], body: bytes | None
) -> HTTPResponse:
    try:
        try:
            connection.request(method, url.target, body, headers)
        except (BrokenPipeError, ConnectionResetError):
            return connection.getresponse()  # who wants no more of a body says why, and then closes
        return connection.getresponse()
    except BaseException:
        connection.close()
        raise


def _line(failed: Exception) -> str:
    lines = str(failed).splitlines()
    return lines[0] if lines else type(failed).__name__
