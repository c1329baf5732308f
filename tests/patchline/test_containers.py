"""Containers on a real daemon: watched like processes, and gone with whoever started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import docker_daemons
import image_bases as bases
import pytest
from docker import DockerClient

from patchline.errors import Refused, Unreachable
from patchline.gates.stack.processes import Launch, StackFailed
from patchline.image import base
from patchline.image.layout import Layout
from patchline.lines.docker import daemon as docker_daemon
from patchline.lines.docker import images as docker_images
from patchline.lines.docker.containers import LABEL, SHARED, Containers


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("docker")


@pytest.fixture(scope="module")
def client(home: Path) -> Iterator[DockerClient]:
    with docker_daemons.daemon(home) as running:
        yield running


@pytest.fixture(scope="module")
def image(client: DockerClient, tmp_path_factory: pytest.TempPathFactory) -> str:
    at = bases.layout(docker_daemons.small(), tmp_path_factory.mktemp("small") / "base")
    return docker_images.load_base(client, base.find(Layout(at)))


def launch(script: str, **env: str) -> Launch:
    return Launch(["sh", "-c", script], env, lambda: "")


def ours(client: DockerClient, *states: str) -> list[str]:
    found = client.api.containers(all=True, filters={"label": LABEL})
    return [one["Id"] for one in found if not states or one["State"] in states]


def until(what: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.05)


def test_what_a_container_says_and_how_it_ends(client: DockerClient, image: str, tmp_path: Path) -> None:
    with Containers(client, image, tmp_path, {}) as containers:
        containers.start("one", launch("echo $WORD; echo aside >&2; id -u; exit 3", WORD="said"))
        until(lambda: containers.ended("one"))
        with pytest.raises(StackFailed, match=r"one ended with status 3\n") as failed:
            containers.check()
    assert containers.logs["one"].read_text().split() == ["said", "aside", "1000"]
    assert "  | said" in str(failed.value)
    assert f"less {containers.logs['one']}" in str(failed.value)


def test_nothing_is_left_after_the_block(client: DockerClient, image: str, tmp_path: Path) -> None:
    with Containers(client, image, tmp_path, {}) as containers:
        for name in ("one", "two"):
            containers.start(name, launch("echo up; sleep 1000 & sleep 1000"))
        until(lambda: all(log.read_text() == "up\n" for log in containers.logs.values()))
        assert len(ours(client, "running")) == 2
        containers.check()
    assert ours(client) == []
    containers.check()


def test_nothing_is_left_after_an_error(client: DockerClient, image: str, tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), Containers(client, image, tmp_path, {}) as containers:
        containers.start("one", launch("sleep 1000"))
        raise ZeroDivisionError
    assert ours(client) == []


def test_one_that_has_ended_is_started_again(client: DockerClient, image: str, tmp_path: Path) -> None:
    with Containers(client, image, tmp_path, {}) as containers:
        containers.start("one", launch("echo first"))
        until(lambda: containers.ended("one"))
        containers.start("one", launch("echo second; sleep 1000"))
        until(lambda: containers.logs["one"].read_text() == "first\nsecond\n")
        containers.check()
        assert len(ours(client)) == 1


def test_folders_are_seen_and_cannot_be_written(client: DockerClient, image: str, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "word").write_text("weights\n")
    with Containers(client, image, tmp_path, {tmp_path / "model": "/models/tiny"}) as containers:
        containers.start("one", launch("cat /models/tiny/word; echo x > /models/tiny/word"))
        until(lambda: containers.ended("one"))
    assert containers.logs["one"].read_text().startswith("weights\n")
    assert "Read-only" in containers.logs["one"].read_text()


def test_what_one_has_made_the_others_see(client: DockerClient, image: str, tmp_path: Path) -> None:
    with Containers(client, image, tmp_path, {}) as containers:
        containers.start("one", launch(f"echo word > {SHARED}/it; sleep 1000"))
        containers.start("two", launch(f"until cat {SHARED}/it; do sleep 0.05; done 2>/dev/null; sleep 1000"))
        until(lambda: containers.logs["two"].read_text() == "word\n")
    assert not client.volumes.list(filters={"label": LABEL})


def test_an_image_that_is_not_there(client: DockerClient, tmp_path: Path) -> None:
    with Containers(client, "sha256:" + "0" * 64, tmp_path, {}) as containers, pytest.raises(StackFailed, match="one"):
        containers.start("one", launch("true"))


ALONE = """\
import sys, time
from pathlib import Path
import docker
from patchline.gates.stack.processes import Launch
from patchline.lines.docker.containers import Containers
client = docker.DockerClient(base_url=sys.argv[1])
with Containers(client, sys.argv[2], Path(sys.argv[3]), {}) as containers:
    containers.start("one", Launch(["sh", "-c", "echo up; sleep 1000 & sleep 1000"], {}, lambda: ""))
    time.sleep(1000)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_containers_end_with_a_run_that_is_killed(
    client: DockerClient, image: str, tmp_path: Path, number: signal.Signals
) -> None:
    api: Any = client.api
    socket = f"unix://{api._custom_adapter.socket_path}"
    words = [sys.executable, "-c", ALONE, socket, image, str(tmp_path)]
    with subprocess.Popen(words) as running:
        log = tmp_path / "one" / "one.log"
        until(lambda: log.exists() and log.read_text() == "up\n")
        running.send_signal(number)
        running.wait()
    until(lambda: not ours(client, "running"))
    with Containers(client, image, tmp_path / "next", {}):
        assert ours(client) == []
        assert len(client.volumes.list(filters={"label": LABEL})) == 1


def test_a_daemon_takes_everything_along(tmp_path: Path, home: Path) -> None:
    with docker_daemons.daemon(tmp_path / "docker") as client:
        at = bases.layout(docker_daemons.small(), tmp_path / "base")
        id = docker_images.load_base(client, base.find(Layout(at)))
        made = client.containers.run(id, ["sleep", "1234.5"], network_mode="host", detach=True, stop_signal="SIGKILL")
        assert made.id
        assert running("1234.5") >= 1
    assert running("1234.5") == 0
    assert running(str(tmp_path)) == 0
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()


def running(word: str) -> int:
    """Processes that have `word` in their command line."""
    count = 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            count += word.encode() in path.read_bytes()
        except OSError:  # it has just ended
            continue
    return count


def test_two_daemons_of_one_folder(client: DockerClient, home: Path) -> None:
    assert client.ping()
    with pytest.raises(Refused, match="docker's images"), docker_daemon.own(home):
        pass


def test_a_daemon_that_does_not_start_is_told(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("no folder")
    with (
        pytest.raises(Unreachable, match=r"dockerd ended with status 1[\s\S]*points to a file"),
        docker_daemon.own(tmp_path),
    ):
        pass


def test_a_daemon_that_is_named_has_to_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(Unreachable, match="does not answer") as silent, docker_daemon.daemon():
        pass
    assert "none.sock" in silent.value.where
    assert silent.value.next


def test_without_root_nothing_is_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setattr(docker_daemon, "SOCKET", tmp_path / "none.sock")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(Unreachable, match="no docker daemon is here") as none, docker_daemon.daemon():
        pass
    assert "DOCKER_HOST" in none.value.next
