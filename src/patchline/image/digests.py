"""Digests of content, and streams that are nothing but what their digest says."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator

from patchline.errors import SourceMismatch

CHUNK = 2**20
"""Bytes that are read at a time."""

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def is_digest(text: str) -> bool:
    """Whether `text` is a digest that we can check: sha256 in lower-case hex."""
    return _DIGEST.fullmatch(text) is not None


def of(data: bytes) -> str:
    """`sha256:…` of `data`."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def checked(chunks: Iterable[bytes], digest: str, size: int, where: str) -> Iterator[bytes]:
    """Passes `chunks` on; at the end they were `size` bytes with this `digest`, or it raises.

    What was passed on before the end is not yet known to be right. A stream that is too long ends at once.

    Raises:
        SourceMismatch: the bytes are others.
    """
    total, count = hashlib.sha256(), 0
    for chunk in chunks:
        count += len(chunk)
        if count > size:
            break
        total.update(chunk)
        yield chunk
    found = f"sha256:{total.hexdigest()}"
    if count != size:
        more = "more came" if count > size else f"{count} came"
        raise SourceMismatch(f"wrong size: {digest} has {size} bytes, {more}", where=where)
    if found != digest:
        raise SourceMismatch(f"wrong bytes\n  wanted: {digest}\n  found:  {found}", where=where)
