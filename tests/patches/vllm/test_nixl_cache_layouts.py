"""NIXL connector: cache layouts and block sizes that differ, or that are not cut by head.

What stock serves rightly stays so. Where stock lands wrong bytes, or dies after it has
landed right ones, a test of that name says what really happens: the overlay neither
mends nor worsens it, except that it refuses such pairs where layers' head counts differ.
"""

from typing import Any

import pytest
from nixl_engine import Blocks
from nixl_landing import assert_landed, assert_nothing_moved, bytes_posted
from nixl_models import MLA, SMALL, UNIFORM
from nixl_outcome import attempt, raise_if, record
from nixl_pair import decode, pair, prefill, transfer

from patchline.kv_heads import Layer

TOKEN_MAJOR = {"layout": "LBNHC"}
PERMUTED = {"layout": "LBNHC", "enable_permute_local_kv": True}
LARGE = {"block_size": 64}

FOUR_HEADS = (Layer(4, 32),) * 2
EIGHT_TO_TWO = (Layer(8, 32, "sliding"), Layer(2, 64))

NOT_CONTIGUOUS = "Heterogeneous TP head-dimension splitting requires contiguous heads"
OTHER_LAYOUT = "Heterogeneous TP expects same kv_cache_layout"
NOT_DIVISIBLE = r"Local block size \d+ is not divisible by remote block size \d+"
LARGER_BLOCKS: tuple[Blocks, Blocks] = ([1, 3, 2, 0],), ([2, 1],)
"""Four blocks of prefill fill two of decode."""


def pairs(*values: tuple[Any, ...]) -> Any:
    """Cases: heads, layers, prefill TP, decode TP, push."""
    return pytest.mark.parametrize(("heads", "layers", "prefill_tp", "decode_tp", "push"), values)


# ---- Token-major layout on both sides ----


@pytest.mark.unchanged
@pairs(
    *[(*model, 2, 2, push) for model in (("8", UNIFORM), ("8/2", SMALL)) for push in (False, True)],
    *[("MLA", (MLA,), *tps, push) for tps in ((2, 2), (2, 4), (4, 2)) for push in (False, True)],
    ("4", FOUR_HEADS, 8, 16, False),
    ("4", FOUR_HEADS, 16, 8, True),
)
def test_token_major_blocks_move_whole(heads, layers, prefill_tp, decode_tp, push, record_property):
    p, d = (make(layers, tp, push=push, **TOKEN_MAJOR) for make, tp in ((prefill, prefill_tp), (decode, decode_tp)))
    with pair(p, d):
        outcome = attempt(p, d)
        record(outcome, p, d, heads, record_property)
        raise_if(outcome)


@pytest.mark.unchanged
@pairs(
    *[("8", UNIFORM, *tps, push) for tps in ((2, 4), (4, 2)) for push in (False, True)],
    ("8", UNIFORM, 8, 16, False),
    ("8/2", EIGHT_TO_TWO, 1, 2, False),
    ("8/2", EIGHT_TO_TWO, 1, 2, True),
)
def test_token_major_blocks_are_not_cut(heads, layers, prefill_tp, decode_tp, push):
    p, d = (make(layers, tp, push=push, **TOKEN_MAJOR) for make, tp in ((prefill, prefill_tp), (decode, decode_tp)))
    with pair(p, d), pytest.raises(RuntimeError, match=NOT_CONTIGUOUS):
        raise_if(attempt(p, d))


# ---- Head-major prefill, token-major decode that permutes ----


@pytest.mark.unchanged
@pairs(
    ("8", UNIFORM, 8, 8, False),
    ("8", UNIFORM, 8, 16, False),
    *[("MLA", (MLA,), *tps, push) for tps in ((2, 2), (2, 4)) for push in (False, True)],
)
def test_permuted_layout_is_right_where_a_rank_holds_one_head(heads, layers, prefill_tp, decode_tp, push):
    p, d = prefill(layers, prefill_tp, push=push), decode(layers, decode_tp, push=push, **PERMUTED)
    with pair(p, d):
        raise_if(attempt(p, d))


@pytest.mark.unchanged
@pairs(*[("8", UNIFORM, *tps, False) for tps in ((2, 2), (1, 2), (2, 1))], ("8/2", SMALL, 2, 2, False))
def test_upstream_bug_permuted_layout_lands_wrong_bytes(heads, layers, prefill_tp, decode_tp, push):
    # kv_postprocess_layout_on_receive takes its cache for [block, token, head, channel].
    p, d = prefill(layers, prefill_tp, push=push), decode(layers, decode_tp, push=push, **PERMUTED)
    with pair(p, d):
        outcome = attempt(p, d)
        assert outcome.text == "wrong bytes", outcome


@pytest.mark.unchanged
@pytest.mark.parametrize("layers", [UNIFORM, EIGHT_TO_TWO], ids=["8", "8/2"])
def test_upstream_bug_push_from_a_permuting_prefill_lands_wrong_bytes(layers):
    # The prefill side promises to permute its own blocks on receive, and writes them as they are.
    p, d = prefill(layers, 2, push=True, **PERMUTED), decode(layers, 2, push=True)
    with pair(p, d):
        outcome = attempt(p, d)
        assert outcome.text == "wrong bytes", outcome


