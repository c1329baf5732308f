"""A small project whose patch is really carried, proven and held: a nightly of it can be promoted."""

from __future__ import annotations

import json
import shutil
import site
import subprocess
import sys
from pathlib import Path
from typing import Any

import image_bases as bases
import msgspec
import pytest
import releases
from carrying import TRAILERS
from making import sdist
from repos import commit, patch_of, repository, write

from patchline.download import cached, digest
from patchline.image import append, base, locking
from patchline.image.source import Source
from patchline.lines import carries, smoke
from patchline.lines.build import Built
from patchline.lines.line import Line, line
from patchline.pins import ArchivePin, PinFile, Upstream, load
from patchline.pins import write as write_pins
from patchline.project import Project
from patchline.proofs import bench, env, evidence
from patchline.proofs.env import Environment
from patchline.proofs.held import hunks
from patchline.proofs.prove import prove
from patchline.series.carried import carried

ROOT = Path(__file__).parents[2]
SOURCE: dict[str, bytes] = {**bases.FILES, "vllm.egg-info/top_level.txt": b"vllm\n"}
TEST = """import pytest
from vllm.core import answer

@pytest.mark.holds(stock=r'it is 41')
def test_it():
    assert answer() == 42, f'it is {answer()}'
"""
LINE = """dynamo = "1.6.0"
series = ["vllm==0.31.0"]
pins = ["ai-dynamo-runtime==1.6.0"]
smoke = true

[base.made]
suite = "bookworm"
packages = []

[gates]
cpu = "overlay"
"""


def environment(home: Path) -> Environment:
    """A venv with the small vLLM installed."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    packages = next(home.glob("lib/python3*/site-packages"))
    (packages / "pytest.pth").write_text("\n".join(site.getsitepackages()))
    write(packages, {**bases.FILES, "vllm-0.31.0.dist-info/RECORD": bases.record(bases.FILES, "vllm-0.31.0.dist-info")})
    return Environment(home / "bin" / "python", packages)


def stand_in(monkeypatch: pytest.MonkeyPatch, found: Environment) -> None:
    """Lets proofs run in that environment."""
    monkeypatch.setattr(bench, "_requirements", lambda _: ("vllm==0.31.0", "pytest"))
    monkeypatch.setattr(env, "environment", lambda *_, graft: found)


def project(root: Path) -> Project:
    """The project, with the patch carried and its proofs recorded."""
    made = releases.project(root)
    _pin(made)
    folder = made.series_dir("vllm", "0.31.0")
    (folder / "0001-it.patch").unlink()
    scratch = repository(root.parent / "scratch", SOURCE)
    write(scratch, {"vllm/core.py": bases.NEW_CORE})
    commit(scratch, f"[Core] It\n\nWhy it is so.\n\n{TRAILERS.format('it').replace('demo', 'vllm')}")
    text = patch_of(scratch, "--zero-commit", "--no-signature", "--full-index", "--no-stat", "-k")
    front, _, diff = text.partition("\ndiff --git ")
    write(folder, {"0001-it.patch": f"{front}---\n\ndiff --git {diff}"})
    write(made.root, {"tests/patches/vllm/test_it.py": TEST, "builds/tiny/line.toml": LINE})
    shutil.copy(ROOT / "builds/fleets.toml", root / "builds/fleets.toml")
    found = carried("vllm", made)
    assert prove(found, record=True).stands
    assert hunks.hunks(found, record=True).stands
    return made


def _pin(made: Project) -> None:
    data = sdist(SOURCE, "vllm-0.31.0")
    name = "vllm-0.31.0.tar.gz"
    file = PinFile(name=name, sha256=digest(data), size=len(data))
    cached(name, file.sha256).parent.mkdir(parents=True, exist_ok=True)
    cached(name, file.sha256).write_bytes(data)
    pin = ArchivePin(kind="sdist", distribution="vllm", version="0.31.0", files=(file,))
    dynamo = load(made.upstreams)["dynamo"]
    write_pins(made.upstreams, {"vllm": Upstream(name="vllm", carried="0.31.0", pins=(pin,)), "dynamo": dynamo})


def tiny(made: Project) -> Line:
    return line(made, "tiny")


def built(made: Project, source: Source) -> Built:
    """The image of the line, as `lines.build` makes it on a base that is there."""
    one = tiny(made)
    has = carries.of(made, one, "base.example/tiny:1")
    found = base.find(source)
    lock = locking.make(found, has.overlays)
    return Built(one, append.cut(found, lock, has.overlays, has.who), has.overlays, has.carried, has.who, lock)


def passed(made: Built, *, image: str = "", overlay: str = "", fleet: str = "cpu") -> evidence.Evidence:
    """Keeps the record of a gate: the real one of the cpu fleet, of this overlay, and of that image."""
    found = json.loads((ROOT / "builds/evidence/vllm-0.31.0/gate-cpu.json").read_bytes())
    result = found["result"]
    fields = result if isinstance(result, dict) else None
    if image:
        _in_image(result, fields, image)
    covers = {**found["covers"], "overlay": overlay or made.overlays[0].digest}
    kept = evidence.new(f"gate-{fleet}", "vllm==0.31.0", covers, result, {})
    evidence.keep(kept, made.carried[0].project)
    return kept


def _in_image(result: Any, fields: dict[str, Any] | None, image: str) -> None:
    from patchline.gates.outcomes import BUILD
    from patchline.gates.records import Record

    one = msgspec.convert(result, Record)
    outcomes = []
    for outcome in one.outcomes:
        check = {**outcome.checks[0], "check": BUILD, "passed": True} if outcome.checks else None
        outcomes.append(outcome._replace(checks=[*outcome.checks, check]) if check else outcome)
    changed = msgspec.to_builtins(one._replace(image=image, outcomes=outcomes))
    if fields is None:
        result[:] = changed
    else:
        fields |= changed


def smoked(made: Built, *, image: str = "", checks: tuple[str, ...] = smoke.CHECKS) -> None:
    """Keeps the evidence that the image served."""
    said: list[dict[str, Any]] = [
        {"check": name, "passed": True, "faults": [], "unreachable": None, "numbers": {}} for name in checks
    ]
    logs = dict.fromkeys(("etcd", "nats", "frontend", "prefill", "decode"), bases.sha(b"log"))
    one = smoke.Record("a", "b", "20", "it", 1.0, said, logs)
    covers = {"image": image or made.image.digest, "overlay": made.who.overlay}
    kept = evidence.new(smoke.KIND, "tiny", covers, msgspec.to_builtins(one), {})
    evidence.keep(kept, made.carried[0].project)
