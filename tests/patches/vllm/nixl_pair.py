"""Real NIXL connector workers of two engines, paired on loopback.

Every rank is a real ``NixlConnector`` or ``NixlPushConnector`` in the worker role, with
the cache config that vLLM itself makes for the model, real tensors, and the engine's
real handshake listener. What needs a process per rank is stood in for: the rank and
world size of tensor parallelism and, for speed, the NIXL agent, by one that copies
within this process. ``real_nixl=True`` keeps the real agents (UCX, host memory).

Each cache element names its layer, KV head, block, position and channel, so a test can
say which bytes had to land where.
"""

import ctypes
import dataclasses
import functools
import json
import socket
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import patch

import msgspec
import numpy as np
import torch
from vllm.config import (
    CacheConfig,
    DeviceConfig,
    KVTransferConfig,
    ModelConfig,
    SchedulerConfig,
    VllmConfig,
)
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.distributed.kv_transfer.kv_connector.v1.nixl import base_worker
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.base_scheduler import (
    NixlBaseConnectorScheduler,
)
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.connector import (
    NixlConnector,
    NixlPushConnector,
)
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.metadata import (
    NixlConnectorMetadata,
)
from vllm.v1.core.kv_cache_utils import get_kv_cache_configs
from vllm.v1.kv_cache_interface import (
    AttentionSpec,
    FullAttentionSpec,
    KVCacheLayout,
    KVCacheSpec,
    MLAAttentionSpec,
    SlidingWindowSpec,
    create_kv_cache_views,
)

HOST = "127.0.0.1"
BLOCK_SIZE = 32
MAX_TOKENS = 32
UNTOUCHED = -1
REQUEST = "request"

Blocks = tuple[list[int], ...]  # of one request, for each cache group

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


@dataclasses.dataclass(frozen=True)
class Layer:
    """One attention layer: KV heads over all ranks, head size, sliding or global."""

    heads: int
    head_size: int
    sliding: bool = False

    def heads_on(self, tp: int) -> int:
        return max(1, self.heads // tp)

    def first_head(self, rank: int, tp: int) -> int:
        return rank * self.heads // tp


def gemma4(sliding_heads: int, global_heads: int) -> tuple[Layer, ...]:
    """Five sliding layers, then a global one with fewer and wider heads."""
    return (*[Layer(sliding_heads, 32, sliding=True)] * 5, Layer(global_heads, 64))


SMALL = gemma4(8, 2)
GEMMA4_31B = gemma4(16, 4)
UNIFORM = (Layer(8, 32),) * 2
MLA = Layer(1, 128)


def one_head_is_mla(spec: AttentionSpec) -> AttentionSpec:
    """Make a layer of one wide head an MLA layer: every rank holds it whole."""
    if spec.num_kv_heads > 1 or spec.head_size < MLA.head_size:
        return spec
    return MLAAttentionSpec(
        block_size=spec.block_size,
        num_kv_heads=1,
        head_size=spec.head_size,
        dtype=spec.dtype,
    )


def layer_name(index: int) -> str:
    return f"model.layers.{index}.self_attn.attn"


@functools.cache
def model_config(heads: int, layers: int) -> ModelConfig:
    folder = tempfile.mkdtemp()
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 512,
        "intermediate_size": 64,
        "num_attention_heads": 16,
        "num_key_value_heads": heads,
        "num_hidden_layers": layers,
        "vocab_size": 64,
        "max_position_embeddings": MAX_TOKENS,
    }
    Path(folder, "config.json").write_text(json.dumps(config))
    return ModelConfig(model=folder, dtype="float32", skip_tokenizer_init=True, max_model_len=MAX_TOKENS)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind((HOST, 0))
        return sock.getsockname()[1]


def codes(layer: int, heads: list[int], blocks: list[int], positions: int, channels: int) -> torch.Tensor:
    """What the elements ``[block, head, position, channel]`` of a layer hold."""
    code = torch.tensor(layer + 1)
    for values, bits in (
        (torch.tensor(heads).view(-1, 1, 1), 5),
        (torch.tensor(blocks).view(-1, 1, 1, 1), 4),
        (torch.arange(positions).view(-1, 1), 7),
        (torch.arange(channels), 8),
    ):
        code = (code << bits) | values
    return code.to(torch.int32)


