"""NIXL connector: every KV region is sized and read by its own KV head count.

The models have gemma-4's shape: sliding layers with many KV heads, global layers with
few. What lands in the decode engine's caches is compared byte for byte.
"""

from dataclasses import make_dataclass, replace
from typing import Any, get_type_hints

import msgspec
import pytest
from nixl_pair import (
    BLOCK_SIZE,
    GEMMA4_31B,
    MLA,
    SMALL,
    STOCK_FIELDS,
    UNIFORM,
    Engine,
    Layer,
    assert_landed,
    connect,
    layer_name,
    one_head_is_mla,
    pair,
    registration,
    transfer,
)
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.metadata import (
    NIXL_CONNECTOR_VERSION,
    NixlAgentMetadata,
)
from vllm.v1.kv_cache_interface import AttentionSpec

SPLIT_FAILS = r"SPLIT region \d+: remote P KV block_len \d+ must equal local \d+ \* "
DID_NOT_RAISE = r"DID NOT RAISE"

pull_and_push = pytest.mark.parametrize("push", [False, True], ids=["pull", "push"])


def prefill(layers: tuple[Layer, ...], tp: int, **options: Any) -> Engine:
    return Engine("kv_producer", layers, tp, **options)


def decode(layers: tuple[Layer, ...], tp: int, **options: Any) -> Engine:
    return Engine("kv_consumer", layers, tp, **options)


def advertise(kv_heads: list[int]):
    return lambda metadata: metadata.update(region_kv_heads=kv_heads)


def assert_nothing_prepared(local: Engine, remote: Engine) -> None:
    for connector in local.connectors.values():
        worker = connector.connector_worker
        assert not worker.dst_xfer_side_handles.get(remote.engine_id)
        assert not worker.src_xfer_handles_by_tp_ratio
        assert remote.engine_id not in worker._remote_agents


# ---- Layouts that stock cannot serve ----


@pytest.mark.holds(stock=SPLIT_FAILS)
@pull_and_push
@pytest.mark.parametrize(
    ("layers", "prefill_tp", "decode_tp"),
    [
        pytest.param(SMALL, 2, 4, id="8/2-TP2-TP4"),
        pytest.param(SMALL, 4, 8, id="8/2-TP4-TP8-global-replicated-on-both"),
        pytest.param(SMALL, 1, 8, id="8/2-TP1-TP8"),
        pytest.param(GEMMA4_31B, 4, 8, id="16/4-TP4-TP8"),
        pytest.param(GEMMA4_31B, 2, 16, id="16/4-TP2-TP16"),
    ],
)
def test_each_decode_rank_gets_its_own_heads(push, layers, prefill_tp, decode_tp):
    p, d = prefill(layers, prefill_tp, push=push), decode(layers, decode_tp, push=push)
    with pair(p, d):
        transfer(p, d)
        assert_landed(d)


@pytest.mark.holds(stock=SPLIT_FAILS)
@pull_and_push
@pytest.mark.parametrize(
    ("layers", "prefill_tp", "decode_tp"),
    [
        pytest.param(SMALL, 2, 4, id="8/2-TP2-TP4"),
        pytest.param(GEMMA4_31B, 4, 8, id="16/4-TP4-TP8"),
    ],
)
def test_real_nixl_moves_the_same_bytes(push, layers, prefill_tp, decode_tp):
    p = prefill(layers, prefill_tp, push=push, real_nixl=True)
    d = decode(layers, decode_tp, push=push, real_nixl=True)
    with pair(p, d):
        transfer(p, d)
        assert_landed(d)


@pytest.mark.holds(stock=SPLIT_FAILS)
def test_pull_where_every_layer_is_replicated_on_decode():
    p, d = prefill(SMALL, 2), decode(SMALL, 16)
    with pair(p, d):
        transfer(p, d)
        assert_landed(d)


@pytest.mark.holds(stock=r"bare assertion in the handshake: .*is_kv_replicated")
def test_push_writes_every_replica_of_every_layer():
    p, d = prefill(SMALL, 2, push=True), decode(SMALL, 16, push=True)
    with pair(p, d):
        transfer(p, d)
        assert_landed(d)


@pytest.mark.holds(stock=r"KV cache sizes must match between P and D when replicated")
def test_model_wide_count_may_be_the_smaller_one():
    p, d = (make(SMALL, tp, model_heads=2) for make, tp in ((prefill, 4), (decode, 8)))
    with pair(p, d):
        transfer(p, d)
        assert_landed(d)


