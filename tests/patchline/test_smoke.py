"""The smoke test's verdict, its evidence, and what becomes of containers that fail. The whole of it is `nox -s smoke`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import docker_daemons
import image_bases as bases
import pytest
from image_bases import member

from patchline.errors import SourceMismatch, Unreachable, UsageError
from patchline.gates.fleet import Fleet, Layout, Model
from patchline.gates.outcomes import BUILD
from patchline.gates.plays import Play
from patchline.gates.stack.processes import Launch, StackFailed
from patchline.image import base
from patchline.image.layout import Layout as OciLayout
from patchline.lines import smoke, smoke_stack
from patchline.lines.docker import images as docker_images
from patchline.lines.docker.containers import LABEL
from patchline.lines.line import Base, Line, Made
from patchline.lines.smoke import Record
from patchline.project import Project
from patchline.proofs import evidence

NAMES = ("etcd", "nats", "frontend", "prefill", "decode")


def check(name: str, *faults: str, examined: int = 9) -> dict[str, Any]:
    passed = examined > 0 and not faults
    return {
        "check": name,
        "passed": passed,
        "examined": examined,
        "faults": list(faults),
        "unreachable": None,
        "numbers": {},
    }


def record(*checks: dict[str, Any], logs: tuple[str, ...] = NAMES) -> Record:
    found = list(checks) or [check(name) for name in smoke.CHECKS]
    return Record(
        "2026-11-30T02:00:00Z", "2026-11-30T02:05:00Z", "20.10", "a-play", 90.0, found, dict.fromkeys(logs, "sha256:0")
    )


def test_a_record_with_every_check_passed_stands() -> None:
    assert smoke.verdict(record()) == []


@pytest.mark.parametrize("name", smoke.CHECKS)
def test_each_check_has_to_have_run_and_passed(name: str) -> None:
    others = [check(one) for one in smoke.CHECKS if one != name]
    assert smoke.verdict(record(*others)) == [f"{name} did not run"]
    assert smoke.verdict(record(*others, check(name, "wrong"))) == [f"{name}: wrong"]
    assert smoke.verdict(record(*others, check(name, examined=0))) == [f"{name} did not pass"]
    silent = check(name, examined=0) | {"unreachable": {"what": "no answer", "where": "", "next": ""}}
    assert smoke.verdict(record(*others, silent)) == [f"{name}: no answer"]


def test_every_container_has_to_have_a_log() -> None:
    assert smoke.verdict(record(logs=NAMES[1:])) == ["there is no log of etcd"]


class Stand:
    """A line that was built, and runs that are told what comes of them: containers take minutes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, root: Path, line: Line) -> None:
        self.project, self.line, self.runs = Project(root), line, 0
        self.image, self.overlay, self.comes = "sha256:" + "1" * 64, "sha256:" + "2" * 64, record()
        self.model = root / "model"
        self.model.mkdir(parents=True)
        (self.model / "config.json").write_text("{}")
        monkeypatch.setattr(smoke, "building", self.building)
        monkeypatch.setattr(smoke, "_play", lambda *_: (play(), self.model))
        monkeypatch.setattr(smoke, "_run", self.run)

    @contextmanager
    def building(self, project: Project, name: str) -> Iterator[Any]:
        assert (project, name) == (self.project, self.line.name)
        image, who = SimpleNamespace(digest=self.image), SimpleNamespace(overlay=self.overlay)
        yield SimpleNamespace(line=self.line, image=image, who=who)

    def run(self, *_: object) -> Record:
        self.runs += 1
        return self.comes

    def smoke(self, **asked: bool) -> smoke.Done:
        return smoke.smoke(self.project, self.line.name, **asked)


def line(name: str = "small", *, made: bool = True, wanted: bool = True) -> Line:
    return Line(
        name, Path("builds") / name, "1.6.0", (), (), Base(None, Made("bookworm", ()) if made else None), {}, wanted
    )


def play() -> Play:
    layout = Layout(model="tiny", prefill=2, decode=4, stock="serves", overlay="serves", through=("dynamo",))
    fleet = Fleet(
        name="cpu", gpu="", nodes=1, gpus_per_node=0, runner="local", after="", ready_seconds=20.0, parity_bound=1e-4,
        kv_buffer_device="cpu", flags=("--dtype", "float32"), models=(Model(name="tiny", tokens=450),), layouts=(layout,),
    )  # fmt: skip
    return Play(fleet, layout, "overlay", "dynamo", "tiny")


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Stand:
    return Stand(monkeypatch, tmp_path / "project", line())


def test_the_same_image_is_judged_again(stand: Stand) -> None:
    assert stand.smoke().passed
    again = stand.smoke()
    assert again.passed
    assert again.verified
    assert stand.runs == 1
    assert stand.smoke(fresh=True).passed
    assert stand.runs == 2