@pytest.mark.unchanged
def test_layouts_that_differ_are_refused_where_nobody_permutes():
    for push in (False, True):
        p, d = prefill(UNIFORM, 2, push=push), decode(UNIFORM, 2, push=push, **TOKEN_MAJOR)
        with pair(p, d), pytest.raises(RuntimeError, match=OTHER_LAYOUT):
            raise_if(attempt(p, d))


@pytest.mark.holds(stock="holds wrong bytes")
@pytest.mark.parametrize(("prefill_tp", "decode_tp"), [(1, 2), (2, 1)])
def test_mixed_layers_are_not_cut_and_permuted(prefill_tp, decode_tp):
    p, d = prefill(EIGHT_TO_TWO, prefill_tp), decode(EIGHT_TO_TWO, decode_tp, **PERMUTED)
    with pair(p, d):
        with pytest.raises(NotImplementedError, match=r"when layers have different KV head counts|equal block sizes"):
            raise_if(attempt(p, d))
        assert_nothing_moved(p, d)


# ---- Block sizes ----


@pytest.mark.unchanged
@pytest.mark.parametrize(("prefill_tp", "decode_tp"), [(1, 1), (1, 2), (2, 1)])
def test_larger_decode_blocks_are_right_for_mla_where_all_are_filled(prefill_tp, decode_tp):
    p, d = prefill((MLA,), prefill_tp), decode((MLA,), decode_tp, **LARGE)
    with pair(p, d):
        raise_if(attempt(p, d, *LARGER_BLOCKS))


@pytest.mark.unchanged
def test_upstream_bug_larger_decode_block_of_mla_is_cleared_where_half_is_filled():
    # The tail is looked for on the cache's second axis: that is the one head, not the tokens.
    p, d = prefill((MLA,), 1), decode((MLA,), 1, **LARGE)
    with pair(p, d):
        outcome = attempt(p, d, ([1, 3, 2],), ([2, 1],))
        assert outcome.text == "wrong bytes", outcome
        assert not d.pages((0, 0), 0, d.memory[0, 0])[1].any()


@pytest.mark.unchanged
@pytest.mark.parametrize("layout", ["LBHNC", "LBNHC"])
@pairs(("8", UNIFORM, 1, 1, False), ("8", UNIFORM, 1, 2, False), ("8/2", EIGHT_TO_TWO, 1, 1, False))
def test_upstream_bug_larger_decode_blocks_land_wrong_bytes(heads, layers, prefill_tp, decode_tp, push, layout):
    # kv_postprocess_blksize_on_receive takes its cache for [block, token, head, channel].
    if layout == "LBNHC" and prefill_tp != decode_tp:
        layout = "LBHNC"
    p, d = prefill(layers, prefill_tp, layout=layout), decode(layers, decode_tp, layout=layout, **LARGE)
    with pair(p, d):
        outcome = attempt(p, d, *LARGER_BLOCKS)
        assert outcome.text == "wrong bytes", outcome


@pytest.mark.holds(stock=r"\d+ bytes were posted before the refusal: shape .* is invalid for input")
def test_mixed_layers_are_not_cut_into_larger_decode_blocks():
    p, d = prefill(EIGHT_TO_TWO, 1), decode(EIGHT_TO_TWO, 2, **LARGE)
    with pair(p, d):
        with pytest.raises(NotImplementedError, match="equal block sizes"):
            raise_if(attempt(p, d, *LARGER_BLOCKS))
        assert_nothing_moved(p, d)


@pytest.mark.unchanged
@pytest.mark.parametrize(("layers", "decode_tp"), [(UNIFORM, 1), (UNIFORM, 2), ((MLA,), 2)])
def test_pull_refuses_smaller_decode_blocks(layers, decode_tp):
    p, d = prefill(layers, 1, **LARGE), decode(layers, decode_tp)
    with pair(p, d), pytest.raises(AssertionError, match=NOT_DIVISIBLE):
        raise_if(attempt(p, d, ([1, 3],), ([2, 1, 3, 0],)))


@pytest.mark.unchanged
@pytest.mark.parametrize(("layers", "decode_tp"), [(UNIFORM, 1), (UNIFORM, 2), ((MLA,), 2)])
def test_push_refuses_larger_decode_blocks(layers, decode_tp):
    p, d = prefill(layers, 1, push=True), decode(layers, decode_tp, push=True, **LARGE)
    with pair(p, d), pytest.raises(AssertionError, match=NOT_DIVISIBLE):
        raise_if(attempt(p, d, *LARGER_BLOCKS))


@pytest.mark.unchanged
@pytest.mark.parametrize(("layers", "right"), [((MLA,), True), (UNIFORM, False)], ids=["MLA-right", "8-wrong"])
def test_upstream_bug_decode_dies_after_larger_prefill_blocks_were_pushed(layers, right):
    # Its own handshake does not compare block sizes; its step after the last byte does.
    p, d = prefill(layers, 1, push=True, **LARGE), decode(layers, 1, push=True)
    blocks = ([1, 3],), ([2, 1, 3, 0],)
    with pair(p, d):
        with pytest.raises(AssertionError, match=NOT_DIVISIBLE):
            transfer(p, d, *blocks)
        assert bytes_posted(p, d) == sum(memory.nbytes for memory in d.memory.values())
        if right:
            assert_landed(p, d, *blocks)
            return
        with pytest.raises(AssertionError, match="holds wrong bytes"):
            assert_landed(p, d, *blocks)
