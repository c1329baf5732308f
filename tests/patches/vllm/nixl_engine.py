"""One engine's real NIXL connector workers, one for each (PP rank, TP rank).

Every rank is a real ``NixlConnector`` or ``NixlPushConnector`` in the worker role, with
the cache config that vLLM itself makes for the model, real tensors, the engine's real
handshake listener and a real NIXL agent (UCX, host memory). What needs a process per
rank is stood in for: the rank and world size of tensor parallelism.

A prefill engine's caches are filled from the start, all of them: whatever is read too
much shows where it lands. Each element names its layer, block, head, position, K or V,
and channel.
"""

import itertools
import random
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple
from unittest.mock import patch

import msgspec
import numpy as np
import torch
import zmq
from nixl_agents import RecordedAgent, polled_config
from nixl_codes import UNTOUCHED, codes
from nixl_models import MAX_TOKENS, Layers, cache_spec, layer_name, model_config
from vllm.config import CacheConfig, DeviceConfig, KVTransferConfig, SchedulerConfig, VllmConfig
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.distributed.kv_transfer.kv_connector.v1.nixl import base_worker
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.base_scheduler import NixlBaseConnectorScheduler
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.connector import NixlConnector, NixlPushConnector
from vllm.v1.core.kv_cache_utils import get_kv_cache_configs
from vllm.v1.kv_cache_interface import AttentionSpec, KVCacheLayout, KVCacheSpec, create_kv_cache_views

from patchline.kv_heads import Side

HOST = "127.0.0.1"
BLOCK_SIZE = 32

Blocks = tuple[list[int], ...]
"""A request's blocks, for each cache group."""

# What vLLM 0.31.0 itself puts into its handshake.
STOCK_FIELDS = [
    "engine_id",
    "agent_metadata",
    "kv_caches_base_addr",
    "device_id",
    "num_blocks",
    "block_lens",
    "block_strides",
    "kv_cache_layout",
    "block_size",
    "ssm_sizes",
    "attn_backend_name",
    "physical_blocks_per_logical_kv_block",
    "region_num_blocks",
    "region_group_ids",
    "region_names",
    "region_mem_types",
    "dcp_size",
    "pcp_size",
    "region_members",
    "packed_member_layouts",
]

_ports = random.SystemRandom()  # hypothesis seeds the other one, and two runs at once would meet
numbers = itertools.count(1)
"""Of engines: no two bear one name."""


class Rank(NamedTuple):
    """One worker's place in its engine."""

    stage: int
    tp: int


