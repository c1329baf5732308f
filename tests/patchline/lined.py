"""A small project with a line: the demo's series, on a base that a registry has."""

from __future__ import annotations

from pathlib import Path

import image_bases as bases
from carrying import SOURCE, core, project, write
from registries import Registry, skopeo

from patchline.pins import ArchivePin, PinFile, Upstream, load
from patchline.pins import write as write_pins
from patchline.project import Project

REGISTRY = "PATCHLINE_DEMO_REGISTRY"
NAME = "demo-line"
BASE = "vendor/runtime:1.6.0"
LINE = f"""\
dynamo = "1.6.0"
series = ["demo==1.0"]
pins = ["ai-dynamo==1.6.0"]

[base.named]
name = "{BASE}"
registry = "{REGISTRY}"

[gates]
cpu = "overlay"
"""
FILES = {name: data for name, data in SOURCE.items() if name.startswith("demo/")}
DYNAMO = {"dynamo/frontend/__init__.py": b""}


def layers(files: dict[str, bytes] = FILES, dynamo: str = "1.6.0") -> list[bases.Packed]:
    """A base with the demo and with Dynamo."""
    parts = [
        bases.root(),
        bases.package(files, "demo-1.0.dist-info"),
        bases.package(DYNAMO, f"ai_dynamo-{dynamo}.dist-info"),
    ]
    return [bases.pack(one, "gzip") for one in parts]


def lined(root: Path, text: str = LINE) -> Project:
    """The project; its pins name a wheel of Dynamo that nobody fetches."""
    made = project(root, ("[Demo] Three heads", core(l3="three = 3")), ("[Demo] Four heads", core(l3="four = 4")))
    wheel = PinFile(name="ai_dynamo-1.6.0-py3-none-any.whl", sha256="0" * 64, size=1)
    pin = ArchivePin(kind="wheel", distribution="ai-dynamo", version="1.6.0", files=(wheel,))
    dynamo = Upstream(name="dynamo", carried="1.6.0", pins=(pin,))
    write_pins(made.upstreams, {**load(made.upstreams), "dynamo": dynamo})
    write(root, {f"builds/{NAME}/line.toml": text})
    return made


def put(where: Registry, at: Path, made: bases.Made, tag: str = BASE) -> bases.Made:
    """Puts a base into a registry under its tag."""
    folder = bases.layout(made, at)
    words = ("copy", "--preserve-digests", "--dest-tls-verify=false")
    skopeo(*words, f"oci:{folder}", f"docker://{where.host}/{tag}", cwd=at)
    return made
