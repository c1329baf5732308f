"""The three forms of a stack: one engine alone, a plain pair, and the whole of Dynamo."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from patchline.gates.stack.bring_up import bring_up
from patchline.gates.stack.engines import Engine, Engines, Ground, check, model_name
from patchline.gates.stack.frontend import PLAIN, Door, Frontend
from patchline.gates.stack.handover import Pair, door
from patchline.gates.stack.node import HERE, Node
from patchline.gates.stack.ports import Ports
from patchline.gates.stack.processes import Launch, Processes, StackFailed
from patchline.gates.stack.services import Services

__all__ = ["Door", "Engine", "Ground", "Node", "Served", "StackFailed", "aggregated", "pair", "stack"]


_SERVICES = 60.0
"""Seconds until etcd and NATS must be ready; they take one."""


class Served(NamedTuple):
    """A stack that is ready."""

    url: str
    """An OpenAI-compatible server."""
    model: str
    """What requests call the model."""
    processes: Processes
    ready: float
    """Seconds from the first start until all were ready."""

    @property
    def logs(self) -> dict[str, Path]:
        """The log file of each process, by its name: `etcd`, `nats`, `frontend`, `prefill`, `decode`, `engine`."""
        return self.processes.logs

    def check(self) -> None:
        """Raises StackFailed where one of the processes is not there any more."""
        self.processes.check()


@contextmanager
def aggregated(ground: Ground, engine: Engine) -> Iterator[Served]:
    """One engine that does both; its process is `engine`.

    Raises:
        UsageError: model, interpreter or tree are not there, or logs cannot be written.
        StackFailed: the engine ended, or was not ready in time; while the block runs, in place of what the block
            raises.
    """
    ground, engine = check(ground, engine)
    with _world(ground) as (processes, ports):
        began = time.monotonic()
        engines = Engines(ground, ports, processes.scratch)
        bring_up(processes, {"engine": lambda: engines.server("engine", engine)}, ground.ready)
        host, port = engines.doors["engine"]
        url = f"http://{host}:{port}"
        yield Served(url, model_name(engine), processes, time.monotonic() - began)


@contextmanager
def pair(ground: Ground, prefill: Engine, decode: Engine) -> Iterator[Served]:
    """Two plain engines, `prefill` and `decode`; our own door hands the KV over.

    Raises:
        As `aggregated`.
    """
    (ground, prefill), (_, decode) = check(ground, prefill), check(ground, decode)
    with _world(ground) as (processes, ports):
        began = time.monotonic()
        engines = Engines(ground, ports, processes.scratch)
        makers = {
            "prefill": lambda: engines.server("prefill", prefill, "kv_producer"),
            "decode": lambda: engines.server("decode", decode, "kv_consumer"),
        }
        bring_up(processes, makers, ground.ready)
        both = Pair(engines.doors["prefill"], engines.doors["decode"], ground.answer, lambda: _said(processes))
        processes.on_fault(both.cut)
        with door(both) as url:
            yield Served(url, model_name(decode), processes, time.monotonic() - began)


@contextmanager
def stack(
    ground: Ground, prefill: Engine, decode: Engine, frontend: Door = PLAIN, node: Node = HERE
) -> Iterator[Served]:
    """Dynamo: `etcd`, `nats`, `frontend`, and the workers `prefill` and `decode`, in a namespace of their own.

    `node` is where etcd, NATS and the frontend run.

    Raises:
        As `aggregated`, and UsageError where etcd or NATS is not installed.
    """
    (ground, prefill), (_, decode) = check(ground, prefill), check(ground, decode)
    with _world(ground) as (processes, ports):
        began = time.monotonic()
        services = Services(ports, processes.scratch, node)
        bring_up(processes, {"etcd": services.etcd, "nats": services.nats}, min(ground.ready, _SERVICES))
        engines = Engines(ground, ports, processes.scratch)
        front = Frontend(ground.python, ports, processes.scratch, node)

        def worker(mode: str, engine: Engine) -> Launch:
            dynamo = services.dynamo_env(engine.node.host)
            return engines.worker(engine, mode, dynamo, lambda: front.unknown(mode))

        makers = {
            "frontend": lambda: front.launch(services.dynamo_env(node.host), model_name(decode), frontend),
            "prefill": lambda: worker("prefill", prefill),
            "decode": lambda: worker("decode", decode),
        }
        bring_up(processes, makers, ground.ready)
        name = model_name(decode)
        yield Served(f"http://{node.host}:{front.port}", name, processes, time.monotonic() - began)


@contextmanager
def _world(ground: Ground) -> Iterator[tuple[Processes, Ports]]:
    """Processes and ports of one stack; a process that ended explains what the block raises."""
    with Ports() as ports, Processes(ground.logs, within=ground.within) as processes:
        try:
            yield processes, ports
        except Exception as failed:
            if not isinstance(failed, StackFailed) and (fault := processes.fault()):
                raise fault from failed
            raise


def _said(processes: Processes) -> str:
    """How an engine ended; its connections break a moment before that is known."""
    fault = processes.fault(wait=1.0)
    return fault.what.partition("\n")[0] if fault else ""