class Engine:
    """The workers of one engine, their agents and their caches."""

    def __init__(
        self,
        role: str,
        layers: Layers,
        tp: int,
        *,
        push: bool = False,
        hybrid: bool = False,
        layout: str = "LBHNC",
        block_size: int = BLOCK_SIZE,
        num_blocks: int = 4,
        pp: int = 1,
        model_heads: int = 0,
        change_spec: Callable[[AttentionSpec], AttentionSpec] = lambda spec: spec,
        use_mla: bool | None = None,
        extra: dict[str, Any] | None = None,
        **transfer: Any,
    ) -> None:
        self.role, self.layers, self.tp, self.pp = role, layers, tp, pp
        self.push, self.hybrid, self.layout = push, hybrid, layout
        self.block_size, self.num_blocks = block_size, num_blocks
        self.model_heads = model_heads or layers[0].heads
        self.change_spec, self.transfer = change_spec, transfer
        self.use_mla = all(layer.kind == "mla" for layer in layers) if use_mla is None else use_mla
        self.extra = extra or {}
        self.engine_id = f"{role}-{next(numbers)}"
        self.older_threads = threading.enumerate()
        self.port = 0
        self.group_of: dict[str, int] = {}
        self.connectors: dict[Rank, Any] = {}
        self.agents: dict[Rank, RecordedAgent] = {}
        self.caches: dict[Rank, dict[int, torch.Tensor]] = {}
        self.memory: dict[Rank, np.ndarray] = {}
        self.before: dict[Rank, np.ndarray] = {}
        self.listening = threading.Event()
        self.stopped = threading.Event()
        for stage in range(pp):
            for rank in range(tp):
                self._start_worker(Rank(stage, rank))
        self.payloads = {
            rank: msgspec.msgpack.encode(connector.get_handshake_metadata())
            for rank, connector in self.connectors.items()
        }
        self.fill()
        self._listen()

    def _listen(self) -> None:
        """Listens for handshakes; where another process takes the port first, on another one."""
        until = time.monotonic() + 60
        while not self.listening.is_set():
            self.port = free_port()
            thread = threading.Thread(target=self._answer_handshakes, daemon=True)
            thread.start()
            while thread.is_alive() and not self.listening.wait(0.02):
                assert time.monotonic() < until, f"{self.engine_id} does not listen after a minute"

    def _answer_handshakes(self) -> None:
        try:
            NixlBaseConnectorScheduler._nixl_handshake_listener(
                self.payloads, self.listening, self.stopped, HOST, self.port
            )
        except zmq.ZMQError as taken:
            if taken.errno != zmq.EADDRINUSE:
                raise

    # ---- Workers ----

    def _start_worker(self, rank: Rank) -> None:
        config = self._vllm_config(rank)
        stages = [self._stage_layers(stage) for stage in range(self.pp)]
        specs: list[dict[str, KVCacheSpec]] = [{layer_name(i): self._spec(i) for i in stage} for stage in stages]
        cache_config = get_kv_cache_configs(config, specs, [1 << 28] * self.pp)[rank.stage]
        for index, group in enumerate(cache_config.kv_cache_groups):
            self.group_of |= dict.fromkeys(group.layer_names, index)
        connector = self._connector(config, cache_config, rank)
        views = self._kv_caches(cache_config, rank)
        connector.register_kv_caches({layer_name(i): views[layer_name(i)] for i in stages[rank.stage]})
        self.connectors[rank] = connector
        self.agents[rank] = connector.connector_worker.nixl_wrapper
        self.caches[rank] = {i: views[layer_name(i)] for i in stages[rank.stage]}

    def _connector(self, config: VllmConfig, cache_config: Any, rank: Rank) -> Any:
        connector_class = NixlPushConnector if self.push else NixlConnector
        with (
            patch.object(base_worker, "get_tensor_model_parallel_rank", lambda: rank.tp),
            patch.object(base_worker, "get_tensor_model_parallel_world_size", lambda: self.tp),
            patch.object(base_worker, "NixlWrapper", RecordedAgent),
            patch.object(base_worker, "nixl_agent_config", polled_config),
            # The worker would pin this whole process to one core.
            patch.object(base_worker.current_platform, "discover_numa_topology", list),
        ):
            connector = connector_class(config, KVConnectorRole.WORKER, cache_config)
        connector.connector_worker.use_mla = self.use_mla
        return connector

    def _vllm_config(self, rank: Rank) -> VllmConfig:
        config = VllmConfig(
            model_config=model_config(self.model_heads, len(self.layers)),
            cache_config=CacheConfig(block_size=self.block_size, enable_prefix_caching=False),
            scheduler_config=SchedulerConfig(
                max_num_seqs=4,
                max_num_batched_tokens=MAX_TOKENS,
                max_model_len=MAX_TOKENS,
                is_encoder_decoder=False,
                disable_hybrid_kv_cache_manager=not self.hybrid,
            ),
            kv_transfer_config=KVTransferConfig(
                kv_connector="NixlPushConnector" if self.push else "NixlConnector",
                kv_role=self.role,
                kv_buffer_device="cpu",
                engine_id=self.engine_id,
                kv_connector_extra_config={"num_threads": 0, **self.extra},
                **self.transfer,
            ),
            device_config=DeviceConfig("cpu"),
        )
        config.cache_config.kv_cache_layout = self.layout
        config.cache_config.num_gpu_blocks_override = self.num_blocks
        config.parallel_config.tensor_parallel_size = self.tp
        config.parallel_config.pipeline_parallel_size = self.pp
        config.parallel_config.rank = rank.stage * self.tp + rank.tp
        return config

    def _spec(self, layer: int) -> AttentionSpec:
        return self.change_spec(cache_spec(self.layers[layer], self.tp, self.block_size))

    def _kv_caches(self, cache_config: Any, rank: Rank) -> dict[str, torch.Tensor]:
        specs: dict[str, KVCacheSpec] = {}
        for group in cache_config.kv_cache_groups:
            spec = group.kv_cache_spec
            specs |= getattr(spec, "kv_cache_specs", dict.fromkeys(group.layer_names, spec))
        tensors = cache_config.kv_cache_tensors
        raw = torch.full((tensors[0].size // 4,), UNTOUCHED, dtype=torch.int32)
        self.memory[rank] = raw.numpy().view(np.uint8)
        views: dict[str, torch.Tensor] = {}
        for tensor in tensors:
            layout = KVCacheLayout[self.layout]
            spec, count = specs[tensor.layers[0]], cache_config.num_blocks
            made = create_kv_cache_views(raw.view(torch.int8), spec, count, layout, tensor)
            views.update(zip(tensor.layers, made, strict=True))
        return views

    def worker(self, rank: int, stage: int = 0) -> Any:
        return self.connectors[Rank(stage, rank)].connector_worker

    def shutdown(self) -> None:
        self.stopped.set()
        for rank, connector in self.connectors.items():
            connector.shutdown()
            connector.connector_worker.nixl_wrapper = None
            self.agents[rank].close()

    # ---- Caches ----

    def _stage_layers(self, stage: int) -> range:
        per_stage = len(self.layers) // self.pp
        return range(stage * per_stage, (stage + 1) * per_stage)

    def rank_of(self, layer: int, tp_rank: int) -> Rank:
        """The rank that holds a layer, of those with the TP rank `tp_rank`."""
        return Rank(layer // (len(self.layers) // self.pp), tp_rank)

    def group(self, layer: int) -> int:
        """The cache group of a layer: which of a request's lists of blocks are its own."""
        return self.group_of[layer_name(layer)]

    def side(self, layer: int) -> Side:
        """What the model has to know of this engine; the hybrid manager gives some layers larger blocks."""
        return Side(self.tp, self.caches[self.rank_of(layer, 0)][layer].shape[2], self.layout)

    def base(self, rank: Rank, layer: int) -> int:
        """Where a layer's first block starts: bytes from the start of the rank's memory."""
        return self.caches[rank][layer].data_ptr() - self.memory[rank].ctypes.data

    def pages(self, rank: Rank, layer: int, memory: np.ndarray) -> np.ndarray:
        """A layer's blocks ``[block, byte]``, in `memory`: the rank's own, or a copy of it."""
        cache, base = self.caches[rank][layer], self.base(rank, layer)
        shape = cache.shape[0], cache[0].numel() * 4
        return np.lib.stride_tricks.as_strided(memory[base:], shape, (cache.stride(0) * 4, 1))

    def contents(self, rank: Rank, layer: int, blocks: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """What a rank has to hold of the tokens ``[block, position]``; `blocks` and `positions` are prefill's."""
        model = self.layers[layer]
        heads, channels = self.caches[rank][layer].shape[1::2]
        first = 0 if model.kind == "mla" else rank.tp * model.heads // self.tp
        keys = channels if model.kind == "mla" else channels // 2
        return codes(layer, blocks, positions, list(range(first, first + heads)), keys, channels)

    def fill(self, blocks: Blocks = ()) -> None:
        """Write into every element of a prefill engine what it is, and note what every cache holds.

        Pages that cache groups share are last written by the group whose `blocks` they are.
        """
        for rank, layers in self.caches.items():
            if self.role == "kv_producer":
                for layer in layers:
                    self._fill(rank, layer, list(range(self.caches[rank][layer].shape[0])))
                for layer in layers if blocks else ():
                    self._fill(rank, layer, blocks[self.group(layer)])
            self.before[rank] = self.memory[rank].copy()

    def _fill(self, rank: Rank, layer: int, blocks: list[int]) -> None:
        cache = self.caches[rank][layer]
        block_ids = torch.tensor(blocks)[:, None].expand(-1, cache.shape[2])
        positions = torch.arange(cache.shape[2]).expand(len(blocks), -1)
        cache.view(torch.int32)[blocks] = self.contents(rank, layer, block_ids, positions)

    # ---- Handshake ----

    def change_metadata(self, change: Callable[[dict[str, Any]], None]) -> "Engine":
        """Let every rank hand out changed handshake metadata."""
        for rank, encoded in self.payloads.items():
            payload = msgspec.msgpack.decode(encoded)
            metadata = msgspec.msgpack.decode(payload["agent_metadata_bytes"])
            change(metadata)
            payload["agent_metadata_bytes"] = msgspec.msgpack.encode(metadata)
            self.payloads[rank] = msgspec.msgpack.encode(payload)
        return self

    def as_stock(self) -> "Engine":
        """Hand out only what an unpatched vLLM 0.31.0 knows."""

        def strip(metadata: dict[str, Any]) -> None:
            for name in metadata.keys() - set(STOCK_FIELDS):
                del metadata[name]

        return self.change_metadata(strip)


def free_port() -> int:
    """A port below those that systems give out: agents take such ones at any time."""
    while True:
        port = _ports.randint(10_000, 30_000)
        with socket.socket() as sock, suppress(OSError):
            sock.bind((HOST, port))
            return port
