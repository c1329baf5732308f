"""Where pip of this environment looks for packages; we look in the same places."""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from patchline.errors import CommandFailed, UsageError
from patchline.run import run


@dataclass(frozen=True)
class PipSettings:
    """What pip's files and `PIP_*` say about package indexes; `timeout` is in seconds."""

    index_url: str | None = None
    extra_index_urls: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    trusted_hosts: tuple[str, ...] = ()
    no_index: bool = False
    cert: str | None = None
    proxy: str | None = None
    timeout: float = 15.0


def read() -> PipSettings:
    """The settings in force, as pip itself reads them.

    Raises:
        UsageError: this environment has no pip.
    """
    try:
        listing = run([sys.executable, "-m", "pip", "config", "list"], cwd=Path.cwd()).stdout
    except CommandFailed as failed:
        raise UsageError(
            "pip's configuration cannot be read", where=str(failed), next=f"{sys.executable} -m ensurepip"
        ) from failed
    return parse(listing.decode())


def parse(listing: str) -> PipSettings:
    """The settings in the output of `pip config list`; the environment wins over files."""
    found: dict[str, dict[str, str]] = {}
    for line in listing.splitlines():
        name, separator, value = line.partition("=")
        section, _, key = name.rpartition(".")
        if separator:
            found.setdefault(section, {})[key] = str(ast.literal_eval(value))
    merged: dict[str, str] = {}
    for section in ("global", "download", ":env:"):
        merged |= found.get(section, {})
    return _of(merged)


def _of(values: Mapping[str, str]) -> PipSettings:
    return PipSettings(
        index_url=values.get("index-url") or None,
        extra_index_urls=tuple(values.get("extra-index-url", "").split()),
        find_links=tuple(values.get("find-links", "").split()),
        trusted_hosts=tuple(values.get("trusted-host", "").split()),
        no_index=values.get("no-index", "0").lower() in ("1", "true", "yes", "on"),
        cert=values.get("cert") or None,
        proxy=values.get("proxy") or None,
        timeout=float(values.get("timeout") or values.get("default-timeout") or 15),
    )