def test_another_image_runs_again(stand: Stand) -> None:
    stand.smoke()
    stand.image = "sha256:" + "3" * 64
    assert not stand.smoke().verified
    assert stand.runs == 2


def test_another_overlay_or_model_runs_again(stand: Stand) -> None:
    stand.smoke()
    stand.overlay = "sha256:" + "4" * 64
    stand.smoke()
    (stand.model / "config.json").write_text('{"other": 1}')
    stand.smoke()
    assert stand.runs == 3


def test_what_has_failed_is_not_kept(stand: Stand) -> None:
    stand.comes = record(check("recall, chat", "prompt 3: wrong"), check(BUILD), check("logs"))
    assert stand.smoke().faults == ["recall, chat: prompt 3: wrong"]
    assert not stand.smoke(record=True).passed
    assert stand.runs == 2
    assert not evidence.path_of(stand.project, "smoke", "small").exists()


def test_the_project_keeps_evidence_of_the_line(stand: Stand) -> None:
    stand.smoke()
    stand.smoke(record=True)
    path = stand.project.root / "builds" / "evidence" / "small" / "smoke.json"
    kept = evidence.read(path)
    assert kept
    assert (kept.kind, kept.of, kept.covers["image"], kept.covers["overlay"]) == (
        "smoke",
        "small",
        stand.image,
        stand.overlay,
    )
    assert stand.runs == 1
    path.write_text(path.read_text().replace("a-play", "b-play"))
    with pytest.raises(SourceMismatch, match="edited"):
        stand.smoke()


@pytest.mark.parametrize("wrong", [line(wanted=False), line(made=False)])
def test_a_line_that_is_not_tried_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wrong: Line) -> None:
    stand = Stand(monkeypatch, tmp_path / "project", wrong)
    with pytest.raises(UsageError, match="the line small has no smoke test"):
        stand.smoke()


def test_a_daemon_elsewhere_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for elsewhere in ("tcp://192.0.2.1:2376", "ssh://somebody@host.example"):
        monkeypatch.setenv("DOCKER_HOST", elsewhere)
        with pytest.raises(UsageError, match="of this machine"):
            smoke._refuse_remote()
    for here in ("unix:///run/docker.sock", "tcp://127.0.0.1:2375"):
        monkeypatch.setenv("DOCKER_HOST", here)
        smoke._refuse_remote()


def test_without_a_daemon_nothing_is_tried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    built: Any = SimpleNamespace(image=SimpleNamespace(digest="sha256:1"), who=SimpleNamespace(overlay=""))
    with pytest.raises(Unreachable, match="docker daemon does not answer") as none:
        smoke._run(built, play(), tmp_path, tmp_path / "logs")
    assert none.value.exit == 7
    assert "DOCKER_HOST" in none.value.next


def test_containers_see_their_images_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/of-the-host")
    said = {
        "PATH": "/of/the/host",
        "HOME": "/home/of-the-host",
        "LANG": "xx",
        "UCX_NET_DEVICES": "lo",
        "HF_HUB_OFFLINE": "1",
    }
    inside = smoke_stack._inside(
        Launch(["python"], {**said, "PYTHONDONTWRITEBYTECODE": "1", "VLLM_CACHE_ROOT": "/x"}, str)
    )
    assert set(inside.env) == {
        "UCX_NET_DEVICES", "HF_HUB_OFFLINE", "VLLM_CACHE_ROOT", "TORCHINDUCTOR_CACHE_DIR", "PYTHONPYCACHEPREFIX"
    }  # fmt: skip
    assert inside.env["VLLM_CACHE_ROOT"].startswith("/run/patchline/")


def test_a_stack_that_fails_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    etcd = [member("bin/etcd", b'#!/bin/sh\ncat "$MODEL/config.json"\necho no disk >&2\nexit 3\n', mode=0o755)]
    nats = [member("bin/nats-server", b"#!/bin/sh\nsleep 1000\n", mode=0o755)]
    small = docker_daemons.small()
    image = bases.image(
        [*small.layers, bases.pack(etcd, "gzip"), bases.pack(nats, "gzip")], more={"config": {"Env": ["PATH=/bin"]}}
    )
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text("{}")
    (tmp_path / "tiny" / "config.json").chmod(0o600)
    with docker_daemons.daemon(tmp_path / "docker") as client:
        id = docker_images.load_base(client, base.find(OciLayout(bases.layout(image, tmp_path / "base"))))
        with (
            pytest.raises(StackFailed, match=r"etcd ended with status 3\n[\s\S]*no disk"),
            smoke_stack.serving(client, id, play(), tmp_path / "tiny", tmp_path / "logs"),
        ):
            pass
        assert client.containers.list(all=True) == []
        assert client.volumes.list(filters={"label": LABEL}) == []
    assert (tmp_path / "logs" / "etcd" / "etcd.log").read_text().endswith("no disk\n")
