"""Package indexes, asked where pip would ask them. Nothing is built and nothing installed."""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import cast

import httpx2
from unearth import PackageFinder
from unearth.auth import MultiDomainBasicAuth
from unearth.fetchers import Fetcher, PyPIClient

from patchline import pip_settings
from patchline.errors import Unreachable, UsageError
from patchline.pip_settings import PipSettings
from patchline.progress import say
from patchline.urls import shown

CHECK = "see where pip looks: python -m pip config list"


@dataclass(frozen=True)
class Offer:
    """One file that an index offers; `sha256` is what the index says, if it says one."""

    name: str
    version: str
    url: str
    sha256: str | None
    yanked: bool


def offers(distribution: str) -> list[Offer]:
    """Every file of `distribution`, of every version, platform and Python; empty for an unknown name.

    Raises:
        Unreachable: an index did not answer.
    """
    finder = _finder()
    with _complaints() as complaints:
        try:
            packages = list(finder.find_all_packages(distribution, allow_yanked=True))
        except (httpx2.HTTPError, OSError) as failed:
            raise _silent(distribution, finder, [str(failed) or type(failed).__name__]) from failed
    if bad := [complaint for complaint in complaints if "Client Error(404)" not in complaint]:
        raise _silent(distribution, finder, bad)
    links = ((package.version or "", package.link) for package in packages)
    return [
        Offer(link.filename, version, link.url_without_fragment, _sha256(link.hash_option), link.is_yanked)
        for version, link in links
    ]


@contextmanager
def stream(url: str) -> Iterator[httpx2.Response]:
    """The answer to a GET of `url`, its body unread and without content coding.

    Raises:
        Unreachable: there is no answer, the answer is an error, or the connection broke.
    """
    try:
        with _session().stream("GET", url, headers={"Accept-Encoding": "identity"}) as response:
            response.raise_for_status()
            yield response
    except httpx2.HTTPError as failed:
        reason = str(failed).splitlines()[0] if str(failed) else type(failed).__name__
        raise Unreachable(
            f"the download broke off or never began: {reason}",
            where=shown(url),
            next=f"run the same command again; if it fails again, {CHECK}",
        ) from failed


def chunks(response: httpx2.Response, *, short: bool) -> Iterator[bytes]:
    """The body as it comes; with `short` a body that ends too early just ends, for its digest to tell."""
    try:
        yield from response.iter_raw()
    except httpx2.RemoteProtocolError:
        if not short:
            raise


def forget() -> None:
    """Reads pip's settings anew at the next question."""
    if _session.cache_info().currsize:
        _session().close()
    for kept in (_settings, _session, _finder):
        kept.cache_clear()


@cache
def _settings() -> PipSettings:
    return pip_settings.read()


@cache
def _session() -> PyPIClient:
    settings = _settings()
    session = PyPIClient(
        trusted_hosts=settings.trusted_hosts,
        verify=ssl.create_default_context(cafile=settings.cert) if settings.cert else True,
        timeout=settings.timeout,
        proxy=settings.proxy,
        follow_redirects=True,
    )
    session.auth = MultiDomainBasicAuth(index_urls=[*_own_index(), *settings.extra_index_urls])
    return session


@cache
def _finder() -> PackageFinder:
    settings, session = _settings(), cast(Fetcher, _session())
    links = [link for link in settings.find_links if _is_there(link)]
    if settings.no_index:
        if not links:
            raise UsageError("pip is told no-index and has no find-links: nowhere to look", next=CHECK)
        return PackageFinder(session, find_links=links, ignore_compatibility=True)
    # Without an index of its own the finder takes the default that pip takes.
    finder = PackageFinder(session, index_urls=_own_index(), ignore_compatibility=True)
    for url in settings.extra_index_urls:
        finder.add_index_url(url)
    for link in links:
        finder.add_find_links(link)
    return finder


def _own_index() -> list[str]:
    return [url] if (url := _settings().index_url) else []


def _is_there(link: str) -> bool:
    there = "://" in link or os.path.exists(link)
    if not there:
        say(f"pip's find-links {link} is not there: passed over, as pip does")
    return there


def _sha256(hashes: dict[str, list[str]] | None) -> str | None:
    return next(iter((hashes or {}).get("sha256", [])), None)


@contextmanager
def _complaints() -> Iterator[list[str]]:
    """Collects what the finder only warns about: an index that answered with an error."""
    messages: list[str] = []

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())

    handler, logger = Collect(logging.WARNING), logging.getLogger("unearth")
    propagated, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield messages
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagated


def _silent(distribution: str, finder: PackageFinder, reasons: list[str]) -> Unreachable:
    return Unreachable(
        f"cannot look up {distribution}: {'; '.join(reasons)}",
        where=", ".join(shown(source["url"]) for source in finder.sources),
        next=f"run the same command again; if it fails again, {CHECK}",
    )
