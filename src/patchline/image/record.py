"""`RECORD` files of installed distributions: which files they list, and the same with an overlay in place.

The format is that of the packaging specifications ("Recording installed projects"): rows of CSV with path, hash and
size. Rows that an overlay does not concern keep their bytes.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import NamedTuple

from patchline.errors import SourceMismatch


class _Record(NamedTuple):
    """The rows of a file, without their ends, and two of their fields, row by row."""

    lines: tuple[str, ...]
    paths: tuple[str, ...]
    digests: tuple[str, ...]


def rows(data: bytes, where: str) -> dict[str, str]:
    """The hash (`sha256=…`, or nothing) by path.

    Raises:
        SourceMismatch: it is no RECORD, or lists a path twice with different hashes.
    """
    found = _read(data, where)
    made = dict(zip(found.paths, found.digests, strict=True))
    if len(made) < len(found.paths):
        wrong = [path for path, one in zip(found.paths, found.digests, strict=True) if made[path] != one]
        if wrong:
            raise SourceMismatch(f"this RECORD lists {wrong[0]} with two hashes", where=where)
    return made


def corrected(data: bytes, new: Mapping[str, bytes], gone: Collection[str], where: str) -> bytes:
    """The same RECORD with the rows of `new` files as they are now, and without the rows of those that are `gone`."""
    found, touched = _read(data, where), {*new, *gone}
    lines, left = list(found.lines), dict(new)
    for number in [number for number, path in enumerate(found.paths) if path in touched]:
        path = found.paths[number]
        lines[number] = _written(path, left.pop(path), lines[number]) if path in left else ""
    kept = [line for line in lines if line]
    kept += [_written(path, left[path], kept[-1] if kept else "") for path in sorted(left)]
    return "".join(f"{line}\n" for line in kept).encode()


@lru_cache(maxsize=2)
def _read(data: bytes, where: str) -> _Record:
    """Kept, since a cut reads the same file to place its changes and to correct it, and vLLM's has 7000 rows."""
    try:
        text = data.decode()
    except UnicodeDecodeError as bad:
        raise SourceMismatch(f"this RECORD is not UTF-8: {bad}", where=where) from bad
    lines = [line for line in text.split("\n") if line and not line.isspace()]
    if '"' not in text and all(line.count(",") == 2 for line in lines):
        fields = ",".join(lines).split(",") if lines else []  # all at once: row by row it takes ten times as long
    else:
        fields = [field for line in lines for field in _fields(line, where)]
    return _Record(tuple(lines), tuple(fields[::3]), tuple(fields[1::3]))


def _fields(line: str, where: str) -> list[str]:
    fields = next(csv.reader([line]), [])
    if len(fields) != 3:
        raise SourceMismatch(f"a row of this RECORD has {len(fields)} fields, not 3: {line.strip()[:80]}", where=where)
    return fields


def _written(path: str, data: bytes, like: str) -> str:
    """The row of a file, with the carriage return that the row `like` has, or has not."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    text = io.StringIO()
    csv.writer(text, lineterminator="\r" if like.endswith("\r") else "").writerow((path, f"sha256={digest}", len(data)))
    return text.getvalue()
