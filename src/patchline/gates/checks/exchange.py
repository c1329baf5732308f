"""One HTTP exchange that ends at its deadline, whatever the other side does."""

from __future__ import annotations

import asyncio
import ssl
import time
from functools import cache
from typing import NamedTuple

import httpx2

from patchline.errors import Unreachable
from patchline.http import is_loopback, retry_after
from patchline.urls import shown

CONNECT = 10.0
"""Seconds for making a connection; fewer where the whole limit is shorter."""

MOST = 16 * 2**20
"""Bytes of a body that are read; a longer one is cut there, and `Reply.whole` is false."""

_SHORTEST_WAIT = 0.1
"""Seconds between two tries, however few the other side asks for."""


class Request(NamedTuple):
    """What is asked; `body` is JSON."""

    method: str
    url: str
    body: bytes | None = None
    key: str | None = None
    """Sent as a bearer token."""


class Reply(NamedTuple):
    """What came back; `data` is the body as it was sent, without content coding."""

    status: int
    reason: str
    kind: str
    """The content type."""
    data: bytes
    whole: bool = True


def exchange(request: Request, limit: float) -> Reply:
    """Sends `request` and gives the answer, of whatever status, within `limit` seconds.

    An answer 429 that says when to come back (Retry-After, in seconds or as a date) is asked for again then,
    if that is within the limit. Nothing else is tried twice. Redirections are not followed: the key would go along.
    Proxies of the environment are used, but not for this machine's own addresses. Not for use inside a running
    event loop. A name server that does not answer ends in the resolver's own time.

    Raises:
        Unreachable: nobody is there, the connection broke, or the answer was not whole within the limit.
    """
    came = [0]
    try:
        return asyncio.run(_within(request, limit, came))
    except TimeoutError as late:
        raise Unreachable(
            f"no whole answer within {limit:g} s; {came[0]} bytes of one came",
            where=shown(request.url),
            next="see what the server does, or give a longer --limit",
        ) from late
    except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError, UnicodeError) as failed:
        raise Unreachable(
            f"no answer: {_said(failed)}",
            where=shown(request.url),
            next="see that the server runs there, then run the same command again",
        ) from failed


async def _within(request: Request, limit: float, came: list[int]) -> Reply:
    until = time.monotonic() + limit
    waits = httpx2.Timeout(None, connect=min(CONNECT, limit))
    async with asyncio.timeout(limit):
        proxied = not is_loopback(httpx2.URL(request.url).host)
        async with httpx2.AsyncClient(timeout=waits, trust_env=proxied, verify=_certificates()) as client:
            while True:
                reply, wait = await _once(client, request, came)
                if wait is None or time.monotonic() + wait >= until:
                    return reply
                await asyncio.sleep(max(wait, _SHORTEST_WAIT))


@cache
def _certificates() -> ssl.SSLContext:
    """Those that SSL_CERT_FILE names, or certifi's; read once, since that takes longer than a request."""
    return httpx2.create_ssl_context()


async def _once(client: httpx2.AsyncClient, request: Request, came: list[int]) -> tuple[Reply, float | None]:
    headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
    if request.body is not None:
        headers["Content-Type"] = "application/json"
    if request.key:
        headers["Authorization"] = f"Bearer {request.key}"
    came[0] = 0
    stream = client.stream(request.method, request.url, content=request.body, headers=headers)
    async with stream as answer:
        data, whole = await _body(answer, came)
        kind = answer.headers.get("Content-Type", "no content type")
        reply = Reply(answer.status_code, answer.reason_phrase, kind, data, whole)
        return reply, retry_after(answer.headers) if answer.status_code == 429 else None


async def _body(answer: httpx2.Response, came: list[int]) -> tuple[bytes, bool]:
    """The body, and whether that is all of it; `came` counts its bytes."""
    data = bytearray()
    async for chunk in answer.aiter_raw():
        data += chunk
        came[0] = len(data)
        if len(data) > MOST:
            return bytes(data[:MOST]), False
    return bytes(data), True


def _said(failed: Exception) -> str:
    lines = str(failed).splitlines()
    return lines[0] if lines else type(failed).__name__