class LocalNixl:
    """A NIXL agent for one process: what it is told to move, it copies at once."""

    agents: ClassVar[dict[str, "LocalNixl"]] = {}

    def __init__(self, name: str, config: Any = None) -> None:
        self.name, self.agents[name] = name, self
        self.memory: list[tuple[int, int]] = []
        self.lists: list[tuple[LocalNixl, np.ndarray]] = []
        self.transfers: list[tuple[Any, ...]] = []
        self.notifs: dict[str, list[bytes]] = {}

    def get_reg_descs(self, descs: Any, mem_type: str) -> Any:
        return descs

    get_xfer_descs = get_reg_descs

    def register_memory(self, descs: Any, backends: Any = None) -> None:
        self.memory += [(base, base + size) for base, size, *_ in descs]

    def get_agent_metadata(self) -> bytes:
        return self.name.encode()

    def add_remote_agent(self, metadata: bytes) -> str:
        return metadata.decode()

    def prep_xfer_dlist(self, agent: str, descs: Any) -> int:
        owner = self.agents.get(agent, self)
        descs = np.asarray(descs, dtype=np.uint64)
        for base, size, _ in descs.tolist():
            assert any(start <= base and base + size <= end for start, end in owner.memory), (
                f"{size} bytes at {base} are not registered memory of {owner.name}"
            )
        self.lists.append((owner, descs))
        return len(self.lists) - 1

    def make_prepped_xfer(
        self, op: str, local: int, local_ids: Any, remote: int, remote_ids: Any,
        notif_msg: bytes = b"",
    ) -> int:  # fmt: skip
        ours = self.lists[local][1][local_ids].tolist()
        owner, descs = self.lists[remote]
        self.transfers.append((op, ours, owner, descs[remote_ids].tolist(), notif_msg))
        return len(self.transfers) - 1

    def transfer(self, handle: int) -> None:
        op, ours, owner, theirs, notif = self.transfers[handle]
        for (local, size, _), (remote, remote_size, _) in zip(ours, theirs, strict=True):
            assert size == remote_size, f"{op} of {remote_size} bytes into {size}"
            ctypes.memmove(*((local, remote) if op == "READ" else (remote, local)), size)
        self.send_notif(owner.name, notif)

    def send_notif(self, agent: str, notif_msg: bytes) -> None:
        self.agents[agent].notifs.setdefault(self.name, []).append(notif_msg)

    def get_new_notifs(self) -> dict[str, list[bytes]]:
        notifs, self.notifs = self.notifs, {}
        return notifs

    def check_xfer_state(self, handle: int) -> str:
        return "DONE"

    def get_xfer_telemetry(self, handle: int) -> Any:
        return SimpleNamespace(xferDuration=1, postDuration=1, totalBytes=1, descCount=1)

    def release(self, handle: Any) -> None: ...

    release_xfer_handle = release_dlist_handle = release
    remove_remote_agent = deregister_memory = release


