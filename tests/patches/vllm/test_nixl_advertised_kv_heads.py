"""NIXL connector: the KV head counts that an engine advertises in its handshake, and the models that advertise none.

An entry is a region of the cache, in the order of its layers: heads on the rank, 0 where
the region is not split by head, -1 where layers of different counts share its pages.
"""

from typing import Any

import msgspec
import pytest
import torch
from nixl_engine import Engine
from nixl_landing import assert_landed
from nixl_models import MLA, SMALL, UNIFORM, Layers
from nixl_pair import connect, decode, pair, prefill, transfer
from vllm.model_executor.layers.mamba import mamba_utils
from vllm.v1.attention.backends.registry import MambaAttentionBackendEnum
from vllm.v1.kv_cache_interface import AttentionSpec, CircularBufferSpec, KVCacheSpec, MambaSpec, SlidingWindowSpec

from patchline.kv_heads import Layer

ABSENT = "no region_kv_heads in the handshake"

# At TP1 pages of both kinds have 32 tokens * 512 channels, at TP2 half of that.
SLIDING, FULL = Layer(8, 32, "sliding"), Layer(2, 128)
SHARED = {"hybrid": True, "num_blocks": 16}


def handshakes(engine: Engine) -> list[dict[str, Any]]:
    """Every rank's handshake metadata, first stage first, as a peer receives it."""
    payloads = [msgspec.msgpack.decode(encoded) for _, encoded in sorted(engine.payloads.items())]
    return [msgspec.msgpack.decode(payload["agent_metadata_bytes"]) for payload in payloads]


def assert_advertises(engine: Engine, *stages: list[int]) -> None:
    """All TP ranks of each pipeline stage say this."""
    with pair(engine):
        found = handshakes(engine)
    assert all("region_kv_heads" in metadata for metadata in found), ABSENT
    expected = [heads for heads in stages for _ in range(engine.tp)]
    assert [metadata["region_kv_heads"] for metadata in found] == expected


def assert_no_counts(*engines: Engine) -> None:
    """As a stock engine, whose handshake has no such field."""
    for engine in engines:
        assert [metadata.get("region_kv_heads") for metadata in handshakes(engine)] == [None] * engine.tp


# ---- Models that are split by head ----


@pytest.mark.holds(stock=ABSENT)
@pytest.mark.parametrize(
    ("layers", "tp", "heads"),
    [
        pytest.param(SMALL, 1, [8, 8, 8, 8, 8, 2], id="8/2-TP1"),
        pytest.param(SMALL, 2, [4, 4, 4, 4, 4, 1], id="8/2-TP2"),
        pytest.param(SMALL, 4, [2, 2, 2, 2, 2, 1], id="8/2-TP4-global-heads-are-copied"),
        pytest.param(SMALL[3:], 8, [1, 1, 1], id="8/2-TP8"),
        pytest.param(UNIFORM, 2, [4, 4], id="8-TP2"),
        pytest.param((SLIDING, FULL, MLA), 2, [4, 1, 0], id="8/2/MLA-TP2"),
    ],
)
def test_layers_with_pages_of_their_own(layers, tp, heads):
    assert_advertises(prefill(layers, tp), heads)


@pytest.mark.holds(stock=ABSENT)
@pytest.mark.parametrize(
    ("layers", "tp", "heads"),
    [
        pytest.param((SLIDING, FULL), 1, [-1], id="8/2-TP1"),
        pytest.param((SLIDING, FULL), 2, [-1], id="8/2-TP2"),
        pytest.param((FULL, SLIDING), 1, [-1], id="2/8-TP1"),
        pytest.param((FULL, SLIDING), 8, [1], id="2/8-TP8-one-head-each"),
        pytest.param((SLIDING, Layer(8, 32)), 2, [4], id="8/8-TP2"),
        pytest.param((*[SLIDING] * 4, *[FULL] * 3), 1, [-1, -1, -1, 8], id="8/2-TP1-last-region-is-not-shared"),
        pytest.param((SLIDING, Layer(8, 32), FULL), 1, [-1], id="8/8/2-TP1-the-third-layer-differs"),
        pytest.param((SLIDING, FULL, Layer(2, 128, "sliding")), 1, [-1], id="8/2/2-TP1-the-first-layer-differs"),
    ],
)
def test_layers_that_share_pages(layers, tp, heads):
    assert_advertises(prefill(layers, tp, **SHARED), heads)


