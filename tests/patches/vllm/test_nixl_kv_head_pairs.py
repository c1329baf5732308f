"""NIXL connector: which pairs of regions the per-region head counts touch, and which they leave as they were.

Pages that layers share, regions that are matched by layer name, equal TPs, pages that
keep K and V in separate head slots, and a stock peer that holds copied heads.
"""

from dataclasses import replace

import pytest
from nixl_engine import BLOCK_SIZE, Engine
from nixl_landing import assert_landed, assert_nothing_moved
from nixl_models import SMALL, UNIFORM, layer_name
from nixl_pair import connect, decode, pair, prefill, pull_and_push, transfer
from nixl_stock import DID_NOT_RAISE, REPLICATED, SPLIT
from vllm.v1.kv_cache_interface import AttentionSpec

from patchline.kv_heads import Layer

SHARED_PAGES = {"hybrid": True, "num_blocks": 16, "push": True}

# Pages of both kinds are of one size at TP1 and at TP2.
S, F = Layer(8, 32, "sliding"), Layer(2, 128)

# Decode's regions hold the first five S and F together, and the last two S alone. The
# first stage's last two regions hold an S alone, the second stage's regions an S and an
# F each: so either side may share pages that the other one does not.
STAGED = (S, S, S, S, F, F, S, S, S, F, F, F)


def own_blocks(engine: Engine, first: int) -> tuple[list[int], ...]:
    """One block for each cache group, none of them shared."""
    return tuple([first + i] for i in range(max(engine.group_of.values()) + 1))


def assert_moves_shared_pages(p: Engine, d: Engine) -> None:
    blocks = own_blocks(p, 1), own_blocks(d, 8)
    transfer(p, d, *blocks)
    assert_landed(p, d, *blocks)


# ---- Regions that are matched by layer name: push from pipeline stages, pages shared ----


@pytest.mark.unchanged
@pytest.mark.parametrize("tp", [1, 2])
def test_stages_and_decode_share_different_pages(tp):
    p, d = prefill(STAGED, tp, pp=2, **SHARED_PAGES), decode(STAGED, tp, **SHARED_PAGES)
    with pair(p, d):
        assert_moves_shared_pages(p, d)


@pytest.mark.unchanged
@pytest.mark.parametrize("tp", [1, 2])
def test_stages_share_other_pages_than_a_stock_decode(tp):
    p, d = prefill(STAGED, tp, pp=2, **SHARED_PAGES), decode(STAGED, tp, **SHARED_PAGES).as_stock()
    with pair(p, d):
        assert_moves_shared_pages(p, d)


@pytest.mark.unchanged
def test_layers_of_one_head_count_that_stages_share():
    layers = S, Layer(8, 32), Layer(8, 32, "sliding"), Layer(8, 32)
    p, d = prefill(layers, 2, pp=2, **SHARED_PAGES), decode(layers, 2, **SHARED_PAGES)
    with pair(p, d):
        assert_moves_shared_pages(p, d)


@pytest.mark.holds(stock=DID_NOT_RAISE)
def test_false_count_of_a_region_that_stages_match_by_layer_name():
    layers = S, Layer(8, 32), S, Layer(8, 32)
    p, d = prefill(layers, 1, pp=2, **SHARED_PAGES), decode(layers, 1, **SHARED_PAGES)
    d.change_metadata(lambda metadata: metadata.update(region_kv_heads=[7, 8]))
    with pair(p, d):
        with pytest.raises(RuntimeError, match=f"contradict its block lengths.*{layer_name(0)}: 8 KV heads.* 7 in"):
            connect(p, d)
        assert_nothing_moved(p, d)


# ---- Equal TPs: blocks move whole, whatever the head counts ----


@pytest.mark.unchanged
@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize(
    "options",
    [{"block_size": 2 * BLOCK_SIZE}, {"layout": "LBNHC", "enable_permute_local_kv": True}],
    ids=["block-size", "layout"],
)
def test_engines_of_equal_tp_that_rearrange_after_the_transfer_still_connect(options, tp):
    p, d = prefill(SMALL, tp), decode(SMALL, tp, **options)
    with pair(p, d):
        connect(d, p)


# ---- K and V in separate head slots ----


def separate_slots(spec: AttentionSpec) -> AttentionSpec:
    return replace(spec, num_head_slots=2, state_content_bytes=spec.num_kv_heads * spec.head_size * 4)


def separate_slots_of_global_layers(spec: AttentionSpec) -> AttentionSpec:
    return separate_slots(spec) if spec.head_size == SMALL[5].head_size else spec


@pytest.mark.holds(stock=SPLIT)
@pull_and_push
def test_separate_slots_are_no_hindrance_where_they_move_whole(push):
    # A global layer has one head on a rank on both sides.
    options = {"change_spec": separate_slots_of_global_layers, "push": push}
    p, d = prefill(SMALL, 2, **options), decode(SMALL, 4, **options)
    with pair(p, d):
        transfer(p, d)
        assert_landed(p, d)


@pytest.mark.unchanged
@pull_and_push
@pytest.mark.parametrize(("prefill_tp", "decode_tp"), [(1, 2), (2, 1)])
def test_separate_slots_of_a_uniform_model_stay_as_on_stock(prefill_tp, decode_tp, push):
    options = {"change_spec": separate_slots, "push": push}
    p, d = prefill(UNIFORM, prefill_tp, **options), decode(UNIFORM, decode_tp, **options)
    with pair(p, d):
        connect(*((p, d) if push else (d, p)))


# ---- A stock peer that holds copied heads ----


@pytest.mark.holds(stock=REPLICATED)
def test_stock_decode_that_holds_copied_heads_is_refused_for_the_layer_that_does_not_fit():
    # Both layers have one head on a decode rank. By the model-wide count a decode block of
    # layer 0 is half of prefill's, which is right, and one of layer 1 too: that is not.
    layers = Layer(4, 32), Layer(2, 64)
    p, d = prefill(layers, 2, push=True), decode(layers, 8, push=True).as_stock()
    with pair(p, d):
        with pytest.raises(RuntimeError, match=rf"does not fit every layer \(layer {layer_name(1)}"):
            connect(p, d)
        assert_nothing_moved(p, d)
