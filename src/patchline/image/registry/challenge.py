"""What a registry asks for before it answers: the header WWW-Authenticate (RFC 9110, 11.6.1)."""

from __future__ import annotations

import re
from typing import NamedTuple

_PARAMETER = re.compile(r"""([A-Za-z0-9_-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))""")
_SCHEME = re.compile(r"(?:^|,)\s*([A-Za-z0-9_-]+)(?=\s+[A-Za-z0-9_-]+\s*=|\s*$|\s*,)")


class Challenge(NamedTuple):
    """One way to say who one is."""

    scheme: str
    """In lower case: `basic`, `bearer`."""
    parameters: dict[str, str]


def parse(header: str) -> list[Challenge]:
    """All challenges of a header, in their order."""
    plain = re.sub(r'"(?:[^"\\]|\\.)*"', lambda quoted: '"' + "x" * (len(quoted[0]) - 2) + '"', header)
    starts = list(_SCHEME.finditer(plain))
    ends = [*(one.start() for one in starts[1:]), len(header)]
    return [
        Challenge(one[1].lower(), _parameters(header[one.end() : end])) for one, end in zip(starts, ends, strict=False)
    ]


def _parameters(text: str) -> dict[str, str]:
    found = {}
    for name, quoted, plain in _PARAMETER.findall(text):
        found[name.lower()] = re.sub(r"\\(.)", r"\1", quoted) or plain
    return found