@pytest.mark.holds(stock=ABSENT)
def test_pipeline_stages():
    assert_advertises(prefill(SMALL, 2, pp=2, push=True), [4, 4, 4], [4, 4, 1])
    assert_advertises(prefill(SMALL, 2, pp=2, push=True, **SHARED), [4], [-1])


@pytest.mark.holds(stock=ABSENT)
def test_pipeline_stages_that_share_other_pages_than_the_whole_model():
    layers = *[SLIDING] * 4, *[FULL] * 2, *[SLIDING] * 3, *[FULL] * 3
    options = {"push": True, **SHARED}
    assert_advertises(prefill(layers, 1, pp=2, **options), [-1, -1, 8, 8], [-1, -1, -1])
    assert_advertises(decode(layers, 1, **options), [-1, -1, -1, -1, -1, 8, 8])


# ---- Models that are not, or not only ----


@pytest.mark.unchanged
def test_mla_model():
    p, d = prefill((MLA, MLA), 1), decode((MLA, MLA), 2)
    with pair(p, d):
        assert_no_counts(p, d)
        transfer(p, d)
        assert_landed(p, d)


@pytest.mark.unchanged
def test_mla_model_with_a_draft_that_is_split_by_head():
    layers = MLA, Layer(1, 64)
    p, d = prefill(layers, 1, use_mla=True), decode(layers, 2, use_mla=True)
    with pair(p, d):
        assert_no_counts(p, d)
        transfer(p, d)
        assert_landed(p, d)


def state_for(spec: AttentionSpec) -> KVCacheSpec:
    """A Mamba-2 layer in place of a sliding one; its page is that of the attention that it shares pages with."""
    if not isinstance(spec, SlidingWindowSpec):
        return spec
    channels = 4 * spec.num_kv_heads
    return MambaSpec(
        block_size=spec.block_size,
        shapes=((2 * channels, 3), (spec.num_kv_heads, 4)),
        dtypes=(torch.float32, torch.float32),
        page_size_padded=spec.page_size_bytes,
        mamba_type=MambaAttentionBackendEnum.MAMBA2,
    )


def ring_for(spec: AttentionSpec) -> KVCacheSpec:
    """A scratch ring in place of a sliding layer: one vector for all heads, the same on every rank."""
    if not isinstance(spec, SlidingWindowSpec):
        return spec
    content = spec.page_size_bytes // (spec.block_size * 4)
    return CircularBufferSpec(
        block_size=spec.block_size, num_kv_heads=1, head_size=content, head_size_v=0, dtype=spec.dtype
    )


def engine_with(caches: Any, layers: Layers, tp: int, **options: Any) -> Engine:
    """An engine of either role: what its layers' caches hold is of no interest."""
    return Engine("kv_both", layers, tp, change_spec=caches, **SHARED, **options)


@pytest.mark.unchanged
@pytest.mark.parametrize(("local_tp", "remote_tp", "push"), [(1, 2, False), (2, 1, False), (2, 1, True)])
def test_model_with_mamba_layers(local_tp, remote_tp, push, monkeypatch):
    monkeypatch.setattr(mamba_utils, "get_conv_state_layout", lambda: "DS")
    layers = SLIDING, Layer(8, 32)
    local, remote = (engine_with(state_for, layers, tp, push=push) for tp in (local_tp, remote_tp))
    with pair(local, remote):
        assert all(worker.connector_worker._has_mamba for worker in local.connectors.values())
        assert_no_counts(local, remote)
        connect(local, remote)


@pytest.mark.unchanged
@pytest.mark.parametrize(("local_tp", "remote_tp", "push"), [(1, 2, False), (2, 1, False), (2, 1, True)])
def test_model_with_scratch_rings(local_tp, remote_tp, push):
    layers = SLIDING, Layer(8, 32)
    local, remote = (engine_with(ring_for, layers, tp, push=push) for tp in (local_tp, remote_tp))
    with pair(local, remote):
        assert all(worker.connector_worker._is_csa_linear for worker in local.connectors.values())
        assert_no_counts(local, remote)
        connect(local, remote)
