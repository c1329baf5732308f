"""One registry over HTTP: who may be asked what, with which credentials, and what is tried again.

TLS, but for this machine's own addresses. A redirection to another host goes there without our credentials.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import NamedTuple

from patchline.errors import Refused, SourceMismatch, Unreachable
from patchline.http import retry_after
from patchline.image import model
from patchline.image.reference import is_here
from patchline.image.registry import url as urls
from patchline.image.registry.auth import Auth, Scopes
from patchline.image.registry.faults import said
from patchline.image.registry.patience import Broken, Patience, persist
from patchline.image.registry.transport import Response, Transport
from patchline.image.registry.url import Url
from patchline.urls import shown

_REDIRECTS = (301, 302, 303, 307, 308)


class Answer(NamedTuple):
    """What came back, whole."""

    status: int
    headers: Mapping[str, str]
    data: bytes
    url: str


class Client:
    """Connections to one registry, and to where it redirects."""

    def __init__(self, host: str, patience: Patience | None = None) -> None:
        self.host = host
        self.patience = patience or Patience()
        self.url = f"{'http' if is_here(host) else 'https'}://{host}"
        self.transport = Transport()
        self._own = urls.parse(self.url)
        self._auth = Auth(host, self._token)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.transport.close()

    def ask(
        self,
        method: str,
        path: str,
        scopes: Scopes,
        *,
        ok: tuple[int, ...] = (200,),
        headers: Mapping[str, str] | None = None,
        content: bytes = b"",
    ) -> Answer:
        """One exchange with a short answer, tried again while it is broken; only for what may be done twice.

        Raises:
            Unreachable: it stayed broken.
            Refused: the registry does not want to, or redirects to where we do not go.
        """
        url = f"{self.url}{path}"
        once = lambda: self.once(method, url, scopes, ok=ok, headers=headers, content=content)  # noqa: E731
        return persist(self.patience, shown(url), once)

    def once(
        self,
        method: str,
        url: str,
        scopes: Scopes,
        *,
        ok: tuple[int, ...],
        headers: Mapping[str, str] | None = None,
        content: bytes = b"",
    ) -> Answer:
        """The same, tried once; raises `Broken` where it is worth another try."""
        with self.stream(method, url, scopes, ok=ok, headers=headers, content=content) as response:
            data = bytearray()
            for piece in self.transport.pieces(response):
                data += piece
                if len(data) > model.MOST:
                    raise SourceMismatch("the registry's answer is too long for a document", where=shown(url))
            return Answer(response.status, response.headers, bytes(data), str(response.url))

    @contextmanager
    def stream(
        self,
        method: str,
        url: str,
        scopes: Scopes,
        *,
        ok: tuple[int, ...],
        headers: Mapping[str, str] | None = None,
        content: bytes = b"",
    ) -> Iterator[Response]:
        """The same, before the answer's body was read."""
        response = self._authorized(method, url, scopes, dict(headers or {}), content)
        try:
            if response.status not in ok:
                raise self._fault(response)
            yield response
        finally:
            response.close()

    def _authorized(self, method: str, url: str, scopes: Scopes, headers: dict[str, str], content: bytes) -> Response:
        """Follows redirections, and answers one challenge of the registry itself."""
        at, sent, answered = urls.parse(url), self._auth.header(scopes), False
        for _ in range(6):
            own = self._is_ours(at)
            given = {**headers, "Authorization": sent} if own and sent else headers
            response = self.transport.send(method, at, given, content)
            status = response.status
            if status == 401 and own and "WWW-Authenticate" in response.headers:
                response.close()
                if answered:
                    raise self._auth.refused("it does not accept who we are, or that we may do this")
                answered = True
                sent = self._auth.answer(response.headers["WWW-Authenticate"], scopes, sent)
            elif status in _REDIRECTS and response.headers.get("Location"):
                response.close()
                at = self._next(method, response)
            else:
                return response
        raise Refused("the registry redirects in circles", where=shown(url))

    def _next(self, method: str, response: Response) -> Url:
        if method not in ("GET", "HEAD") and response.status not in (307, 308):
            raise Refused(f"the registry redirects a {method} with {response.status}", where=shown(response.url))
        return self.resolve(str(response.url), response.headers["Location"])

    def resolve(self, url: str, location: str) -> Url:
        """Where the registry sends us.

        Raises:
            Refused: we would not be safe there.
        """
        try:
            target = urls.join(url, location)
        except ValueError as bad:
            raise Refused("the registry sends us to what is no url", where=shown(url) or self.url) from bad
        self._refuse_unsafe(target)
        return target

    def _refuse_unsafe(self, url: Url) -> None:
        """Plain HTTP never leaves this machine, and nobody else may send us to it."""
        plain = url.scheme == "http" and is_here(url.authority) and self._own.scheme == "http"
        if not (url.scheme == "https" or plain):
            raise Refused(
                f"{self.host} sends us to {shown(url.without_query)}: plain HTTP is for this machine only",
                where=self.url,
            )

    def _is_ours(self, url: Url) -> bool:
        return url.origin == self._own.origin

    def _token(self, method: str, url: str, headers: dict[str, str], content: bytes) -> bytes:
        """One exchange with a token server."""
        at = self.resolve("", url)

        def once() -> bytes:
            response = self.transport.send(method, at, headers, content)
            try:
                if response.status != 200:
                    raise self._fault(response)
                return b"".join(self.transport.pieces(response))[: model.MOST]
            finally:
                response.close()

        return persist(self.patience, shown(at.without_query), once)

    def _fault(self, response: Response) -> Exception:
        """What an answer means that is not the wanted one."""
        status, where = response.status, shown(response.url.without_query)
        try:
            text = said(status, response.reason, b"".join(self.transport.pieces(response))[: model.MOST])
        except Broken:
            text = f"{status} {response.reason}"
        if status == 507:
            return Unreachable(f"the registry has no space left: {text}", where=where)
        if status in (408, 429) or (status >= 500 and status not in (501, 505)):
            return Broken(f"it answered {text}", retry_after(response.headers))
        return Refused(f"the registry refuses: {text}", where=where)
