"""Says to one registry who we are: basic authentication, or tokens that a server of its own gives out.

By Docker's token specification, which registries follow: the challenge names the server (`realm`), and the token is
for the scopes that were asked for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlencode

import msgspec

from patchline.errors import Refused

if TYPE_CHECKING:
    from patchline.image.registry.challenge import Challenge
    from patchline.image.registry.credentials import Credential

CLIENT = "patchline"

Scopes = tuple[str, ...]
"""`repository:team/name:pull,push` …"""

Ask = Callable[[str, str, dict[str, str], bytes], bytes]
"""Method, url, headers and body of one exchange without authentication of its own; gives the body of a good answer."""


class _Token(msgspec.Struct):
    token: str = ""
    access_token: str = ""
    expires_in: int = 60


class _Held(NamedTuple):
    header: str
    until: float


class Auth:
    """What is sent to one registry; asks for a credential once, and only after a challenge."""

    def __init__(self, host: str, ask: Ask) -> None:
        self.host = host
        self._ask = ask
        self._held: dict[Scopes, _Held] = {}
        self._credential: Credential | None = None
        self._looked = False
        self._lock = threading.Lock()

    def header(self, scopes: Scopes) -> str | None:
        """What to send with a request before anything is asked for."""
        held = self._held.get(scopes)
        return held.header if held and held.until > time.monotonic() else None

    def answer(self, header: str, scopes: Scopes, sent: str | None) -> str:
        """What to send after a challenge to a request that was `sent` with this, or with nothing.

        Raises:
            Refused: it wants what we do not have.
            UsageError: docker's configuration or a helper of it is broken.
        """
        from patchline.image.registry import credentials  # needed after a challenge only
        from patchline.image.registry.challenge import parse

        with self._lock:
            known = self.header(scopes)
            if known is not None and known != sent:
                return known  # another thread was faster
            offered = {one.scheme: one for one in reversed(parse(header))}
            if not self._looked:
                self._credential, self._looked = credentials.of(self.host), True
            held = self._answer(offered, scopes)
            self._held[scopes] = held
            return held.header

    def _answer(self, offered: dict[str, Challenge], scopes: Scopes) -> _Held:
        if "bearer" in offered:
            return self._token(offered["bearer"].parameters, scopes)
        if "basic" in offered and self._credential is not None and not self._credential.is_token:
            return _Held(self._credential.basic(), float("inf"))
        if "basic" in offered:
            raise self.refused("it wants a name and a password, and docker's configuration has none for it")
        raise self.refused(f"it wants something else than a password or a token: {', '.join(offered) or 'nothing'}")

    def _token(self, said: dict[str, str], scopes: Scopes) -> _Held:
        realm, service = said.get("realm", ""), said.get("service", "")
        named = {scope.rpartition(":")[0] for scope in scopes}
        others = (scope for scope in said.get("scope", "").split() if scope.rpartition(":")[0] not in named)
        wanted = sorted({*scopes, *others})
        who = self._credential
        if who is not None and who.is_token:
            form = {"grant_type": "refresh_token", "service": service, "client_id": CLIENT}
            body = urlencode({**form, "scope": " ".join(wanted), "refresh_token": who.secret})
            kind = {"Content-Type": "application/x-www-form-urlencoded"}
            data = self._ask("POST", realm, kind, body.encode())
        else:
            query = [("service", service), ("client_id", CLIENT), *(("scope", scope) for scope in wanted)]
            headers = {"Authorization": who.basic()} if who else {}
            data = self._ask("GET", f"{realm}{'&' if '?' in realm else '?'}{urlencode(query)}", headers, b"")
        return self._read(data)

    def _read(self, data: bytes) -> _Held:
        try:
            found = msgspec.json.decode(data, type=_Token)
        except msgspec.MsgspecError:
            found = _Token()
        token = found.token or found.access_token
        if not token or not token.isascii() or not token.isprintable():
            raise self.refused("its token server gave no token")
        return _Held(f"Bearer {token}", time.monotonic() + max(found.expires_in, 60) * 0.8)

    def refused(self, why: str) -> Refused:
        """The error for a registry that does not let us in."""
        return Refused(f"{self.host} refuses us: {why}", next=f"docker login {self.host}")
