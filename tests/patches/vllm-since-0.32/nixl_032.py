"""The tests of the NIXL patches on vLLM 0.32.0 and later: those of 0.31.0, beside this folder, and what they need here.

A module that imports this one first may import the tests and helpers of ``../vllm``. Since
0.33.0 a worker hands its descriptors to NIXL as strides, one row for all blocks of a region.
"""

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "vllm"))  # before any of its modules is imported

from vllm.v1.core import kv_cache_utils

if not hasattr(kv_cache_utils, "get_kv_cache_configs"):  # since 0.33.0 elsewhere, and after the groups
    from vllm.v1.core.kv_cache_planning import get_global_kv_cache_groups, get_kv_cache_configs

    def configs(config: Any, specs: Any, memory: list[int]) -> Any:
        return get_kv_cache_configs(config, specs, memory, get_global_kv_cache_groups(config, specs))

    kv_cache_utils.get_kv_cache_configs = configs

import nixl_engine
from nixl_agents import Prepared, RecordedAgent
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.base_worker import NixlBaseConnectorWorker


class StridedAgent(RecordedAgent):
    """An agent that is given strides, and records the blocks that they stand for."""

    def prep_xfer_dlist(self, agent: str | bytes, descs: np.ndarray, mem_type: str) -> Any:
        handle = self._call("prep_xfer_dlist", agent, descs, mem_type=mem_type)
        self._lists[handle] = Prepared(agent.decode() if isinstance(agent, bytes) else agent, blocks(descs))
        self.prepared.append(self._lists[handle])
        return handle


def blocks(strided: np.ndarray) -> np.ndarray:
    """Strides ``[n, 5]`` (address, bytes, device, stride, count) as descriptors ``[blocks, 3]`` of their blocks."""
    counts = strided[:, 4].astype(np.int64)
    rows = np.repeat(strided[:, :3], counts, axis=0)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    rows[:, 0] += np.repeat(strided[:, 3], counts) * within.astype(np.uint64)
    return rows


def taken_from(module: str, *, but: tuple[str, ...] = ()) -> dict[str, Any]:
    """The tests of a module of ``../vllm``, by name, but for those that are not true since 0.32.0."""
    found = vars(importlib.import_module(module))
    tests = {name: found[name] for name in found if name.startswith("test_") or name == "pytestmark"}
    assert tests.keys() >= {*but}, f"{module} has no {sorted({*but} - tests.keys())}"
    return {name: test for name, test in tests.items() if name not in but}


_STRIDED = hasattr(NixlBaseConnectorWorker, "_pack_strided_descs")
if _STRIDED:
    nixl_engine.RecordedAgent = StridedAgent

CONNECTOR_VERSION = 15 if _STRIDED else 14
"""Of stock: a peer of another one is refused."""
