"""Base images made for a test: a few layers with a small installed package."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import zstandard

from patchline.image import identity, model
from patchline.image.identity import Identity
from patchline.overlay import Change, Overlay
from patchline.series.trees import Entry

SITE = "opt/venv/lib/python3.12/site-packages"
INIT = b"VERSION = 1\n"
CORE = b"def answer():\n    return 41\n"
NEW_CORE = b"def answer():\n    return 42\n"
GONE = b"OLD = True\n"
ADDED = b"FRESH = True\n"
PYC = "cpython-312"
LAYER = model.LAYER


def sha(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def member(
    path: str,
    data: bytes = b"",
    *,
    kind: bytes = tarfile.REGTYPE,
    link: str = "",
    mode: int = 0o644,
    owner: int = 0,
    group: int = 0,
) -> bytes:
    """One entry of a layer, as it lies in the tar."""
    info = tarfile.TarInfo(path)
    info.type, info.linkname, info.size, info.mode = kind, link, len(data), mode
    info.uid, info.gid, info.mtime = owner, group, 1_700_000_000
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape") + data + b"\0" * (-len(data) % 512)


def folder(path: str, mode: int = 0o755, owner: int = 0, group: int = 0) -> bytes:
    return member(path, kind=tarfile.DIRTYPE, mode=mode, owner=owner, group=group)


def hard(path: str, target: str) -> bytes:
    return member(path, kind=tarfile.LNKTYPE, link=target)


def symbolic(path: str, target: str) -> bytes:
    return member(path, kind=tarfile.SYMTYPE, link=target)


def record(files: Mapping[str, bytes], info: str, *, bare: Sequence[str] = ()) -> bytes:
    """The RECORD of `files`; `bare` rows have no hash, like that of the RECORD itself."""

    def row(path: str, data: bytes) -> str:
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        return f"{path},sha256={digest},{len(data)}\n"

    rows = [row(*one) for one in files.items()] + [f"{path},,\n" for path in (*bare, f"{info}/RECORD")]
    return "".join(rows).encode()


def package(
    files: Mapping[str, bytes], info: str = "vllm-0.31.0.dist-info", *, site: str = SITE, bare: Sequence[str] = ()
) -> list[bytes]:
    """The entries of an installed distribution; owned like those of Dynamo's images, writable for the group."""
    all_files = {**files, f"{info}/METADATA": b"Name: vllm\n"}
    folders = sorted(
        {"/".join(path.split("/")[:count]) for path in all_files for count in range(1, path.count("/") + 1)}
    )
    made = [folder(f"{site}/{one}", 0o775, 1000) for one in folders]
    made += [member(f"{site}/{path}", data, mode=0o664, owner=1000) for path, data in all_files.items()]
    return [*made, member(f"{site}/{info}/RECORD", record(all_files, info, bare=bare), mode=0o664, owner=1000)]


FILES = {"vllm/__init__.py": INIT, "vllm/core.py": CORE, "vllm/gone.py": GONE, "vllm/deep/__init__.py": b""}
BARE = (f"vllm/__pycache__/core.{PYC}.pyc", f"vllm/__pycache__/__init__.{PYC}.pyc", f"vllm/__pycache__/gone.{PYC}.pyc")
FOLDERS = ["etc", *("/".join(SITE.split("/")[:count]) for count in range(1, 6))]


def byte_code() -> list[bytes]:
    at = f"{SITE}/vllm/__pycache__"
    names = (
        f"core.{PYC}.pyc",
        f"core.{PYC}.opt-1.pyc",
        f"core_two.{PYC}.pyc",
        f"__init__.{PYC}.pyc",
        f"gone.{PYC}.pyc",
    )
    return [folder(at, 0o775, 1000), *(member(f"{at}/{name}", b"old byte-code") for name in names)]


def root() -> list[bytes]:
    """The lowest layer: folders, and a file that nobody asks for."""
    return [*(folder(one) for one in FOLDERS), member("etc/os-release", b"ID=tiny\n")]


def plain() -> list[list[bytes]]:
    """Three layers: folders, the package, and its byte-code."""
    return [root(), package(FILES, bare=BARE), byte_code()]


class Packed(NamedTuple):
    """A layer as registries hold it."""

    kind: str
    data: bytes
    diff_id: str


def pack(members: Sequence[bytes], how: str = "") -> Packed:
    """A layer of `members`: a plain tar, `gzip` (of two members, as parallel packers write it) or `zstd`."""
    data = b"".join(members) + b"\0" * 1024
    if how == "gzip":
        half = len(data) // 2
        return Packed(f"{LAYER}+gzip", gzip.compress(data[:half], 1) + gzip.compress(data[half:], 9), sha(data))
    if how == "zstd":
        return Packed(f"{LAYER}+zstd", zstandard.ZstdCompressor().compress(data), sha(data))
    return Packed(LAYER, data, sha(data))


