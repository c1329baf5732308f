"""Images for audits: one that is right, and layers on top of it that make it wrong."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import image_bases as bases
import pytest
from image_bases import SITE, sha
from repos import git

from patchline.cli import main

CORE = f"{SITE}/demo/core.py"
INFO = f"{SITE}/demo-1.0.dist-info"
CACHED = f"{SITE}/demo/__pycache__"
MTIME = 1_700_000_000
"""Of every member that `image_bases` makes."""


def pyc(size: int, time: int = MTIME, flags: int = 0) -> bytes:
    """Byte-code of CPython 3.12 by its head."""
    return b"\xcb\x0d\r\n" + struct.pack("<3I", flags, time, size) + b"code"


def on_top(
    whole: Path, at: Path, *layers: Sequence[bytes], labels: Mapping[str, str | None] | None = None, **settings: object
) -> str:
    """The image in a layout with layers on top, and with other labels and settings (`Env`, `WorkingDir`)."""
    shutil.copytree(whole, at)
    manifest, config = parts(at)
    for members in layers:
        packed = bases.pack(members, "gzip")
        described = {"mediaType": packed.kind, "digest": _blob(at, packed.data), "size": len(packed.data)}
        manifest["layers"].append(described)
        config["rootfs"]["diff_ids"].append(packed.diff_id)
    own = {**config["config"].get("Labels", {}), **(labels or {})}
    own = {name: value for name, value in own.items() if value is not None}
    config["config"] |= {**settings, "Labels": own}
    manifest["annotations"] = {name: value for name, value in own.items() if name != "maintainer"}
    data = json.dumps(config).encode()
    manifest["config"] |= {"digest": _blob(at, data), "size": len(data)}
    data = json.dumps(manifest).encode()
    index = json.loads((at / "index.json").read_text())
    index["manifests"][0] |= {"digest": _blob(at, data), "size": len(data)}
    (at / "index.json").write_text(json.dumps(index))
    return f"oci:{at}"


def parts(layout: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Manifest and configuration of the one image in a layout."""
    index = json.loads((layout / "index.json").read_text())
    manifest = json.loads(_path(layout, index["manifests"][0]["digest"]).read_bytes())
    return manifest, json.loads(_path(layout, manifest["config"]["digest"]).read_bytes())


def labels_of(layout: Path) -> dict[str, str]:
    found: dict[str, str] = parts(layout)[1]["config"]["Labels"]
    return found


def _blob(layout: Path, data: bytes) -> str:
    _path(layout, sha(data)).write_bytes(data)
    return sha(data)


def _path(layout: Path, digest: str) -> Path:
    return layout / "blobs" / "sha256" / digest.removeprefix("sha256:")


class Said(NamedTuple):
    """What the verb answered."""

    exit: int
    data: dict[str, Any]
    err: str

    @property
    def kinds(self) -> list[tuple[str, str]]:
        """Kind and path of every finding."""
        return [(one["kind"], one["path"]) for each in self.data["audits"] for one in each["findings"]]

    @property
    def whats(self) -> str:
        return "\n".join(one["what"] for each in self.data["audits"] for one in each["findings"])

    @property
    def notes(self) -> str:
        return "\n".join(note for each in self.data["audits"] for note in each["notes"])


def audit(capsys: pytest.CaptureFixture[str], *words: object) -> Said:
    """Runs the verb in the current project."""
    capsys.readouterr()
    code = main(["audit", "--json", *map(str, words)])
    out = capsys.readouterr()
    return Said(code, json.loads(out.out), out.err)


def keep(root: Path, message: str = "keep it") -> str:
    """Commits all of a project."""
    if not (root / ".git").is_dir():
        git(root, "init", "-q", "-b", "main")
        (root / ".gitignore").write_text("work/\n")
    git(root, "add", "--all")
    git(root, "commit", "-q", "--allow-empty", "-m", message)
    return git(root, "rev-parse", "HEAD").strip()
