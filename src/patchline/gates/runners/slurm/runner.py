"""Engines as steps of a Slurm job, on the whole nodes that it has; the gate itself runs inside the job."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

from patchline.errors import CommandFailed, UsageError
from patchline.gates.gpus import Gpu
from patchline.gates.plays import Play
from patchline.gates.runners.runner import ANSWER, Kit, NotRun, engines, seeing
from patchline.gates.runners.slurm import control
from patchline.gates.stack.engines import Engine, Ground
from patchline.gates.stack.node import Node
from patchline.gates.stack.processes import StackFailed
from patchline.gates.stack.stack import Served, aggregated, pair, stack
from patchline.progress import say

_STEP = "patchline-play"
_END = 60.0
"""Seconds until a step must be gone that Slurm was told to kill."""


class Allocation(NamedTuple):
    """The job around us."""

    job: str
    nodes: list[str]

    def words(self, name: str, nodes: Sequence[str]) -> list[str]:
        """Words that start a command once on each of `nodes`, beside whatever runs there, and wait for it."""
        count = len(nodes)
        words = ["srun", f"--jobid={self.job}", f"--job-name={name}", f"--nodelist={','.join(nodes)}"]
        words += [f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1", "--overlap", "--immediate=60"]
        # CPUs, memory and limits of the whole node: srun would give a task one core, and limits of where it runs.
        words += ["--cpu-bind=none", "--mem=0", "--propagate=NONE"]
        return [*words, "--mpi=none", "--input=none", "--quiet"]

    def node(self, name: str, host: str, *flags: str) -> Node:
        """The node on which one process of a play is a step."""
        return Node(host, [*self.words(_STEP, [name]), *flags], control.environment())


def inside() -> bool:
    """Whether there is a job around us."""
    return "SLURM_JOB_ID" in os.environ


def allocation() -> Allocation:
    """The job around us, and its nodes.

    Raises:
        NotRun: there is none.
    """
    job, nodes = os.environ.get("SLURM_JOB_ID", ""), os.environ.get("SLURM_JOB_NODELIST", "")
    if not job or not nodes:
        raise NotRun("not run: there is no Slurm job around this process", next="run it in one: sbatch, or salloc")
    return Allocation(job, control.hosts(nodes))


class Slurm:
    """All of a play in the job: prefill on its first node, decode on its second where the fleet has two."""

    name = "slurm"
    image = ""

    def __init__(self, kit: Kit, nodes: int = 2) -> None:
        """`nodes` is how many of the job's nodes are used: the first ones."""
        self.kit, self.nodes = kit, nodes

    def gpus(self) -> list[Gpu]:
        """What NVML sees on each node of the job that is used.

        Raises:
            NotRun: there is no job around us, or a node does not say.
        """
        own = allocation()
        command = [*own.words("patchline-gpus", own.nodes[: self.nodes]), "--kill-on-bad-exit=1"]
        try:
            told = control.ask(*command, sys.executable, "-P", "-m", "patchline.gates.gpus")
        except CommandFailed as failed:
            raise NotRun(
                f"not run: a node does not say which GPUs it has: {failed.what}", where=failed.where
            ) from failed
        return sorted((Gpu(*gpu) for line in told.splitlines() for gpu in json.loads(line)), key=lambda gpu: gpu.node)

    @contextmanager
    def serve(self, play: Play, logs: Path) -> Iterator[Served]:
        """Brings up a play; see `Runner`."""
        own = allocation()
        if len(own.nodes) < play.fleet.nodes:
            raise UsageError(f"the job has nodes {own.nodes}, the fleet {play.fleet.name} needs {play.fleet.nodes}")
        used = own.nodes[: min(play.fleet.nodes, 2)]
        scratch = tempfile.mkdtemp(prefix="patchline-")
        tree = self.kit.tree if play.side == "overlay" else None
        ground = Ground(self.kit.python, tree, logs, play.fleet.ready_seconds, ANSWER, Path(scratch))
        try:
            with _up(own, used, play, ground) as served:
                yield served
        finally:
            try:
                _end(own)
            finally:
                _clear(own, used, scratch)


def _up(own: Allocation, used: Sequence[str], play: Play, ground: Ground) -> AbstractContextManager[Served]:
    hosts = control.addresses(used)
    prefill, decode = engines(play)
    if play.fleet.gpu:
        prefill, decode = _seeing(prefill, 0), _seeing(decode, 0 if len(used) > 1 else prefill.tp)
    prefill = prefill._replace(node=own.node(used[0], hosts[0]))
    if play.form == "alone":
        return aggregated(ground, prefill)
    decode = decode._replace(node=own.node(used[-1], hosts[-1]))
    if play.form == "dynamo":
        return stack(ground, prefill, decode, node=own.node(used[0], hosts[0], "--gres=none"))
    return pair(ground, prefill, decode)


def _seeing(engine: Engine, first: int) -> Engine:
    """The engine on so many GPUs of its node as its TP, from the `first` one on."""
    return seeing(engine, [str(first + rank) for rank in range(engine.tp)])


def _end(own: Allocation) -> None:
    """Ends the steps of a play that are left: one whose `srun` was killed lives on until the job's end.

    Raises:
        StackFailed: one does not go.
    """
    until = time.monotonic() + _END
    while left := control.steps(own.job, _STEP):
        if time.monotonic() > until:
            raise StackFailed(f"Slurm does not end these steps: {' '.join(left)}", next=f"scancel {own.job}")
        control.end(*left)
        time.sleep(0.5)


def _clear(own: Allocation, nodes: Sequence[str], scratch: str) -> None:
    """Removes the play's scratch folder from every node."""
    try:
        control.ask(*own.words("patchline-clear", nodes), "rm", "-rf", "--", scratch)
    except CommandFailed as failed:
        say(f"{scratch} may be left on {' and '.join(nodes)}: {failed.what}")
