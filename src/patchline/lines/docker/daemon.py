"""The docker daemon: one that runs, or one of our own for as long as it is needed."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import docker
from docker import DockerClient
from docker.errors import APIError, DockerException
from requests.exceptions import RequestException

from patchline import files
from patchline.errors import CommandFailed, Unreachable
from patchline.gates.stack.bring_up import bring_up
from patchline.gates.stack.processes import Launch, Processes, StackFailed
from patchline.progress import say
from patchline.project import cache_dir
from patchline.run import run

SOCKET = Path("/var/run/docker.sock")
"""Where a daemon listens that nobody told anything else."""
OURS = "patchline.daemon=own"
"""The label of a daemon of our own."""
LIMIT = 3600.0
"""Seconds that the daemon may be silent: it takes in images of gigabytes."""

_READY = 60.0  # seconds until a daemon of our own has to answer
_GRACE = 20.0  # seconds for it to end its containers
_NOTE = "running"  # in it, the folder of a daemon's sockets
_SOCKET = "docker.sock"
_TRIES = 3
_DOCKERD = "dockerd"
_HASTY = "timeout waiting for containerd to start"
_NEXT = "start one and name it in DOCKER_HOST, or run as root where Debian's docker.io is installed"


class NoDaemon(Unreachable):
    """There is no docker daemon, and none of our own can be had."""


@contextmanager
def daemon() -> Iterator[DockerClient]:
    """The daemon at DOCKER_HOST, or at its usual socket; where there is none, root gets one of its own for the block.

    Raises:
        NoDaemon: there is none, and none can be started.
        Unreachable: the one that is named does not answer.
        Refused: another run has a daemon of its own.
    """
    named = os.environ.get("DOCKER_HOST")
    if named or SOCKET.exists():
        with _connected(named or f"unix://{SOCKET}") as client:
            yield client
        return
    if os.geteuid() != 0 or not shutil.which(_DOCKERD):
        raise NoDaemon("no docker daemon is here: DOCKER_HOST is not set", where=str(SOCKET), next=_NEXT)
    say("no docker daemon runs here: one of our own is started for this command")
    with ExitStack() as stack:
        try:
            client = stack.enter_context(own(cache_dir().absolute() / "docker"))
        except Unreachable as failed:
            raise NoDaemon(
                f"no docker daemon can be started: {failed.what}", where=failed.where, next=_NEXT
            ) from failed
        yield client


@contextmanager
def own(home: Path) -> Iterator[DockerClient]:
    """A daemon with its images below `home`, which ends with the block and takes all of its containers along.

    It has no networks but the host's, and changes none of its rules.

    Raises:
        Unreachable: it does not start; its log is in the message.
        Refused: another run has one there.
    """
    home.mkdir(parents=True, exist_ok=True)
    with files.locked(home / "lock", f"docker's images in {home}"):
        _clear(home)
        run_root = Path(tempfile.mkdtemp(prefix="patchline-docker-"))  # sockets lie in it: their paths must be short
        files.write_whole(home / _NOTE, str(run_root).encode())
        try:
            with Processes(_logs(home), grace=_GRACE) as processes:
                _start(processes, lambda: _launch(home, run_root))
                with _connected(f"unix://{run_root / _SOCKET}") as client:
                    yield client
        finally:
            _clear(home)


def _start(processes: Processes, maker: Callable[[], Launch]) -> None:
    """Starts it; on a busy machine it gives its own containerd too little time, and is started again."""
    for left in reversed(range(_TRIES)):
        try:
            return bring_up(processes, {_DOCKERD: maker}, _READY)
        except StackFailed as failed:
            if not left or _HASTY not in failed.what:
                raise
            say("dockerd did not wait for containerd: it is started again")
    return None


def _logs(home: Path) -> Path:
    """A new folder for the log; the one before is forgotten."""
    logs = home / "logs"
    shutil.rmtree(logs, ignore_errors=True)
    return logs


def _launch(home: Path, run_root: Path) -> Launch:
    listens, settings = run_root / _SOCKET, run_root / "daemon.json"
    settings.write_text("{}")  # not the machine's own: it may contradict what is said here
    command = [_DOCKERD, "--host", f"unix://{listens}", "--config-file", str(settings)]
    command += ["--pidfile", str(run_root / "pid"), "--data-root", str(home / "data")]
    command += ["--exec-root", str(run_root / "exec"), "--shutdown-timeout", "5"]
    command += ["--containerd-namespace", "patchline", "--containerd-plugins-namespace", "patchline-plugins"]
    command += ["--label", OURS, "--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false"]
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return Launch(command, {**kept, "TMPDIR": str(run_root)}, lambda: _missing(listens))


def _missing(listens: Path) -> str:
    try:
        with _connected(f"unix://{listens}"):
            return ""
    except Unreachable as silent:
        return silent.what


def _clear(home: Path) -> None:
    """Takes away what a daemon leaves, also one that was killed: mounts, and the folder of its sockets."""
    note = home / _NOTE
    places = [home, *([Path(note.read_text())] if note.exists() else [])]
    below = tuple(f"{place}/" for place in places)
    mounted = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for mount in sorted((one for one in mounted if one.startswith(below)), reverse=True):
        try:
            run(["umount", "--lazy", mount], cwd=Path("/"))
        except CommandFailed as failed:
            say(f"{mount} is still mounted: {failed.what}")
    for folder in places[1:]:
        shutil.rmtree(folder, ignore_errors=True)
    note.unlink(missing_ok=True)


@contextmanager
def _connected(host: str) -> Iterator[DockerClient]:
    client = None
    try:
        _knock(host)
        client = docker.DockerClient(base_url=host, timeout=int(LIMIT), version="auto")
        client.ping()
    except (DockerException, OSError) as silent:
        if client:
            client.close()
        raise Unreachable(f"the docker daemon does not answer: {silent}", where=host, next=_NEXT) from silent
    try:
        yield client
    except APIError as refused:
        raise Unreachable(f"the docker daemon refuses: {refused.explanation or refused}", where=host) from refused
    except RequestException as lost:
        raise Unreachable(f"the docker daemon went away: {lost}", where=host, next="read its log") from lost
    finally:
        client.close()


def _knock(host: str) -> None:
    """Raises OSError where nobody listens at a socket; the SDK would leave its own open."""
    kind, _, path = host.partition("://")
    if kind == "unix":
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(path)


def followed(stream: Iterable[Mapping[str, Any]], what: str) -> Iterator[Mapping[str, Any]]:
    """Passes on what the daemon says while it works; its stream ends well also where the work has failed.

    It is read to its end: the connection would be left open.

    Raises:
        Unreachable: it says that something went wrong.
    """
    last: list[str] = []
    why = ""
    for one in stream:
        if said := str(one.get("stream") or one.get("status") or "").strip():
            last = [*last[-9:], said]
        why = why or str(one.get("error") or one.get("errorDetail") or "")
        if not why:
            yield one
    if why:
        raise Unreachable(f"docker could not {what}: {why}", where="\n".join(last))