@pytest.mark.holds(stock=SPLIT_FAILS)
@pull_and_push
def test_mla_regions_among_mixed_ones_are_copied_whole(push):
    layers = (*SMALL, MLA)
    p, d = (make(layers, tp, push=push, change_spec=one_head_is_mla) for make, tp in ((prefill, 2), (decode, 4)))
    with pair(p, d):
        transfer(p, d)
        assert_landed(d)


@pytest.mark.holds(stock=SPLIT_FAILS)
def test_push_from_pipeline_stages():
    p, d = prefill(SMALL, 2, pp=2, push=True), decode(SMALL, 4, push=True)
    with pair(p, d):
        transfer(p, d)
        assert_landed(d)


# ---- Refusals ----


@pytest.mark.holds(stock=SPLIT_FAILS)
def test_pull_refuses_smaller_decode_tp():
    p, d = prefill(SMALL, 4), decode(SMALL, 2)
    with pair(p, d):
        with pytest.raises(NotImplementedError) as refused:
            connect(d, p)
        assert_nothing_prepared(d, p)
    text = str(refused.value)
    assert "decode TP 2 < prefill TP 4" in text
    assert f"4 in 5 layers ({layer_name(0)}" in text
    assert f"1 in 1 layers ({layer_name(5)}" in text


@pytest.mark.holds(stock=DID_NOT_RAISE)
def test_pull_refuses_smaller_decode_tp_even_where_all_heads_divide():
    p, d = prefill(SMALL, 2), decode(SMALL, 1)
    with pair(p, d):
        with pytest.raises(NotImplementedError, match="decode TP 1 < prefill TP 2"):
            connect(d, p)
        assert_nothing_prepared(d, p)


@pytest.mark.holds(stock=DID_NOT_RAISE)
def test_push_decode_refuses_to_register_with_a_larger_prefill_tp():
    p, d = prefill(SMALL, 2, push=True), decode(SMALL, 1, push=True)
    with pair(p, d), pytest.raises(NotImplementedError, match="decode TP 1 < prefill"):
        connect(d, p, notif_agents_only=True)


@pytest.mark.holds(stock=DID_NOT_RAISE)
def test_push_prefill_refuses_to_write_to_a_smaller_decode_tp():
    p, d = prefill(SMALL, 2, push=True), decode(SMALL, 1, push=True)
    with pair(p, d):
        connect(p, d)
        for rank in range(p.tp):
            with pytest.raises(NotImplementedError, match="decode TP 1 < prefill TP 2"):
                p.worker(rank)._do_start_push_kv("request", ([1],), registration(p, d, ([2],)))


@pytest.mark.unchanged
def test_push_decode_may_hold_more_ranks_when_its_heartbeat_comes_first():
    p, d = prefill(SMALL, 1, push=True), decode(SMALL, 2, push=True)
    with pair(p, d):
        connect(d, p)
        transfer(p, d)
        assert_landed(d)


@pytest.mark.holds(stock=SPLIT_FAILS)
@pull_and_push
def test_peer_without_head_counts_is_refused_where_model_wide_sizing_is_wrong(push):
    p, d = prefill(SMALL, 2, push=push), decode(SMALL, 4, push=push)
    reader, peer = (p, d) if push else (d, p)
    peer.as_stock()
    with pair(p, d):
        with pytest.raises(
            RuntimeError,
            match=rf"{peer.engine_id} does not advertise region_kv_heads.*{layer_name(5)}",
        ):
            connect(reader, peer)
        assert_nothing_prepared(reader, peer)


@pytest.mark.holds(stock=DID_NOT_RAISE)
@pytest.mark.parametrize("kv_heads", [[8] * 5, [8] * 5 + [2, 2], []])
def test_head_counts_of_the_wrong_number_are_refused(kv_heads):
    p, d = prefill(SMALL, 1).change_metadata(advertise(kv_heads)), decode(SMALL, 2)
    with pair(p, d):
        with pytest.raises(RuntimeError, match=f"{len(kv_heads)} region_kv_heads for 6 regions"):
            connect(d, p)
        assert_nothing_prepared(d, p)


