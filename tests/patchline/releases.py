"""A small project with one line, and images cut for it: what a release is made from."""

from __future__ import annotations

import hashlib
from pathlib import Path

import image_bases as bases
from image_bases import ADDED, CORE, GONE, NEW_CORE

from patchline.image import append, base, identity, locking
from patchline.image.identity import Identity
from patchline.image.layout import Layout
from patchline.image.registry.patience import Patience
from patchline.image.source import Source
from patchline.lines.build import Built
from patchline.lines.line import Base, Line, Made
from patchline.overlay import Overlay
from patchline.pins import ArchivePin, PinFile, Upstream
from patchline.pins import write as write_pins
from patchline.project import Project
from patchline.series.carried import carried

QUICK = Patience(tries=3, first=0.01, longest=0.02)
DAY = "20261016"
PATCH = b"From: A <a@example.org>\nSubject: [PATCH] It\n\nWhy \xc3\xa9.\n---\ndiff --git a/x b/x\n"
SDIST = hashlib.sha256(b"sdist").hexdigest()
WHEELS = {f"ai_dynamo_runtime-1.6.0-{one}.whl": hashlib.sha256(one.encode()).hexdigest() for one in ("x86", "arm")}


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def project(root: Path) -> Project:
    """Pins of vllm and of an unchanged wheel, one patch."""
    made = Project(root)
    vllm = ArchivePin(
        kind="sdist",
        distribution="vllm",
        version="0.31.0",
        files=(PinFile(name="vllm-0.31.0.tar.gz", sha256=SDIST, size=5),),
    )
    wheels = tuple(PinFile(name=name, sha256=sha256, size=3) for name, sha256 in WHEELS.items())
    runtime = ArchivePin(kind="wheel", distribution="ai-dynamo-runtime", version="1.6.0", files=wheels)
    pins = {
        "vllm": Upstream(name="vllm", carried="0.31.0", pins=(vllm,)),
        "dynamo": Upstream(name="dynamo", carried="1.6.0", pins=(runtime,)),
    }
    write_pins(made.upstreams, pins)
    folder = made.series_dir("vllm", "0.31.0")
    folder.mkdir(parents=True)
    (folder / "series").write_text("0001-it.patch\n")
    (folder / "0001-it.patch").write_bytes(PATCH)
    return made


def line(made: Project, name: str = "tiny") -> Line:
    return Line(
        name=name,
        folder=made.root / "builds" / name,
        dynamo="1.6.0",
        series=("vllm==0.31.0",),
        pins=("ai-dynamo-runtime==1.6.0",),
        base=Base(made=Made(suite="bookworm", packages=())),
        gates={},
        smoke=True,
    )


def overlay(core: bytes = NEW_CORE) -> Overlay:
    return bases.overlay({"vllm/core.py": (CORE, core), "vllm/gone.py": (GONE, None), "vllm/new.py": (None, ADDED)})


def who(made: Overlay) -> Identity:
    series = identity.series(made, [("0001-it.patch", "d" * 40)])
    pins = ("ai-dynamo-runtime==1.6.0", "vllm==0.31.0")
    return Identity("tiny", "1.6.0", (series,), "base.example/tiny:1", pins, "2026-10-16T01:02:03Z")


def layout(at: Path) -> Layout:
    """The base, unless it is there already."""
    if not at.exists():
        bases.layout(bases.image([bases.pack(one, "gzip") for one in bases.plain()]), at)
    return Layout(at)


def built(made: Project, source: Source, core: bytes = NEW_CORE) -> Built:
    """The image of `core` on a base; other bytes make another image."""
    found, carries = base.find(source), overlay(core)
    lock = locking.make(found, [carries])
    image = append.cut(found, lock, [carries], who(carries))
    return Built(line(made), image, (carries,), (carried("vllm", made),), who(carries), lock)
