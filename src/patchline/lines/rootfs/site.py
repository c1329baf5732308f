"""The Python packages of a made base: a proof environment's, in layers of their own, as a virtual environment."""

from __future__ import annotations

import os
import posixpath
import re
import stat
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import Distribution, distributions
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from patchline.errors import SourceMismatch
from patchline.image import record
from patchline.lines.rootfs.layer import Layer, info, layer
from patchline.lines.rootfs.system import GID, UID
from patchline.paths import ancestors
from patchline.proofs.env import PYTHON

VENV = "opt/dynamo/venv"
"""Where Dynamo's own images have had theirs. Nothing of ours looks for it: packages are found by their RECORD."""
_NAME = f"python{PYTHON[0]}.{PYTHON[1]}"
SITE = f"{VENV}/lib/{_NAME}/site-packages"

LEFT_OUT = ("pip", "triton")
"""Distributions that serving on a CPU does not need; Triton, for GPUs, has a gigabyte."""

_OF: Mapping[str, re.Pattern[str]] = {
    "vllm": re.compile(r"vllm(-cpu)?"),
    "dynamo": re.compile(r"ai-dynamo(-runtime)?"),
}
"""The layers above the first one, and the distributions in them: a base is proven by reading the layers it takes."""

LAYERS = ("packages", *_OF)

_PYC = re.compile(r".*\.pyc|.*/__pycache__(/.*)?")
_SCRIPT = re.compile(rb"#!(?P<place>[^\n]*/)python[0-9.]*(?=[ \n])")


class File(NamedTuple):
    """A file of the image: one of the environment's, or `data`."""

    source: Path
    data: bytes | None = None


def site(folder: Path, roots: Sequence[Path]) -> list[Layer]:
    """The layers of the packages in the folders `roots`, in the layout at `folder`.

    Raises:
        SourceMismatch: a file of a distribution is not there.
    """
    parts = _parted(roots)
    made = []
    for name in LAYERS:
        with layer(folder, f"Python packages: {name}") as making:
            if name == LAYERS[0]:
                _skeleton(making.tar)
            _add(making.tar, parts[name], set(ancestors(f"{VENV}/bin/x")) if name == LAYERS[0] else set())
        if making.done:
            made.append(making.done)
    return made


def _parted(roots: Sequence[Path]) -> dict[str, dict[str, File]]:
    """The files of each layer, by their paths in the image."""
    parts: dict[str, dict[str, File]] = {name: {} for name in LAYERS}
    for root in roots:
        owned: set[str] = set()
        for one in distributions(path=[str(root)]):
            files = _files(one, root)
            owned |= files.keys()
            name = (one.name or "").lower().replace("_", "-")
            if name not in LEFT_OUT:
                parts[_layer(name)] |= files
        parts[LAYERS[0]] |= {path: file for path, file in _all(root) if path not in owned}
    return parts


def _layer(distribution: str) -> str:
    return next((name for name, pattern in _OF.items() if pattern.fullmatch(distribution)), LAYERS[0])


def _files(one: Distribution, site_packages: Path) -> dict[str, File]:
    """What a distribution's RECORD lists, but for byte-code; scripts and the RECORD itself are made for the image."""
    rows = {str(file): file for file in one.files or ()}
    gone = {row for row in rows if _PYC.fullmatch(row)}
    changed: dict[str, bytes] = {}
    files: dict[str, File] = {}
    for row in sorted(rows.keys() - gone):
        source = site_packages / row
        if not os.path.lexists(source):
            raise SourceMismatch(
                f"{one.name}: {row} is not there",
                where=str(site_packages),
                next="remove the environment, and run again",
            )
        if row.startswith("../") and (script := _script(source)):
            changed[row] = script
        files[posixpath.normpath(f"{SITE}/{row}")] = File(source, changed.get(row))
    listed = next((path for path in files if path.endswith(".dist-info/RECORD")), None)
    if listed:
        old = files[listed].source.read_bytes()
        files[listed] = File(files[listed].source, record.corrected(old, changed, gone, f"/{SITE}"))
    return files


def _script(source: Path) -> bytes | None:
    """A script that begins with the environment's Python, with the image's."""
    with source.open("rb") as file:
        if file.read(2) != b"#!":
            return None
    data = source.read_bytes()
    return _SCRIPT.sub(f"#!/{VENV}/bin/python".encode(), data, count=1) if _SCRIPT.match(data) else None


def _all(site_packages: Path) -> Iterator[tuple[str, File]]:
    """Every file there but byte-code: also what no distribution lists, such as our stubs."""
    for folder, folders, names in os.walk(site_packages):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        inside = os.path.relpath(folder, site_packages)
        for name in names:
            if not _PYC.fullmatch(name):
                path = posixpath.normpath(f"{SITE}/{inside}/{name}")
                yield path, File(Path(folder, name))


def _skeleton(tar: tarfile.TarFile) -> None:
    """The virtual environment, of Debian's Python."""
    for path in (*ancestors(f"{VENV}/x"), f"{VENV}/bin"):
        ours = path.startswith(VENV)
        tar.addfile(info(path, tarfile.DIRTYPE, 0o775 if ours else 0o755, UID if ours else 0, GID))
    data = b"home = /usr/bin\ninclude-system-site-packages = false\n"
    made = info(f"{VENV}/pyvenv.cfg", tarfile.REGTYPE, 0o664, UID, GID)
    made.size = len(data)
    tar.addfile(made, BytesIO(data))
    for name, target in (("python", _NAME), ("python3", _NAME), (_NAME, f"/usr/bin/{_NAME}")):
        made = info(f"{VENV}/bin/{name}", tarfile.SYMTYPE, 0o777, UID, GID)
        made.linkname = target
        tar.addfile(made)


def _add(tar: tarfile.TarFile, files: Mapping[str, File], there: Iterable[str]) -> None:
    """Adds files in the order of their paths, each folder before what is in it."""
    folders = {above for path in files for above in ancestors(path)} - set(there)
    for path in sorted({*files, *folders}, key=os.fsencode):
        if path in folders:
            ours = path.startswith(VENV)
            tar.addfile(info(path, tarfile.DIRTYPE, 0o775 if ours else 0o755, UID if ours else 0, GID))
        else:
            _add_file(tar, path, files[path])


def _add_file(tar: tarfile.TarFile, path: str, file: File) -> None:
    """Group-writable, as in Dynamo's own images; a link inside stays one."""
    if file.source.is_symlink():
        made = info(path, tarfile.SYMTYPE, 0o777, UID, GID)
        made.linkname = os.readlink(file.source)
        tar.addfile(made)
        return
    status = file.source.stat()
    made = info(path, tarfile.REGTYPE, 0o775 if status.st_mode & stat.S_IXUSR else 0o664, UID, GID)
    if file.data is not None:
        made.size = len(file.data)
        tar.addfile(made, BytesIO(file.data))
        return
    made.size = status.st_size
    with file.source.open("rb") as data:
        tar.addfile(made, data)
