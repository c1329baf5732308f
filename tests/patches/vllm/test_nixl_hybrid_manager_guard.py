"""NIXL connector: KV pages shared by layers of different head counts are not re-sharded.

With the hybrid KV-cache manager on, sliding and global layers share pages. Their KV
heads split differently over ranks, so such a page has no single slice per rank.
"""

import logging
from typing import Any

import pytest
from nixl_pair import (
    MLA,
    SMALL,
    Engine,
    Layer,
    assert_landed,
    connect,
    one_head_is_mla,
    pair,
    transfer,
)
from vllm.distributed.kv_transfer.kv_connector.v1.nixl import base_worker

FLAG = "--disable-hybrid-kv-cache-manager"
DID_NOT_RAISE = r"DID NOT RAISE"

# At TP2 their pages are equal; at TP4 the sliding layer's block grows to match. Stock
# sees two block sizes, finds the lengths consistent, and reads the wrong bytes.
SILENT = (Layer(8, 32, sliding=True), Layer(2, 128))
SAME_HEADS = (Layer(8, 32, sliding=True), Layer(8, 32))

pull_and_push = pytest.mark.parametrize("push", [False, True], ids=["pull", "push"])


def engines(layers: tuple[Layer, ...], prefill_tp: int, decode_tp: int, **options: Any) -> tuple[Engine, Engine]:
    options = {"hybrid": True, "num_blocks": 16, **options}
    return (
        Engine("kv_producer", layers, prefill_tp, **options),
        Engine("kv_consumer", layers, decode_tp, **options),
    )


def own_blocks(engine: Engine, first: int) -> tuple[list[int], ...]:
    """One block for each cache group, none of them shared."""
    return tuple([first + i] for i in range(max(engine.group_of.values()) + 1))


def assert_moves(prefill: Engine, decode: Engine) -> None:
    blocks = own_blocks(prefill, 1), own_blocks(decode, 8)
    with pair(prefill, decode):
        transfer(prefill, decode, *blocks)
        assert_landed(decode, *blocks)


def assert_refused(reader: Engine, peer: Engine, **kind: Any) -> None:
    with pair(reader, peer):
        with pytest.raises(RuntimeError, match=f"layers of different KV head.*{FLAG}"):
            connect(reader, peer, **kind)
        for connector in reader.connectors.values():
            worker = connector.connector_worker
            assert not worker.dst_xfer_side_handles.get(peer.engine_id)
            assert peer.engine_id not in worker._remote_agents


@pytest.mark.holds(stock=DID_NOT_RAISE)
@pytest.mark.parametrize(
    ("layers", "prefill_tp", "decode_tp"),
    [(SILENT, 2, 4), (SMALL, 1, 2)],
    ids=["stock-reads-wrong-bytes", "all-heads-divide"],
)
def test_pull_refuses_shared_pages(layers, prefill_tp, decode_tp):
    prefill, decode = engines(layers, prefill_tp, decode_tp)
    assert_refused(decode, prefill)


@pytest.mark.holds(stock=DID_NOT_RAISE)
def test_push_refuses_shared_pages_on_prefill():
    prefill, decode = engines(SMALL, 1, 2, push=True)
    assert_refused(prefill, decode)


@pytest.mark.holds(stock=DID_NOT_RAISE)
def test_push_refuses_shared_pages_on_decode():
    prefill, decode = engines(SMALL, 1, 2, push=True)
    assert_refused(decode, prefill, notif_agents_only=True)


@pytest.mark.holds(stock=r"SPLIT region 0: remote P KV block_len")
def test_refuses_pages_that_only_the_peer_is_known_to_share():
    # At TP8 each layer holds one head, so the decode side cannot tell.
    prefill, decode = engines(SMALL, 2, 8)
    assert_refused(decode, prefill)


@pytest.mark.holds(stock=DID_NOT_RAISE)
def test_refuses_to_reshard_its_own_shared_pages_for_a_stock_peer():
    prefill, decode = engines(SMALL, 1, 2)
    assert_refused(decode, prefill.as_stock())


@pytest.mark.holds(stock=r"Local block size \d+ is not divisible by remote block size")
def test_refuses_shared_pages_of_a_stock_peer():
    unchecked = {"enforce_handshake_compat": False}
    prefill, _ = engines(SMALL, 1, 2, extra=unchecked)
    _, decode = engines(SMALL, 1, 2, extra=unchecked, hybrid=False)
    assert_refused(decode, prefill.as_stock())


@pytest.mark.holds(stock=r"Local block size \d+ is not divisible by remote block size")
def test_refuses_pages_that_a_sharded_layer_shares_with_a_replicated_one():
    layers = (Layer(8, 32, sliding=True), MLA)
    prefill, decode = engines(layers, 1, 2, change_spec=one_head_is_mla)
    assert_refused(decode, prefill)


@pytest.mark.holds(stock=r"no warning about shared pages")
def test_warns_when_shared_pages_are_registered():
    warnings: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: warnings.append(record.getMessage())
    base_worker.logger.addHandler(handler)
    try:
        for engine in engines(SMALL, 1, 1):
            engine.shutdown()
    finally:
        base_worker.logger.removeHandler(handler)
    assert any(FLAG in text for text in warnings), "no warning about shared pages"


@pytest.mark.unchanged
@pull_and_push
@pytest.mark.parametrize("tp", [1, 2, 4])
def test_equal_tp_moves_shared_pages(push, tp):
    assert_moves(*engines(SMALL, tp, tp, push=push))


@pytest.mark.unchanged
def test_equal_tp_moves_shared_pages_of_a_stock_peer():
    prefill, decode = engines(SMALL, 2, 2)
    assert_moves(prefill.as_stock(), decode)


@pytest.mark.unchanged
def test_equal_tp_moves_shared_pages_of_pipeline_stages():
    staged = Engine("kv_producer", SMALL, 2, hybrid=True, num_blocks=16, push=True, pp=2)
    _, decode = engines(SMALL, 2, 2, push=True)
    assert_moves(staged, decode)


@pytest.mark.unchanged
@pull_and_push
@pytest.mark.parametrize(("prefill_tp", "decode_tp"), [(1, 2), (2, 1)])
def test_layers_of_one_head_count_share_pages_at_any_tp(push, prefill_tp, decode_tp):
    assert_moves(*engines(SAME_HEADS, prefill_tp, decode_tp, push=push))


@pytest.mark.unchanged
def test_layers_of_one_head_count_share_pages_of_a_stock_peer():
    prefill, decode = engines(SAME_HEADS, 1, 2)
    assert_moves(prefill.as_stock(), decode)


@pytest.mark.unchanged
def test_mla_model_shares_pages_with_a_replicated_draft():
    layers = (MLA, Layer(1, 64, sliding=True))
    assert_moves(*engines(layers, 1, 2, use_mla=True, change_spec=one_head_is_mla))
