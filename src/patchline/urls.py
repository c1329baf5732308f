"""Urls as messages may show them."""

from __future__ import annotations

import re


def shown(url: object) -> str:
    """`url` without the name and password that it may hold."""
    return re.sub(r"(?<=://)[^/@\s]*@", "***@", str(url))
