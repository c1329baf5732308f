"""Made bases: Debian, vLLM for a CPU, NIXL and Dynamo, as an OCI layout in the cache, made once for each recipe."""

from __future__ import annotations

import hashlib
import json
import platform
import tempfile
from collections.abc import Sequence
from importlib.metadata import distributions
from pathlib import Path

import msgspec

from patchline import files
from patchline.errors import UsageError
from patchline.image import layout, model
from patchline.image.model import Descriptor
from patchline.lines.line import Line, Made
from patchline.lines.rootfs import python as rootfs_python
from patchline.lines.rootfs.layer import Layer
from patchline.lines.rootfs.site import LEFT_OUT, VENV, site
from patchline.lines.rootfs.system import HOME, USER, system
from patchline.progress import say
from patchline.project import cache_dir
from patchline.proofs import env

RECIPE = 2
"""Part of every key: raise it when something else is made of the same words."""

PYTHON = f"/{VENV}/bin/python"
"""The interpreter that has the packages."""

_MACHINES = {"linux/amd64": "x86_64", "linux/arm64": "aarch64"}
_CREATED = "1980-01-01T00:00:00Z"
"""No clock is asked: the same packages give the same base."""
_CONFIG = {
    "User": USER,
    "Env": [
        f"PATH=/{VENV}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        f"VIRTUAL_ENV=/{VENV}",
        "LANG=C.UTF-8",
    ],
    "WorkingDir": f"/{HOME}",
}


def base(line: Line, requirements: Sequence[str]) -> str:
    """The base of a line whose base is made here, with the Python packages `requirements`, as `oci:FOLDER`.

    It is found again by its recipe: release, Debian packages, requirements. Which versions came of them is in
    `packages.json` beside the layout; a base stays what it is until it is removed. The same versions give the same
    bytes.

    Raises:
        UsageError: the line's base is not made here, or cannot be made on this machine.
        Unreachable: Debian's mirror or the package index did not answer.
        Refused: another run makes the same base.
        As `env.environment`.
    """
    made = line.base.made
    if made is None:
        raise UsageError(f"the base of {line.name} is not made here: it is in a registry", where=str(line.folder))
    home = cache_dir().absolute() / "bases" / key(made, requirements)
    name = f"oci:{home / 'layout'}"
    if (home / "layout" / "oci-layout").is_file():
        return name
    _refuse_platform(made)
    with files.locked(home.with_name(f"{home.name}.lock"), f"the base {home}"):
        if not home.exists():
            files.clear_parts(home)
            found = env.environment(*requirements)
            with files.folder_whole(home) as part:
                _make(made, found, part)
            say(f"the base of {line.name} is in {home}")
    return name


def key(made: Made, requirements: Sequence[str]) -> str:
    """Of a recipe; 16 hexadecimal digits."""
    parts = [RECIPE, made.suite, sorted(made.packages), made.platform, list(requirements), env.RECIPE, LEFT_OUT]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _refuse_platform(made: Made) -> None:
    here = platform.machine()
    if _MACHINES.get(made.platform) != here:
        raise UsageError(f"a base for {made.platform} cannot be made on this machine, which is {here}")


def _make(made: Made, found: env.Environment, part: Path) -> None:
    folder = part / "layout"
    folder.mkdir()
    first, debian = system(made, folder)
    with tempfile.TemporaryDirectory(prefix="patchline-", dir=part) as scratch:
        extra = rootfs_python.more(found, rootfs_python.version_in(debian), Path(scratch))
        roots = [found.site_packages, *([extra] if extra else [])]
        say("laying out the Python packages: this takes a minute")
        finish(folder, [first, *site(folder, roots)], made.platform)
        python = {one.name: one.version for one in distributions(path=[str(root) for root in roots])}
    kept = {name: version for name, version in python.items() if name not in LEFT_OUT}
    text = json.dumps({"debian": debian, "python": kept}, indent=1, sort_keys=True)
    (part / "packages.json").write_text(text)


def finish(folder: Path, layers: Sequence[Layer], platform: str) -> None:
    """Writes the configuration, the manifest and the index of a layout whose layers lie in `folder`."""
    os, _, architecture = platform.partition("/")
    history = [{"created": _CREATED, "created_by": one.by} for one in layers]
    config = model.made(
        {
            "created": _CREATED,
            "architecture": architecture,
            "os": os,
            "config": _CONFIG,
            "rootfs": {"type": "layers", "diff_ids": [one.diff_id for one in layers]},
            "history": history,
        }
    )
    described = msgspec.to_builtins(Descriptor(model.CONFIG, config.digest, len(config.data)))
    listed = [msgspec.to_builtins(one.descriptor) for one in layers]
    manifest = model.made({"schemaVersion": 2, "mediaType": model.MANIFEST, "config": described, "layers": listed})
    for document in (config, manifest):
        layout.blob_path(folder, document.digest).write_bytes(document.data)
    layout.finish(folder, Descriptor(model.MANIFEST, manifest.digest, len(manifest.data)))
