"""NIXL connector: KV pages shared by layers of different head counts are not re-sharded.

With the hybrid KV-cache manager on, sliding and global layers share pages. Their KV
heads split differently over ranks, so such a page has no single slice per rank.
"""

import logging
from typing import Any

import pytest
from nixl_engine import Engine
from nixl_landing import assert_landed, assert_nothing_moved
from nixl_models import MLA, SMALL, Layers
from nixl_outcome import attempt, raise_if
from nixl_pair import connect, decode, pair, prefill, pull_and_push, transfer
from nixl_stock import DID_NOT_RAISE
from vllm.distributed.kv_transfer.kv_connector.v1.nixl import base_worker

from patchline.kv_heads import Layer

FLAG = "--disable-hybrid-kv-cache-manager"

# At TP2 their pages are equal; at TP4 the sliding layer's block grows to match. Stock
# sees two block sizes, finds the lengths consistent, and reads the wrong bytes.
SILENT = (Layer(8, 32, "sliding"), Layer(2, 128))
SAME_HEADS = (Layer(8, 32, "sliding"), Layer(8, 32))


def engines(layers: Layers, prefill_tp: int, decode_tp: int, **options: Any) -> tuple[Engine, Engine]:
    options = {"hybrid": True, "num_blocks": 16, **options}
    return prefill(layers, prefill_tp, **options), decode(layers, decode_tp, **options)


def own_blocks(engine: Engine, first: int) -> tuple[list[int], ...]:
    """One block for each cache group, none of them shared."""
    return tuple([first + i] for i in range(max(engine.group_of.values()) + 1))


def assert_moves(p: Engine, d: Engine) -> None:
    blocks = own_blocks(p, 1), own_blocks(d, 8)
    with pair(p, d):
        transfer(p, d, *blocks)
        assert_landed(p, d, *blocks)


def assert_refused(reader: Engine, peer: Engine, **kind: Any) -> None:
    with pair(reader, peer):
        with pytest.raises(RuntimeError, match=f"layers of different KV head.*{FLAG}"):
            connect(reader, peer, **kind)
        assert_nothing_moved(reader, peer)


@pytest.mark.holds(stock=r"^AssertionError: \d+ bytes were posted before the refusal: shape .* is invalid for input")
def test_pull_refuses_shared_pages_that_stock_reads_wrongly_before_it_dies():
    p, d = engines(SILENT, 2, 4)
    with pair(p, d):
        with pytest.raises(RuntimeError, match=f"layers of different KV head.*{FLAG}"):
            raise_if(attempt(p, d, own_blocks(p, 1), own_blocks(d, 8)))
        assert_nothing_moved(p, d)


@pytest.mark.holds(stock=DID_NOT_RAISE)
def test_pull_refuses_shared_pages():
    p, d = engines(SMALL, 1, 2)
    assert_refused(d, p)


@pytest.mark.holds(stock=DID_NOT_RAISE)
def test_push_refuses_shared_pages_on_prefill():
    p, d = engines(SMALL, 1, 2, push=True)
    assert_refused(p, d)


@pytest.mark.holds(stock=DID_NOT_RAISE)
def test_push_refuses_shared_pages_on_decode():
    p, d = engines(SMALL, 1, 2, push=True)
    assert_refused(d, p, notif_agents_only=True)


@pytest.mark.holds(stock=r"SPLIT region 0: remote P KV block_len")
def test_refuses_pages_that_only_the_peer_is_known_to_share():
    # At TP8 each layer holds one head, so the decode side cannot tell.
    p, d = engines(SMALL, 2, 8)
    assert_refused(d, p)


@pytest.mark.holds(stock=DID_NOT_RAISE)
def test_refuses_to_reshard_its_own_shared_pages_for_a_stock_peer():
    p, d = engines(SMALL, 1, 2)
    assert_refused(d, p.as_stock())


@pytest.mark.holds(stock=r"Local block size \d+ is not divisible by remote block size")
def test_refuses_shared_pages_of_a_stock_peer():
    unchecked = {"enforce_handshake_compat": False}
    p = prefill(SMALL, 1, extra=unchecked, hybrid=True, num_blocks=16)
    d = decode(SMALL, 2, extra=unchecked, num_blocks=16)
    assert_refused(d, p.as_stock())


@pytest.mark.holds(stock=r"Local block size \d+ is not divisible by remote block size")
def test_refuses_pages_that_a_sharded_layer_shares_with_a_replicated_one():
    p, d = engines((Layer(8, 32, "sliding"), MLA), 1, 2)
    assert_refused(d, p)


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
    p, d = engines(SMALL, 2, 2)
    assert_moves(p.as_stock(), d)


@pytest.mark.unchanged
def test_equal_tp_moves_shared_pages_of_pipeline_stages():
    options = {"hybrid": True, "num_blocks": 16, "push": True}
    assert_moves(prefill(SMALL, 2, pp=2, **options), decode(SMALL, 2, **options))


@pytest.mark.unchanged
@pull_and_push
@pytest.mark.parametrize(("prefill_tp", "decode_tp"), [(1, 2), (2, 1)])
def test_layers_of_one_head_count_share_pages_at_any_tp(push, prefill_tp, decode_tp):
    assert_moves(*engines(SAME_HEADS, prefill_tp, decode_tp, push=push))


@pytest.mark.unchanged
def test_layers_of_one_head_count_share_pages_of_a_stock_peer():
    p, d = engines(SAME_HEADS, 1, 2)
    assert_moves(p.as_stock(), d)


@pytest.mark.unchanged
def test_mla_model_shares_pages_with_a_replicated_draft():
    assert_moves(*engines((MLA, Layer(1, 64, "sliding")), 1, 2, use_mla=True))


@pytest.mark.unchanged
@pytest.mark.parametrize("without_groups", [False, True])
def test_separate_pages_of_a_stock_peer_move_at_unequal_tp(without_groups):
    # Its layers differ in head counts, too, and an older peer does not say which groups its regions are of.
    p, d = engines(SMALL, 1, 2, hybrid=False)
    p.as_stock()
    if without_groups:
        p.change_metadata(lambda metadata: metadata.update(region_group_ids=None))
    assert_moves(p, d)
