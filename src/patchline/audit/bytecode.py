"""Byte-code beside the sources of a package: whether Python would run it, and whether it is of that source.

The heads of `.pyc` files are those of PEP 552: magic, flags, then the source's time and size, or a hash of it. A head
that fits does not show that the code behind it was compiled from the source; only the Python that made it could.
"""

from __future__ import annotations

import posixpath
import re
import struct
from collections.abc import Iterator

from patchline.audit.finding import Finding
from patchline.audit.view import Seen, View
from patchline.image.places import source_of

_TAG = re.compile(r"\.cpython-(\d)(\d+)(?:\.opt-\d)?\.pyc$")
_SITE_VERSION = re.compile(r"/python(\d)\.(\d+)/")
_HASHED, _CHECKED = 1, 2


def findings(view: View, site: str, paths: list[str]) -> Iterator[Finding]:
    """What is wrong with the byte-code among `paths`, all of them below the folder `site`."""
    for path in paths:
        if path.endswith(".pyc"):
            yield from _of(view, site, path)


def _of(view: View, site: str, path: str) -> Iterator[Finding]:
    seen, module = view.files[path], source_of(path)
    source = view.at(module)
    cached = posixpath.basename(posixpath.dirname(path)) == "__pycache__"
    if source is None or source.kind != "file":
        what = (
            "left over: no source is there, and Python passes over it"
            if cached
            else (f"there is no /{module}, so Python runs this")
        )
        yield Finding("sourceless-bytecode", path, what, found=seen.digest)
    elif seen.kind != "file":
        yield Finding("extra", path, f"a {seen.kind} in the place of byte-code")
    elif cached and _is_ours(site, path):
        yield from _head(path, seen, module, source)


def _is_ours(site: str, path: str) -> bool:
    """Whether the Python of `site` would look at it; byte-code of another version is as good as none."""
    tag, version = _TAG.search(path), _SITE_VERSION.search(f"/{site}/")
    return not (tag and version) or tag.groups() == version.groups()


def _head(path: str, seen: Seen, module: str, source: Seen) -> Iterator[Finding]:
    if len(seen.head) < 16 or seen.head[2:4] != b"\r\n":
        yield Finding("stale-bytecode", path, "it has no head of byte-code; Python would not run it", found=seen.digest)
        return
    flags, time, size = struct.unpack("<4x3I", seen.head)
    if flags & _HASHED and not flags & _CHECKED:
        what = f"Python runs it whatever /{module} holds"
        yield Finding("unchecked-bytecode", path, what, found=seen.digest)
    elif not flags & _HASHED and (time, size) != (source.mtime & 0xFFFFFFFF, source.size & 0xFFFFFFFF):
        what = f"of a source of {size} bytes and time {time}; /{module} has {source.size} bytes and time {source.mtime}"
        yield Finding("stale-bytecode", path, what, found=seen.digest)