class Engine:
    """The workers of one engine, one per (PP rank, TP rank)."""

    def __init__(
        self,
        role: str,
        layers: tuple[Layer, ...],
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
        use_mla: bool = False,
        real_nixl: bool = False,
        extra: dict[str, Any] | None = None,
        **transfer: Any,
    ) -> None:
        self.role, self.layers, self.tp, self.pp = role, layers, tp, pp
        self.push, self.hybrid, self.layout = push, hybrid, layout
        self.block_size, self.num_blocks = block_size, num_blocks
        self.model_heads = model_heads or layers[0].heads
        self.change_spec, self.transfer = change_spec, transfer
        self.agent_class = base_worker.NixlWrapper if real_nixl else LocalNixl
        self.use_mla, self.extra = use_mla, extra or {}
        self.engine_id = f"{role}-{id(self)}"
        self.port = free_port()
        self.group_of: dict[str, int] = {}
        self.connectors: dict[tuple[int, int], Any] = {}
        self.caches: dict[tuple[int, int], dict[int, torch.Tensor]] = {}
        self.listening = threading.Event()
        self.stopped = threading.Event()
        for pp_rank in range(pp):
            for rank in range(tp):
                self._start_worker(pp_rank, rank)
        self.payloads = {
            rank: msgspec.msgpack.encode(connector.get_handshake_metadata())
            for rank, connector in self.connectors.items()
        }
        threading.Thread(
            target=NixlBaseConnectorScheduler._nixl_handshake_listener,
            args=(self.payloads, self.listening, self.stopped, HOST, self.port),
            daemon=True,
        ).start()
        assert self.listening.wait(10)

    def _start_worker(self, pp_rank: int, rank: int) -> None:
        config = self._vllm_config(pp_rank, rank)
        per_stage = len(self.layers) // self.pp
        stages = [range(stage * per_stage, (stage + 1) * per_stage) for stage in range(self.pp)]
        specs: list[dict[str, KVCacheSpec]] = [{layer_name(i): self._spec(i) for i in stage} for stage in stages]
        cache_config = get_kv_cache_configs(config, specs, [1 << 28] * self.pp)[pp_rank]
        for index, group in enumerate(cache_config.kv_cache_groups):
            self.group_of |= dict.fromkeys(group.layer_names, index)
        connector_class = NixlPushConnector if self.push else NixlConnector
        with (
            patch.object(base_worker, "get_tensor_model_parallel_rank", lambda: rank),
            patch.object(base_worker, "get_tensor_model_parallel_world_size", lambda: self.tp),
            patch.object(base_worker, "NixlWrapper", self.agent_class),
            # The worker would pin this whole process to one core.
            patch.object(base_worker.current_platform, "discover_numa_topology", list),
        ):
            connector = connector_class(config, KVConnectorRole.WORKER, cache_config)
        connector.connector_worker.use_mla = self.use_mla
        views = self._kv_caches(cache_config)
        stage = stages[pp_rank]
        connector.register_kv_caches({layer_name(i): views[layer_name(i)] for i in stage})
        self.connectors[pp_rank, rank] = connector
        self.caches[pp_rank, rank] = {i: views[layer_name(i)] for i in stage}

    def _vllm_config(self, pp_rank: int, rank: int) -> VllmConfig:
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
                kv_connector_extra_config={"num_threads": 1, **self.extra},
                **self.transfer,
            ),
            device_config=DeviceConfig("cpu"),
        )
        config.cache_config.kv_cache_layout = self.layout
        config.cache_config.num_gpu_blocks_override = self.num_blocks
        config.parallel_config.tensor_parallel_size = self.tp
        config.parallel_config.pipeline_parallel_size = self.pp
        config.parallel_config.rank = pp_rank * self.tp + rank
        return config

    def _spec(self, index: int) -> AttentionSpec:
        layer = self.layers[index]
        sizes: dict[str, Any] = {
            "block_size": self.block_size,
            "num_kv_heads": layer.heads_on(self.tp),
            "head_size": layer.head_size,
            "dtype": torch.float32,
        }
        if layer.sliding:
            return self.change_spec(SlidingWindowSpec(sliding_window=128, **sizes))
        return self.change_spec(FullAttentionSpec(**sizes))

    def _kv_caches(self, cache_config) -> dict[str, torch.Tensor]:
        specs: dict[str, KVCacheSpec] = {}
        for group in cache_config.kv_cache_groups:
            spec = group.kv_cache_spec
            specs |= getattr(spec, "kv_cache_specs", dict.fromkeys(group.layer_names, spec))
        tensors = cache_config.kv_cache_tensors
        raw = torch.full((tensors[0].size // 4,), UNTOUCHED, dtype=torch.int32)
        views: dict[str, torch.Tensor] = {}
        for tensor in tensors:
            made = create_kv_cache_views(
                raw.view(torch.int8),
                specs[tensor.layers[0]],
                cache_config.num_blocks,
                KVCacheLayout[self.layout],
                tensor,
            )
            views.update(zip(tensor.layers, made, strict=True))
        return views

    def worker(self, rank: int, pp_rank: int = 0) -> Any:
        return self.connectors[pp_rank, rank].connector_worker

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

    def heads_held(self, layer: int, rank: int) -> list[int]:
        first = self.layers[layer].first_head(rank, self.tp)
        return [first + i for i in range(self.layers[layer].heads_on(self.tp))]

    def fill(self, blocks: Blocks) -> None:
        """Write into each element of a request's blocks what it is."""
        for (_, rank), layers in self.caches.items():
            for layer, cache in layers.items():
                held = blocks[self.group_of[layer_name(layer)]]
                cache.view(torch.int32)[held] = codes(layer, self.heads_held(layer, rank), held, *cache.shape[2:])

    def shutdown(self) -> None:
        self.stopped.set()
        for connector in self.connectors.values():
            connector.shutdown()
            # An agent's threads poll for as long as it lives.
            connector.connector_worker.nixl_wrapper = None


@contextmanager
def pair(*engines: Engine) -> Iterator[None]:
    with ExitStack() as stack:
        for engine in engines:
            stack.callback(engine.shutdown)
        yield


def connect(local: Engine, remote: Engine, **kind: Any) -> None:
    """Every local rank does its real handshake over the real side channel."""
    for connector in local.connectors.values():
        worker = connector.connector_worker
        future = worker._ensure_handshake(remote.engine_id, HOST, remote.port, remote.tp, pp_size=remote.pp, **kind)
        try:
            if future is not None:
                future.result(20)
        except AssertionError as error:
            if str(error):
                raise
            line = traceback.extract_tb(error.__traceback__)[-1].line
            raise AssertionError(f"bare assertion in the handshake: {line}") from error


def finished(connector: Any, work: NixlConnectorMetadata) -> bool:
    """One engine step: hand over work, see whether the request is finished."""
    connector.bind_connector_metadata(work)
    connector.start_load_kv(None)
    sent, received = connector.get_finished(set())
    return REQUEST in {*(sent or ()), *(received or ())}


def registration(prefill: Engine, decode: Engine, blocks: Blocks) -> dict[str, Any]:
    """What a decode rank sends to the prefill ranks that shall write to it."""
    return {
        "request_id": REQUEST,
        "decode_engine_id": decode.engine_id,
        "decode_host": HOST,
        "decode_port": decode.port,
        "decode_tp_size": decode.tp,
        "local_block_ids": blocks,
        "remote_engine_id": prefill.engine_id,
        "remote_host": HOST,
        "remote_port": prefill.port,
        "remote_tp_size": prefill.tp,
        "remote_pp_size": prefill.pp,
    }


def transfer(
    prefill: Engine,
    decode: Engine,
    prefill_blocks: Blocks = ([1, 3],),
    decode_blocks: Blocks = ([2, 1],),
) -> None:
    """Fill a request's blocks and move them to decode, as both engines' steps do.

    Returns when every decode rank has its blocks and every prefill rank was told that
    it may free them.
    """
    prefill.fill(prefill_blocks)
    if prefill.push:
        connect(prefill, decode)
        # A rank written to for another rank's registration must know the writer.
        connect(decode, prefill, notif_agents_only=True)
    else:
        connect(decode, prefill)
    waiting: list[Any] = []
    for connector in prefill.connectors.values():
        work = NixlConnectorMetadata()
        work.reqs_in_batch.add(REQUEST)
        work.reqs_to_send[REQUEST] = time.perf_counter() + 60
        if prefill.push:
            work.push_finished_blocks[REQUEST] = prefill_blocks
        if not finished(connector, work):
            waiting.append(connector)
    for connector in decode.connectors.values():
        work = NixlConnectorMetadata()
        params = {
            "remote_block_ids": () if decode.push else prefill_blocks,
            "remote_engine_id": prefill.engine_id,
            "remote_request_id": REQUEST,
            "remote_host": HOST,
            "remote_port": prefill.port,
            "tp_size": prefill.tp,
            "pp_size": prefill.pp,
        }
        cached = (0,) * len(decode_blocks)
        work.add_new_req_to_recv(REQUEST, decode_blocks, params, cached, True)
        if decode.push:
            work.push_registrations[REQUEST] = registration(prefill, decode, decode_blocks)
        if not finished(connector, work):
            waiting.append(connector)
    deadline = time.monotonic() + 15
    while waiting and time.monotonic() < deadline:
        waiting = [c for c in waiting if not finished(c, NixlConnectorMetadata())]
        time.sleep(0.002)
    assert not waiting, f"not finished: {len(waiting)} of the ranks of both engines"


def assert_landed(
    decode: Engine,
    prefill_blocks: Blocks = ([1, 3],),
    decode_blocks: Blocks = ([2, 1],),
) -> None:
    """Each decode rank holds its own heads of the request's blocks, nothing else."""
    for (_, rank), layers in decode.caches.items():
        for layer, cache in layers.items():
            group = decode.group_of[layer_name(layer)]
            heads = decode.heads_held(layer, rank)
            found = cache.view(torch.int32)
            expected = torch.full_like(found, UNTOUCHED)
            for other, blocks in enumerate(decode_blocks):
                # Layers of other groups may share these pages.
                expected[blocks] = found[blocks] if other != group else codes(
                    layer, heads, prefill_blocks[group], *cache.shape[2:]
                )  # fmt: skip
            wrong = (found != expected).flatten(1).any(1).nonzero().flatten()
            assert not len(wrong), (
                f"decode TP {decode.tp} rank {rank} holds wrong bytes in layer {layer}, "
                f"blocks {wrong.tolist()}: heads {heads} expected"
            )
