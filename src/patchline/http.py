"""Rules of HTTP that several clients here share."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from ipaddress import ip_address


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds until the other side wants to be asked again; None where it does not say (RFC 9110, 10.2.3)."""
    said = headers.get("Retry-After", "").strip()
    if said.isascii() and said.isdigit() and len(said) < 10:
        return float(said)
    try:
        date = parsedate_to_datetime(said)
    except (ValueError, OverflowError):
        return None
    date = date if date.tzinfo else date.replace(tzinfo=UTC)
    return max(0.0, (date - datetime.now(UTC)).total_seconds())


def is_loopback(host: str) -> bool:
    """Whether `host` (no port, an IPv6 address with or without brackets) is this machine by address, or `localhost`."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"
