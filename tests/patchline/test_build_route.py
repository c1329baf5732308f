"""What our images say of themselves, and what the gemma-4 checks ask for, is one thing: the patched frontend tells it."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from patchline.errors import Unreachable
from patchline.gates.checks.endpoint import Endpoint
from patchline.gates.checks.gemma4 import build
from patchline.gates.stack.ports import Ports
from patchline.image import identity
from patchline.overlay import overlay
from patchline.project import Project
from patchline.proofs import bench, tree
from patchline.series.carried import carried

ROOT = Path(__file__).parents[2]
DIGEST = f"sha256:{'7' * 64}"
TELLS = [identity.Series("vllm==0.31.0", (identity.Patch("0001-x.patch", "0" * 40),), DIGEST)]

ALONE = ("--discovery-backend", "mem", "--event-plane", "zmq")
"""Without etcd and NATS."""


@pytest.fixture
def frontend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    """The frontend of the carried Dynamo with its overlay, and the build file of an image at `build.json`."""
    monkeypatch.delenv("PATCHLINE_CACHE")
    project = Project(tmp_path / "project")
    shutil.copytree(ROOT / "patches", project.root / "patches")
    project.upstreams.parent.mkdir()
    shutil.copy(ROOT / "builds" / "upstreams.toml", project.upstreams)
    series = carried("dynamo", project)
    made, found = overlay(series), bench.environment(series)
    assert any(f'"/{identity.FILE}"'.encode() in change.new.data for change in made.changes if change.new)
    file = tmp_path / "build.json"
    file.write_bytes(identity.build_file(identity.Identity("line", "1.6.0", tuple(TELLS)), DIGEST, ""))
    place = str(tree.overlaid(made, found.site_packages.resolve()))
    with Ports() as ports, (tmp_path / "log").open("wb") as log:
        port = ports.take()
        where = ["--http-host", "127.0.0.1", "--http-port", str(port)]
        process = subprocess.Popen(
            [str(found.python.absolute()), "-P", "-m", "dynamo.frontend", *where, *ALONE],
            env={"PYTHONPATH": place, "DYN_BUILD_FILE": str(file)},
            stderr=log,
        )
        try:
            yield Endpoint(f"http://127.0.0.1:{port}", "none")
        finally:
            process.kill()
            process.wait()


@pytest.mark.network
def test_the_frontend_tells_which_build_it_is(frontend: Endpoint) -> None:
    until = time.monotonic() + 60
    while True:
        try:
            found = build(frontend, DIGEST)
            break
        except Unreachable:
            assert time.monotonic() < until
            time.sleep(0.1)
    assert (found.faults, found.numbers) == ([], {"overlay": DIGEST})
    other = DIGEST.replace("7", "8")
    assert build(frontend, other).faults == [f"the build is of overlay {DIGEST}; {other} is expected"]
