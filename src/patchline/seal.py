"""Seals: a file's own digest in its field `seal`, so that one edited by hand is told from what was written."""

from __future__ import annotations

import hashlib
from typing import TypeVar

import msgspec

_Sealed = TypeVar("_Sealed", bound=msgspec.Struct)


def sealed(one: _Sealed) -> _Sealed:
    """The same, its field `seal` the sha256 of all the rest of it, as JSON with sorted keys."""
    data = msgspec.json.encode(msgspec.structs.replace(one, seal=""), order="sorted")
    return msgspec.structs.replace(one, seal=f"sha256:{hashlib.sha256(data).hexdigest()}")