@pytest.mark.holds(stock=DID_NOT_RAISE)
@pytest.mark.parametrize(
    ("layers", "kv_heads", "decode_tp"),
    [
        pytest.param(SMALL, [8] * 6, 2, id="one-count-for-all"),
        pytest.param(SMALL, [4] * 5 + [1], 2, id="counts-of-the-reader"),
        pytest.param(SMALL, [8] * 5 + [1], 2, id="as-if-replicated"),
        pytest.param(SMALL, [8] * 5 + [0], 2, id="zero"),
        pytest.param(SMALL, [-8] * 5 + [-2], 2, id="negative"),
        pytest.param(UNIFORM, [4, 4], 2, id="uniform-model"),
        pytest.param(SMALL, [8] * 5 + [1], 1, id="equal-tp"),
    ],
)
def test_head_counts_that_contradict_the_block_lengths_are_refused(layers, kv_heads, decode_tp):
    p, d = prefill(layers, 1).change_metadata(advertise(kv_heads)), decode(layers, decode_tp)
    with pair(p, d):
        with pytest.raises(RuntimeError, match="contradict its block lengths or TP"):
            connect(d, p)
        assert_nothing_prepared(d, p)


@pytest.mark.holds(stock=SPLIT_FAILS)
def test_head_counts_that_contradict_the_tp_are_refused():
    p, d = prefill(SMALL, 1), decode(SMALL, 4)
    p.payloads[0, 1] = p.payloads[0, 0]
    p.tp = 2  # what the router says; the engine that answers runs at TP 1
    with pair(p, d):
        with pytest.raises(RuntimeError, match="contradict its block lengths or TP"):
            connect(d, p)
        assert_nothing_prepared(d, p)


@pytest.mark.holds(stock=SPLIT_FAILS)
def test_heads_that_divide_neither_way_are_refused():
    layers = (Layer(8, 32), Layer(3, 64))
    p, d = prefill(layers, 1), decode(layers, 4)
    with pair(p, d):
        with pytest.raises(RuntimeError, match="contradict its block lengths or TP"):
            connect(d, p)
        assert_nothing_prepared(d, p)


@pytest.mark.holds(stock=SPLIT_FAILS)
@pytest.mark.parametrize(
    "options",
    [
        {"block_size": 2 * BLOCK_SIZE},
        {"layout": "LBNHC", "enable_permute_local_kv": True},
    ],
    ids=["block-size", "layout"],
)
def test_what_is_rearranged_after_the_transfer_is_refused(options):
    p, d = prefill(SMALL, 2), decode(SMALL, 4, **options)
    with pair(p, d):
        with pytest.raises(NotImplementedError, match="equal block sizes and KV cache"):
            connect(d, p)
        assert_nothing_prepared(d, p)


@pytest.mark.unchanged
def test_uniform_model_connects_at_unequal_block_sizes():
    p, d = prefill(UNIFORM, 1), decode(UNIFORM, 2, block_size=2 * BLOCK_SIZE)
    with pair(p, d):
        connect(d, p)


def separate_kv_slots(spec: AttentionSpec) -> AttentionSpec:
    content = spec.num_kv_heads * spec.head_size * 4
    return replace(spec, num_head_slots=2, state_content_bytes=content)


@pytest.mark.holds(stock=DID_NOT_RAISE)
def test_pages_with_separate_slots_for_k_and_v_are_not_cut():
    p, d = (make(SMALL, tp, change_spec=separate_kv_slots) for make, tp in ((prefill, 1), (decode, 2)))
    with pair(p, d):
        with pytest.raises(NotImplementedError, match="cannot cut a page by KV head"):
            connect(d, p)
        assert_nothing_prepared(d, p)


@pytest.mark.holds(stock=r"KV cache sizes must match between P and D when replicated")
def test_token_major_layout_is_refused_where_a_region_must_be_cut():
    p, d = (make(SMALL, tp, model_heads=2, layout="LBNHC") for make, tp in ((prefill, 4), (decode, 8)))
    with pair(p, d), pytest.raises(RuntimeError, match="requires contiguous heads"):
        connect(d, p)


# ---- Layouts that stock serves ----


