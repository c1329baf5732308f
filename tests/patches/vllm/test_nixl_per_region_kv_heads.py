"""NIXL connector: every KV region is sized and read by its own KV head count.

The models have gemma-4's shape: sliding layers with many KV heads, global layers with
few. All pairs of TPs are in ``test_nixl_transfer_matrix.py``; here is what that table
does not vary: pipeline stages, the model-wide count, texts of refusals.
"""

from dataclasses import make_dataclass, replace
from typing import get_type_hints

import msgspec
import pytest
from nixl_engine import BLOCK_SIZE, STOCK_FIELDS
from nixl_landing import assert_landed, assert_nothing_moved, bytes_posted
from nixl_models import MLA, SMALL, UNIFORM, layer_name
from nixl_pair import REQUEST, connect, decode, pair, prefill, pull_and_push, registration, transfer
from nixl_stock import DID_NOT_RAISE, SIZES, SPLIT
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.metadata import NIXL_CONNECTOR_VERSION, NixlAgentMetadata
from vllm.v1.kv_cache_interface import AttentionSpec

from patchline.kv_heads import Layer

# ---- Layouts that stock cannot serve ----


@pytest.mark.holds(stock=SIZES)
def test_model_wide_count_may_be_the_smaller_one():
    p, d = (make(SMALL, tp, model_heads=2) for make, tp in ((prefill, 4), (decode, 8)))
    with pair(p, d):
        transfer(p, d)
        assert_landed(p, d)


@pytest.mark.holds(stock=SPLIT)
def test_push_from_pipeline_stages():
    p, d = prefill(SMALL, 2, pp=2, push=True), decode(SMALL, 4, push=True)
    with pair(p, d):
        transfer(p, d)
        assert_landed(p, d)


# ---- Refusals ----


@pytest.mark.holds(stock=SPLIT)
def test_refusal_of_a_smaller_decode_tp_names_heads_and_layers():
    p, d = prefill(SMALL, 4), decode(SMALL, 2)
    with pair(p, d):
        with pytest.raises(NotImplementedError) as refused:
            connect(d, p)
        assert_nothing_moved(p, d)
    text = str(refused.value)
    assert "decode TP 2 < prefill TP 4" in text
    assert f"4 in 5 layers ({layer_name(0)}" in text
    assert f"1 in 1 layers ({layer_name(5)}" in text


@pytest.mark.holds(stock=DID_NOT_RAISE)
def test_push_decode_refuses_to_register_with_a_larger_prefill_tp():
    p, d = prefill(SMALL, 2, push=True), decode(SMALL, 1, push=True)
    with pair(p, d):
        with pytest.raises(NotImplementedError, match="decode TP 1 < prefill TP 2"):
            connect(d, p, notif_agents_only=True)
        assert_nothing_moved(p, d)


@pytest.mark.holds(stock=DID_NOT_RAISE)
def test_push_prefill_refuses_to_write_to_a_smaller_decode_tp():
    p, d = prefill(SMALL, 2, push=True), decode(SMALL, 1, push=True)
    with pair(p, d):
        connect(p, d)
        for rank in range(p.tp):
            with pytest.raises(NotImplementedError, match="decode TP 1 < prefill TP 2"):
                p.worker(rank)._do_start_push_kv(REQUEST, ([1],), registration(p, d, ([2],)))
        assert not bytes_posted(p, d)


@pytest.mark.holds(stock=SPLIT)
def test_heads_that_divide_neither_way_are_refused():
    layers = (Layer(8, 32), Layer(3, 64))
    p, d = prefill(layers, 1), decode(layers, 4)
    with pair(p, d):
        with pytest.raises(RuntimeError, match="contradict its block lengths or TP"):
            connect(d, p)
        assert_nothing_moved(p, d)


@pytest.mark.holds(stock=SPLIT)
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
        assert_nothing_moved(p, d)


def separate_kv_slots(spec: AttentionSpec) -> AttentionSpec:
    content = spec.num_kv_heads * spec.head_size * 4
    return replace(spec, num_head_slots=2, state_content_bytes=content)


@pytest.mark.holds(stock=DID_NOT_RAISE)
def test_pages_with_separate_slots_for_k_and_v_are_not_cut():
    p, d = (make(SMALL, tp, change_spec=separate_kv_slots) for make, tp in ((prefill, 1), (decode, 2)))
    with pair(p, d):
        with pytest.raises(NotImplementedError, match="cannot cut a page by KV head"):
            connect(d, p)
        assert_nothing_moved(p, d)


@pytest.mark.holds(stock=SIZES)
def test_token_major_layout_is_refused_where_a_region_must_be_cut():
    p, d = (make(SMALL, tp, model_heads=2, layout="LBNHC") for make, tp in ((prefill, 4), (decode, 8)))
    with pair(p, d):
        with pytest.raises(RuntimeError, match="requires contiguous heads"):
            connect(d, p)
        assert_nothing_moved(p, d)


# ---- What stock serves ----


@pytest.mark.unchanged
def test_push_decode_may_hold_more_ranks_when_its_heartbeat_comes_first():
    p, d = prefill(SMALL, 1, push=True), decode(SMALL, 2, push=True)
    with pair(p, d):
        connect(d, p)
        transfer(p, d)
        assert_landed(p, d)


@pytest.mark.unchanged
@pull_and_push
@pytest.mark.parametrize(("prefill_tp", "decode_tp"), [(1, 2), (2, 1), (2, 8)])
@pytest.mark.parametrize("layers", [(MLA, MLA), (*UNIFORM, MLA)], ids=["MLA", "MLA-beside-a-uniform-model"])
def test_mla(layers, prefill_tp, decode_tp, push):
    p, d = prefill(layers, prefill_tp, push=push), decode(layers, decode_tp, push=push)
    with pair(p, d):
        transfer(p, d)
        assert_landed(p, d)


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
        assert_landed(p, d)


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
