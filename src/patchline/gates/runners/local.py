"""Engines as processes of this host."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from pathlib import Path

from patchline.errors import UsageError
from patchline.gates import gpus
from patchline.gates.gpus import Gpu
from patchline.gates.plays import Play
from patchline.gates.runners.runner import ANSWER, Kit, engines, seeing
from patchline.gates.stack.engines import Engine, Ground
from patchline.gates.stack.stack import Served, aggregated, pair, stack


class Local:
    """All of a play on this host."""

    name = "local"
    image = ""

    def __init__(self, kit: Kit) -> None:
        self.kit = kit

    def gpus(self) -> list[Gpu]:
        """What NVML sees here."""
        return gpus.seen()

    def serve(self, play: Play, logs: Path) -> AbstractContextManager[Served]:
        """Brings up a play; see `Runner`."""
        tree = self.kit.tree if play.side == "overlay" else None
        ground = Ground(self.kit.python, tree, logs, play.fleet.ready_seconds, ANSWER)
        prefill, decode = engines(play)
        if play.form == "alone":
            return aggregated(ground, prefill)
        if play.fleet.gpu:
            prefill, decode = _on(prefill, 0), _on(decode, prefill.tp)
        return (stack if play.form == "dynamo" else pair)(ground, prefill, decode)


def _on(engine: Engine, first: int) -> Engine:
    """The engine on GPUs of its own: so many as its TP, from the `first` on of those that we were given.

    Raises:
        UsageError: there are not so many.
    """
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    ours = [str(number) for number in range(len(gpus.seen()))] if given is None else given.split(",")
    own = ours[first : first + engine.tp]
    if len(own) < engine.tp:
        raise UsageError(f"this play needs GPUs {first} to {first + engine.tp - 1}, and {len(ours)} are given")
    return seeing(engine, own)
