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

from patchline.errors import SourceMismatch


def rows(data: bytes, where: str) -> dict[str, str]:
    """The hash (`sha256=…`, or nothing) by path.

    Raises:
        SourceMismatch: it is no RECORD, or lists a path twice with different hashes.
    """
    found: dict[str, str] = {}
    for line in _lines(data, where):
        path, digest = _row(line, where)
        if found.setdefault(path, digest) != digest:
            raise SourceMismatch(f"this RECORD lists {path} with two hashes", where=where)
    return found


def corrected(data: bytes, new: Mapping[str, bytes], gone: Collection[str], where: str) -> bytes:
    """The same RECORD with the rows of `new` files as they are now, and without the rows of those that are `gone`."""
    kept, left = [], dict(new)
    for line in _lines(data, where):
        path, _ = _row(line, where)
        if path in new:
            if path in left:
                kept.append(_written(path, left.pop(path), line))
        elif path not in gone:
            kept.append(line)
    if kept and not kept[-1].endswith("\n"):
        kept[-1] += "\n"
    kept += [_written(path, left[path], kept[-1] if kept else "\n") for path in sorted(left)]
    return "".join(kept).encode()


def _lines(data: bytes, where: str) -> list[str]:
    try:
        return [line for line in io.StringIO(data.decode(), newline="\n") if line.strip()]
    except UnicodeDecodeError as bad:
        raise SourceMismatch(f"this RECORD is not UTF-8: {bad}", where=where) from bad


def _row(line: str, where: str) -> tuple[str, str]:
    fields = next(csv.reader([line]), []) if '"' in line else line.rstrip("\r\n").split(",")
    if len(fields) != 3:
        raise SourceMismatch(f"a row of this RECORD has {len(fields)} fields, not 3: {line.strip()[:80]}", where=where)
    return fields[0], fields[1]


def _written(path: str, data: bytes, like: str) -> str:
    """The row of a file, with the line end of the row `like`."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    text = io.StringIO()
    end = "\r\n" if like.endswith("\r\n") else "\n"
    csv.writer(text, lineterminator=end).writerow((path, f"sha256={digest}", len(data)))
    return text.getvalue()
