"""What every runner does: says which GPUs there are, and brings up one play at a time. It schedules nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, Protocol

from patchline.errors import Refused
from patchline.gates.gpus import Gpu
from patchline.gates.plays import Play
from patchline.gates.stack.engines import Engine

ANSWER = 240.0
"""Seconds for one answer of a pair: its first one compiles."""


class NotRun(Refused):
    """A gate did not run: what it needs is not here. No record says anything else."""


class Kit(NamedTuple):
    """What the engines of both sides run on, where they are processes."""

    python: Path
    """The interpreter of an environment with vLLM and Dynamo."""
    tree: Path
    """The folder with the overlay's packages, for the side `overlay`."""


class Stand(Protocol):
    """A play that is up and ready."""

    @property
    def url(self) -> str:
        """An OpenAI-compatible server."""

    @property
    def model(self) -> str:
        """What requests call the model."""

    @property
    def ready(self) -> float:
        """Seconds from the first start until all were ready."""

    @property
    def logs(self) -> Mapping[str, Path]:
        """The log file of each process by its name: `prefill`, `decode` or `engine`, and `frontend`, `etcd`, `nats`."""

    def check(self) -> None:
        """Raises StackFailed where one of the processes is not there any more."""


class Runner(Protocol):
    """Where the engines of a fleet run."""

    @property
    def name(self) -> str:
        """As fleets name it."""

    @property
    def image(self) -> str:
        """Digest of the image that the overlay's side runs in; empty where engines are processes of an environment."""

    def gpus(self) -> list[Gpu]:
        """What NVML sees where engines would run.

        Raises:
            NotRun: nothing can be seen there, and why.
        """

    def serve(self, play: Play, logs: Path) -> AbstractContextManager[Stand]:
        """Brings up a play, and takes it down with all that belongs to it; `logs` is a new folder.

        Raises:
            UsageError: something that it needs is missing or wrong.
            StackFailed: a process ended, or was not ready in the fleet's time.
        """


def seeing(engine: Engine, own: Sequence[str]) -> Engine:
    """The engine on GPUs of its own."""
    return engine._replace(env={**engine.env, "CUDA_VISIBLE_DEVICES": ",".join(own)})


def engines(play: Play) -> tuple[Engine, Engine]:
    """Prefill and decode of a play, by its fleet's settings; of a play alone the first one is it."""
    fleet = play.fleet
    prefill, decode = (
        Engine(play.model, tp, play.flags, fleet.env, fleet.kv_buffer_device)
        for tp in (play.layout.prefill, play.layout.decode)
    )
    return prefill, decode
