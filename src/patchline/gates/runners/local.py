"""Engines as processes of this host."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from patchline.gates import gpus
from patchline.gates.gpus import Gpu
from patchline.gates.plays import Play
from patchline.gates.runners.runner import ANSWER, Kit, engines
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
    """The engine on GPUs of its own: so many as its TP, from the `first` on."""
    own = ",".join(str(first + rank) for rank in range(engine.tp))
    return engine._replace(env={**engine.env, "CUDA_VISIBLE_DEVICES": own})
