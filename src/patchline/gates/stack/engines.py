"""The engines of a stack: vLLM's own server, or Dynamo's vLLM worker."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from patchline.errors import UsageError
from patchline.gates.stack.node import HERE, Node
from patchline.gates.stack.ports import Address, Ports
from patchline.gates.stack.probe import healthy
from patchline.gates.stack.processes import Launch
from patchline.gates.stack.surroundings import scrubbed
from patchline.run import run


class Engine(NamedTuple):
    """One engine, by its fleet's settings."""

    model: str
    """A folder with `config.json`, or a name that the engine knows."""
    tp: int
    flags: Sequence[str] = ()
    env: Mapping[str, str] = {}
    buffer: str = "cpu"
    """Where KV lies while NIXL moves it: `kv_buffer_device`, `cpu` or `cuda`."""
    node: Node = HERE


class Ground(NamedTuple):
    """What the engines of a stack run on, and where what they say is kept."""

    python: Path
    """The interpreter of an environment with vLLM, and Dynamo where it is asked for."""
    tree: Path | None
    """A folder with the overlay's packages, or None for stock; only the engines see it."""
    logs: Path
    """A folder in which every process gets one of its own."""
    ready: float = 300.0
    """Seconds until everything must be ready."""
    answer: float = 120.0
    """Seconds for one answer of the pair's own door."""
    within: Path | None = None
    """The folder in which the stack's scratch folder is made; None for the system's own."""


def model_name(engine: Engine) -> str:
    """What requests call the model."""
    return Path(engine.model).name


def check(ground: Ground, engine: Engine) -> tuple[Ground, Engine]:
    """Sees, in a tenth of a second, what would cost minutes to be told by an engine; gives both with absolute paths.

    Raises:
        UsageError: the model's folder holds no model, there is no such interpreter, or vLLM would come from another
            tree than was asked for.
    """
    tree = ground.tree and ground.tree.absolute()
    ground = ground._replace(python=ground.python.absolute(), tree=tree, logs=ground.logs.absolute())
    folder = Path(engine.model)
    if folder.is_absolute() or folder.exists():
        engine = engine._replace(model=str(folder.absolute()))
        if not (folder / "config.json").is_file():
            raise UsageError("there is no model: its folder has no config.json", where=str(folder))
    if not ground.python.exists():
        raise UsageError("there is no such Python", where=str(ground.python))
    if not (found := origin(ground)).is_relative_to(tree or "/"):
        raise UsageError(f"vLLM would not come from the overlay, but from {found}", where=str(tree))
    return ground, engine


def origin(ground: Ground) -> Path:
    """The file of the package that engines on this ground import."""
    ask = "import importlib.util as u; s = u.find_spec('vllm'); print(s.origin if s else '')"
    env = scrubbed(Path("/"), _path(ground))
    found = run([ground.python, "-P", "-c", ask], cwd=Path("/"), env=env).stdout.decode().strip()
    if not found:
        raise UsageError("there is no vLLM in this environment", where=str(ground.python))
    return Path(found)


def _path(ground: Ground) -> dict[str, str]:
    return {"PYTHONPATH": str(ground.tree)} if ground.tree else {}


class Engines:
    """Makes the launches of a stack's engines; `doors` are the addresses of the last starts, by name."""

    def __init__(self, ground: Ground, ports: Ports, scratch: Path) -> None:
        self.ground, self.ports, self.scratch = ground, ports, scratch
        self.doors: dict[str, Address] = {}

    def server(self, name: str, engine: Engine, role: str = "") -> Launch:
        """`vllm serve`; `role` is its KV role (`kv_producer`, `kv_consumer`), empty for one that works alone."""
        host = engine.node.host
        port = self.ports.on(host)
        self.doors[name] = host, port
        command = [str(self.ground.python), "-P", "-m", "vllm.entrypoints.cli.main", "serve", engine.model]
        command += ["--host", host, "--port", str(port), *self._common(engine, role)]
        return engine.node.launch(command, self._env(engine, {}), lambda: healthy(port, host=host))

    def worker(self, engine: Engine, mode: str, dynamo: Mapping[str, str], missing: Callable[[], str]) -> Launch:
        """Dynamo's vLLM worker; `mode` is `prefill` or `decode`, `dynamo` leads to the stack's services."""
        command = [str(self.ground.python), "-P", "-m", "dynamo.vllm", "--model", engine.model]
        command += ["--disaggregation-mode", mode, *self._common(engine, "kv_both")]
        return engine.node.launch(command, self._env(engine, dynamo), missing)

    def _common(self, engine: Engine, role: str) -> list[str]:
        words = ["--served-model-name", model_name(engine), "--tensor-parallel-size", str(engine.tp), *engine.flags]
        if role:
            kv = {"kv_connector": "NixlConnector", "kv_role": role, "kv_buffer_device": engine.buffer}
            words += ["--kv-transfer-config", json.dumps(kv)]
        return words

    def _env(self, engine: Engine, more: Mapping[str, str]) -> dict[str, str]:
        host = engine.node.host
        nixl = {"VLLM_NIXL_SIDE_CHANNEL_HOST": host, "VLLM_NIXL_SIDE_CHANNEL_PORT": str(self.ports.on(host))}
        return scrubbed(self.scratch, {**engine.env, **nixl, **more, **_path(self.ground)}, host)
