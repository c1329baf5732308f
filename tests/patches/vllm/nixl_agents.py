"""Real NIXL agents, each behind a recorder of what it prepares and posts."""

import functools
import os
import threading
from typing import Any, NamedTuple

import numpy as np

# Loopback only: nothing leaves the machine, and an agent starts in half the time.
os.environ.setdefault("UCX_TLS", "tcp")
os.environ.setdefault("UCX_NET_DEVICES", "lo")

from vllm.distributed import nixl_utils

OWN_MEMORY = "NIXL_INIT_AGENT"
"""The agent's name that vLLM gives to prepare descriptors of its own memory."""


class Descriptors(NamedTuple):
    """Descriptors as vLLM made them, and what NIXL made of them."""

    rows: np.ndarray
    """``[n, 3]``: address, bytes, device."""
    nixl: Any


class Prepared(NamedTuple):
    """A list of descriptors that transfers may choose from."""

    agent: str
    """Whose memory: ``OWN_MEMORY`` or the name of another agent."""
    rows: np.ndarray


class Posted(NamedTuple):
    """A transfer: row ``i`` of `own` is read from, or written to, row ``i`` of `other`."""

    operation: str
    agent: str
    own: np.ndarray
    other: np.ndarray


class RecordedAgent:
    """A real NIXL agent. It is polled: no thread of its own makes progress for it."""

    def __init__(self, name: str, config: Any) -> None:
        self.name = name
        self.prepared: list[Prepared] = []
        self.posted: list[Posted] = []
        self._lock = threading.Lock()
        self._nixl = nixl_utils.NixlWrapper(name, config)
        self._lists: dict[Any, Prepared] = {}
        self._transfers: dict[Any, Posted] = {}

    def __getattr__(self, name: str) -> Any:
        return functools.partial(self._call, name)

    def _call(self, name: str, *arguments: Any, **options: Any) -> Any:
        """Call the real agent, one call at a time: vLLM's threads do not wait for each other."""
        with self._lock:
            return getattr(self._nixl, name)(*arguments, **options)

    def get_xfer_descs(self, descs: Any, mem_type: str) -> Descriptors:
        rows = np.array(descs, dtype=np.uint64).reshape(-1, 3)
        return Descriptors(rows, self._call("get_xfer_descs", descs, mem_type))

    def prep_xfer_dlist(self, agent: str | bytes, descs: Descriptors) -> Any:
        handle = self._call("prep_xfer_dlist", agent, descs.nixl)
        self._lists[handle] = Prepared(agent.decode() if isinstance(agent, bytes) else agent, descs.rows)
        self.prepared.append(self._lists[handle])
        return handle

    def make_prepped_xfer(
        self, operation: str, own: Any, own_ids: Any, other: Any, other_ids: Any, **options: Any
    ) -> Any:
        handle = self._call("make_prepped_xfer", operation, own, own_ids, other, other_ids, **options)
        ours, theirs = self._lists[own], self._lists[other]
        self._transfers[handle] = Posted(operation, theirs.agent, ours.rows[own_ids], theirs.rows[other_ids])
        return handle

    def transfer(self, handle: Any, **options: Any) -> str:
        self.posted.append(self._transfers[handle])
        return self._call("transfer", handle, **options)

    def bytes_posted(self) -> int:
        return sum(int(transfer.own[:, 1].sum()) for transfer in self.posted)

    def close(self) -> None:
        """End the agent; what it recorded stays."""
        with self._lock:
            self._lists.clear()
            self._transfers.clear()
            self._nixl = None


def polled_config(**arguments: Any) -> Any:
    """The worker's own configuration of its agent, but without a progress thread.

    Dozens of agents share this process: their threads would take all of its time.
    """
    return nixl_utils.nixl_agent_config(enable_prog_thread=False, **arguments)
