"""Dynamo's frontend: the door of a whole stack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from patchline.gates.stack.node import HERE, Node
from patchline.gates.stack.ports import Ports
from patchline.gates.stack.probe import decoded, get, healthy
from patchline.gates.stack.processes import Launch
from patchline.gates.stack.surroundings import scrubbed

COMPONENTS = {"prefill": "prefill", "decode": "backend"}
"""What Dynamo's vLLM workers call themselves, by their mode."""


class Door(NamedTuple):
    """What a frontend is given beside its place: `--frontend-route-extension` and the like."""

    flags: Sequence[str] = ()
    env: Mapping[str, str] = {}


PLAIN = Door()


class Frontend:
    """Makes the launch of one frontend; `port` is that of the last start."""

    def __init__(self, python: Path, ports: Ports, scratch: Path, node: Node = HERE) -> None:
        self.python, self.ports, self.scratch, self.node = python, ports, scratch, node
        self.port = 0

    def launch(self, dynamo: Mapping[str, str], model: str = "", door: Door = PLAIN) -> Launch:
        """The frontend on the services that `dynamo` leads to.

        It is ready when it answers, and where `model` is given, lists that.
        """
        host = self.node.host
        port = self.port = self.ports.on(host)
        command = [str(self.python), "-P", "-m", "dynamo.frontend", "--http-host", host, "--http-port", str(port)]
        env = scrubbed(self.scratch, {**door.env, **dynamo}, host)
        return self.node.launch(
            [*command, *door.flags], env, lambda: healthy(port, host=host) or _unlisted(port, host, model)
        )

    def unknown(self, mode: str) -> str:
        """What is missing until the frontend knows a worker for `mode`: without prefill, decode would do all alone."""
        known = decoded(get(self.port, "/health", self.node.host))
        instances = known.get("instances", []) if isinstance(known, dict) else []
        here = {one.get("component") for one in instances if one.get("endpoint") == "generate"}
        return "" if COMPONENTS[mode] in here else "the frontend does not know it"


def _unlisted(port: int, host: str, model: str) -> str:
    if not model or model in _ids(decoded(get(port, "/v1/models", host))):
        return ""
    return f"it does not list the model {model}"


def _ids(listed: Any) -> set[str]:
    models = listed.get("data", []) if isinstance(listed, dict) else []
    return {model["id"] for model in models}
