"""A port of this host that leads to the door of a play."""

from __future__ import annotations

import re
from collections.abc import Mapping

from patchline.gates.plays import Play
from patchline.gates.runners.kubernetes import pods
from patchline.gates.runners.kubernetes.pods import PORTS
from patchline.gates.runners.kubernetes.watch import Watch
from patchline.gates.stack import logs
from patchline.gates.stack.frontend import COMPONENTS
from patchline.gates.stack.ports import HOST
from patchline.gates.stack.probe import decoded, get
from patchline.gates.stack.processes import Launch, Processes, StackFailed

NAME = "port-forward"

_SAID = re.compile(rf"Forwarding from {re.escape(HOST)}:([0-9]+) ->")


def forward(watch: Watch, play: Play, model: str) -> int:
    """A free port, once the door answers there and knows the model and all workers.

    Raises:
        StackFailed: that was not so in the fleet's time, or something ended.
    """
    door = pods.door(play)
    command = watch.cluster.command("port-forward", "--address", HOST, f"service/{door}", f":{PORTS[door]}")
    watch.processes.start(NAME, Launch(command, watch.cluster.env, str))
    workers = COMPONENTS if play.form == "dynamo" else {}

    def missing() -> dict[str, str]:
        refuse_ended(watch.processes)
        port = _port(watch.processes)
        lacks = _unknown(port, model, workers) if port else "its port is not forwarded yet"
        if lacks:
            watch.look()
        return {door: lacks} if lacks else {}

    watch.wait(missing, play.fleet.ready_seconds)
    return _port(watch.processes)


def refuse_ended(processes: Processes) -> None:
    """Raises StackFailed where the port leads nowhere any more."""
    if processes.ended(NAME):
        log = processes.logs[NAME]
        raise StackFailed(f"kubectl port-forward ended\n{logs.shown(log)}", where=str(log), next=f"less {log}")


def _port(processes: Processes) -> int:
    """The port that `kubectl` chose; 0 where it has not said it yet."""
    found = _SAID.search(processes.logs[NAME].read_text(errors="replace"))
    return int(found[1]) if found else 0


def _unknown(port: int, model: str, workers: Mapping[str, str]) -> str:
    """What the door does not know yet; without prefill, decode would do all alone."""
    listed, health = decoded(get(port, "/v1/models")), decoded(get(port, "/health")) if workers else None
    models = [one.get("id") for one in listed.get("data", [])] if isinstance(listed, dict) else []
    if model not in models:
        return f"it does not list the model {model}"
    known = health.get("instances", []) if isinstance(health, dict) else []
    here = {one.get("component") for one in known if one.get("endpoint") == "generate"}
    return ", ".join(f"it does not know {part}" for part, component in workers.items() if component not in here)