@pytest.mark.unchanged
@pull_and_push
@pytest.mark.parametrize(
    ("layers", "prefill_tp", "decode_tp"),
    [
        pytest.param(SMALL, 2, 2, id="mixed-equal-TP"),
        pytest.param(SMALL, 4, 4, id="mixed-equal-TP-replicated"),
        pytest.param(SMALL, 1, 2, id="mixed-all-heads-divide"),
        pytest.param(UNIFORM, 1, 2, id="uniform"),
        pytest.param(UNIFORM, 2, 1, id="uniform-smaller-decode-TP"),
        pytest.param(UNIFORM, 8, 2, id="uniform-much-smaller-decode-TP"),
    ],
)
def test_served_by_stock(push, layers, prefill_tp, decode_tp):
    p, d = prefill(layers, prefill_tp, push=push), decode(layers, decode_tp, push=push)
    with pair(p, d):
        transfer(p, d)
        assert_landed(d)


@pytest.mark.unchanged
@pytest.mark.parametrize(("prefill_tp", "decode_tp"), [(4, 16), (8, 16), (16, 16)])
def test_uniform_pull_with_replicated_heads(prefill_tp, decode_tp):
    p, d = prefill(UNIFORM, prefill_tp), decode(UNIFORM, decode_tp)
    with pair(p, d):
        transfer(p, d)
        assert_landed(d)


@pytest.mark.unchanged
@pull_and_push
@pytest.mark.parametrize(
    ("layers", "decode_tp"),
    [(SMALL, 1), (SMALL, 2), ((*SMALL, MLA), 2), (UNIFORM, 2)],
    ids=["mixed-equal-TP", "mixed", "mixed-and-MLA", "uniform"],
)
def test_peer_without_head_counts_is_served_as_on_stock(push, layers, decode_tp):
    p, d = (
        make(layers, tp, push=push, change_spec=one_head_is_mla) for make, tp in ((prefill, 1), (decode, decode_tp))
    )
    (d if push else p).as_stock()
    with pair(p, d):
        transfer(p, d)
        assert_landed(d)


@pytest.mark.unchanged
@pytest.mark.parametrize(("prefill_tp", "decode_tp"), [(1, 2), (2, 1)])
def test_mla_draft_beside_a_uniform_model(prefill_tp, decode_tp):
    layers = (*UNIFORM, MLA)
    p, d = (make(layers, tp, change_spec=one_head_is_mla) for make, tp in ((prefill, prefill_tp), (decode, decode_tp)))
    with pair(p, d):
        transfer(p, d)
        assert_landed(d)


@pytest.mark.unchanged
@pull_and_push
@pytest.mark.parametrize(("prefill_tp", "decode_tp"), [(1, 2), (2, 1)])
def test_mla_model(push, prefill_tp, decode_tp):
    p, d = (
        make((MLA, MLA), tp, push=push, use_mla=True, change_spec=one_head_is_mla)
        for make, tp in ((prefill, prefill_tp), (decode, decode_tp))
    )
    with pair(p, d):
        transfer(p, d)
        assert_landed(d)


@pytest.mark.unchanged
def test_uniform_peer_of_another_tp_than_told():
    p, d = prefill(UNIFORM, 1).as_stock(), decode(UNIFORM, 4)
    p.payloads[0, 1] = p.payloads[0, 0]
    p.tp = 2
    with pair(p, d), pytest.raises(AssertionError, match=SPLIT_FAILS):
        connect(d, p)


@pytest.mark.unchanged
def test_peer_with_another_number_of_layers():
    unchecked = {"enforce_handshake_compat": False}
    p, d = prefill(SMALL[:5], 2, extra=unchecked), decode(SMALL, 4, extra=unchecked)
    with pair(p, d), pytest.raises(AssertionError, match="Number of KV layers must"):
        connect(d, p)


@pytest.mark.unchanged
def test_push_from_pipeline_stages_at_equal_tp():
    p, d = prefill(SMALL, 2, pp=2, push=True), decode(SMALL, 2, push=True)
    with pair(p, d):
        transfer(p, d)
        assert_landed(d)


@pytest.mark.unchanged
def test_a_stock_peer_can_read_the_handshake():
    hints = get_type_hints(NixlAgentMetadata)
    stock_metadata = make_dataclass("StockMetadata", [(name, hints[name]) for name in STOCK_FIELDS])
    engine = prefill(SMALL, 1)
    with pair(engine):
        encoded = engine.connectors[0, 0].get_handshake_metadata().agent_metadata_bytes
    metadata = msgspec.msgpack.decode(encoded, type=stock_metadata)
    assert metadata.engine_id == engine.engine_id
    assert NIXL_CONNECTOR_VERSION == 13, "another version refuses every stock peer"
