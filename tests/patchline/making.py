"""Archives and projects made for a test."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from patchline.download import digest
from patchline.pins import ArchivePin, PinFile, Upstream, write
from patchline.pins.model import ArchiveKind
from patchline.project import Project

TOP = "demo-1.0"
PLAIN = {
    "README.md": b"demo\n",
    "demo/__init__.py": b"",
    "demo/core.py": b"def answer():\n    return 42\n",
    "demo/crlf.txt": b"one\r\ntwo\r\n",
    "demo/run.sh": b"#!/bin/sh\n",
    ".gitattributes": b"* text eol=crlf\n*.py ident filter=evil working-tree-encoding=UTF-16\n",
    ".gitignore": b"*\n",
}


def entry(name: str, data: bytes = b"", mode: int = 0o644, kind: bytes = tarfile.REGTYPE, link: str = "") -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime, info.type, info.linkname = len(data), mode, 1_700_000_000, kind, link
    pad = -len(data) % tarfile.BLOCKSIZE
    return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape") + data + b"\0" * pad


def tar(*entries: bytes) -> bytes:
    return gzip.compress(b"".join(entries) + b"\0" * 1024, 1, mtime=0)


def sdist(files: Mapping[str, bytes] = PLAIN, top: str = TOP) -> bytes:
    def mode(name: str) -> int:
        return 0o755 if name.endswith(".sh") else 0o664

    return tar(*(entry(f"{top}/{name}", data, mode(name)) for name, data in files.items()))


def wheel(files: Mapping[str, bytes], mode: int = 0o100644) -> bytes:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        for name, data in files.items():
            info = zipfile.ZipInfo(name, (2024, 2, 3, 4, 5, 6))
            info.external_attr = mode << 16
            archive.writestr(info, data)
    return whole.getvalue()


def pin_of(data: bytes, name: str = "demo-1.0.tar.gz", version: str = "1.0") -> ArchivePin:
    file = PinFile(name=name, sha256=digest(data), size=len(data))
    kind: ArchiveKind = "wheel" if name.endswith(".whl") else "sdist"
    return ArchivePin(kind=kind, distribution="demo", version=version, files=(file,))


def project_with(root: Path, pin: ArchivePin) -> tuple[Project, Upstream]:
    """A project with one pin; its file need not be in the cache."""
    project = Project(root)
    upstream = Upstream(name="demo", carried=pin.version, pins=(pin,))
    write(project.upstreams, {"demo": upstream})
    return project, upstream