class Made(NamedTuple):
    """A base image, by the bytes of its parts."""

    manifest: bytes
    config: bytes
    layers: list[Packed]
    kind: str = model.MANIFEST

    @property
    def digest(self) -> str:
        return sha(self.manifest)

    @property
    def blobs(self) -> dict[str, bytes]:
        return {sha(data): data for data in (self.config, *(one.data for one in self.layers))}


def image(
    layers: Sequence[Packed], *, env: Sequence[str] = ("PATH=/usr/bin",), architecture: str = "amd64", more: Any = None
) -> Made:
    """An image of these layers, with fields in its documents that nobody knows."""
    config = {
        "architecture": architecture,
        "os": "linux",
        "created": "2026-10-01T00:00:00Z",
        "config": {"Env": list(env), "Labels": {"maintainer": "somebody"}, "Unknown": [1, {"a": None}]},
        "rootfs": {"type": "layers", "diff_ids": [one.diff_id for one in layers]},
        "history": [{"created": "2026-10-01T00:00:00Z", "created_by": f"step {n}"} for n in range(len(layers))],
        "unknown": {"b": 1, "a": 2},
    } | (more or {})
    return described(json.dumps(config).encode(), layers)


def described(config: bytes, layers: Sequence[Packed]) -> Made:
    """The manifest in the form that is made of a `docker save` archive."""
    parts = [{"mediaType": one.kind, "digest": sha(one.data), "size": len(one.data)} for one in layers]
    fields = {
        "schemaVersion": 2,
        "mediaType": model.MANIFEST,
        "config": {"mediaType": model.CONFIG, "digest": sha(config), "size": len(config)},
        "layers": parts,
    }
    return Made(json.dumps(fields, separators=(",", ":")).encode(), config, list(layers))


def index(*made: tuple[Made, str]) -> bytes:
    """An index of images for the architectures named."""
    listed = [
        {
            "mediaType": one.kind,
            "digest": one.digest,
            "size": len(one.manifest),
            "platform": {"os": "linux", "architecture": name},
        }
        for one, name in made
    ]
    return json.dumps({"schemaVersion": 2, "mediaType": model.INDEX, "manifests": listed}).encode()


def layout(made: Made, at: Path, *, list_of: bytes = b"") -> Path:
    """Writes a layout by hand: the code under test has no part in it."""
    blobs = at / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    top = list_of or made.manifest
    for data in (top, made.manifest, *made.blobs.values()):
        (blobs / sha(data).removeprefix("sha256:")).write_bytes(data)
    kind = model.INDEX if list_of else made.kind
    listed = [
        {
            "mediaType": kind,
            "digest": sha(top),
            "size": len(top),
            "annotations": {"org.opencontainers.image.ref.name": "it"},
        }
    ]
    (at / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": listed}))
    (at / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return at


def saved(made: Made, path: Path) -> Path:
    """What `docker save` wrote until version 24: the last layer, where it is there twice, is a symbolic link."""
    with tarfile.open(path, "w") as tar:
        names: dict[str, str] = {}
        listed = []
        for number, one in enumerate(made.layers):
            name = f"{number:064d}/layer.tar"
            listed.append(name)
            if one.diff_id in names:
                link = tarfile.TarInfo(name)
                link.type, link.linkname = tarfile.SYMTYPE, f"../{names[one.diff_id]}"
                tar.addfile(link)
                continue
            names[one.diff_id] = name
            _add(tar, name, one.data)
        config = f"{sha(made.config).removeprefix('sha256:')}.json"
        _add(tar, config, made.config)
        _add(tar, "manifest.json", json.dumps([{"Config": config, "RepoTags": None, "Layers": listed}]).encode())
    return path


def packed_layout(folder: Path, path: Path) -> Path:
    """A layout in a tar file, as `docker save` writes it from version 25 on."""
    with tarfile.open(path, "w") as tar:
        tar.add(folder, arcname=".")
    return path


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


def text(data: bytes | None, mode: int = 0o100644) -> Entry | None:
    return None if data is None else Entry(mode, data)


def overlay(changes: Mapping[str, tuple[bytes | None, bytes | None]], name: str = "vllm==0.31.0") -> Overlay:
    """An overlay by path, old and new bytes."""
    made = tuple(Change(path, text(old), text(new)) for path, (old, new) in changes.items())
    return Overlay(name, "b" * 40, "c" * 40, made, ())


OVERLAY = overlay(
    {"vllm/core.py": (CORE, NEW_CORE), "vllm/gone.py": (GONE, None), "vllm/deep/er/new.py": (None, ADDED)}
)


def who(*overlays: Overlay, **more: Any) -> Identity:
    """An identity for overlays, each of one patch."""
    series = tuple(identity.series(one, [("0001-it.patch", "d" * 40)]) for one in overlays or (OVERLAY,))
    return Identity(line="tiny", version="1.6.0", series=series, base_name="base.example/tiny", **more)
