"""The whole Dynamo stack in containers of one image: etcd, NATS, the frontend, and a prefill and a decode engine."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, cast

from docker import DockerClient

from patchline.gates.plays import Play
from patchline.gates.runners.runner import ANSWER, engines
from patchline.gates.stack.bring_up import bring_up
from patchline.gates.stack.engines import Engine, Engines, Ground, model_name
from patchline.gates.stack.frontend import Frontend
from patchline.gates.stack.node import HERE
from patchline.gates.stack.ports import HOST, Ports
from patchline.gates.stack.processes import Launch, Processes, StackFailed
from patchline.gates.stack.services import Services
from patchline.lines.docker.containers import SHARED, Containers

MODELS = "/models"
"""Where models are seen in the containers."""

_PYTHON = Path("python")  # the one on the image's PATH
_SCRATCH = Path("/tmp")
_SERVICES = 60.0  # seconds for etcd and NATS

_HOSTS = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH")
"""Variables that a process of this host would keep of ours; a container has its image's."""
_OURS = {
    "VLLM_CACHE_ROOT": f"{SHARED}/vllm",
    "TORCHINDUCTOR_CACHE_DIR": f"{SHARED}/torchinductor",
    "PYTHONPYCACHEPREFIX": f"{SHARED}/bytecode",  # else each container compiles all of vLLM, onto a disk
}


class Up(NamedTuple):
    """A stack that is up and ready."""

    url: str
    model: str
    ready: float
    """Seconds from the first start until all were ready."""
    logs: Mapping[str, Path]


class _Services(Services):
    """The programs are the image's: what this host has does not count."""

    def __init__(self, ports: Ports) -> None:
        self.ports, self.scratch = ports, _SCRATCH
        self.node, self.programs = HERE, {"etcd": "etcd", "nats-server": "nats-server"}
        self.etcd_port = self.nats_port = 0


@contextmanager
def serving(client: DockerClient, image: str, play: Play, model: Path, logs: Path) -> Iterator[Up]:
    """Brings up a play in containers of `image`, whose id in the daemon that is, and takes all of them down.

    Raises:
        StackFailed: a container ended, or was not ready in the fleet's time.
    """
    inside = f"{MODELS}/{model.name}"
    with (
        _readable(model) as copy,
        Ports() as ports,
        Containers(client, image, logs, {copy: inside}) as containers,
    ):
        began = time.monotonic()
        try:
            url = _bring_up(containers, ports, play._replace(model=inside), logs)
            yield Up(url, model.name, time.monotonic() - began, containers.logs)
        except Exception as failed:
            if not isinstance(failed, StackFailed):
                containers.check()  # a container that ended explains it better
            raise


@contextmanager
def _readable(model: Path) -> Iterator[Path]:
    """A copy of a tiny model that the image's user can read: some of its files are its maker's alone."""
    with tempfile.TemporaryDirectory(prefix="patchline-") as scratch:
        copy = Path(shutil.copytree(model, Path(scratch, model.name)))
        for path in (copy, *copy.iterdir()):
            path.chmod(0o755 if path.is_dir() else 0o644)
        yield copy


def _bring_up(containers: Containers, ports: Ports, play: Play, logs: Path) -> str:
    processes = cast("Processes", containers)  # `bring_up` asks for start, ended, check and logs
    limit = play.fleet.ready_seconds
    services = _Services(ports)
    makers = {"etcd": lambda: _inside(services.etcd()), "nats": lambda: _inside(services.nats())}
    bring_up(processes, makers, min(limit, _SERVICES))
    made = Engines(Ground(_PYTHON, None, logs, limit, ANSWER), ports, _SCRATCH)
    front = Frontend(_PYTHON, ports, _SCRATCH)
    prefill, decode = engines(play)
    dynamo = services.dynamo_env()

    def worker(mode: str, engine: Engine) -> Launch:
        return _inside(made.worker(engine, mode, dynamo, lambda: front.unknown(mode)))

    makers = {
        "frontend": lambda: _inside(front.launch(dynamo, model_name(decode))),
        "prefill": lambda: worker("prefill", prefill),
        "decode": lambda: worker("decode", decode),
    }
    bring_up(processes, makers, limit)
    return f"http://{HOST}:{front.port}"


def _inside(launch: Launch) -> Launch:
    """The launch of a process of this host, for a container: with its image's surroundings, and byte-code kept."""
    dropped = (*_HOSTS, "PYTHONDONTWRITEBYTECODE")
    env = {name: value for name, value in launch.env.items() if name not in dropped}
    return launch._replace(env=env | _OURS)
