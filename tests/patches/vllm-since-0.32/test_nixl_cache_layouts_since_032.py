"""NIXL connector: the tests of ``test_nixl_cache_layouts.py``, as they are since vLLM 0.32.0.

Stock rearranges after a pull what 0.31.0 landed wrongly: other block sizes, and another
layout. So does the overlay, where layers' head counts differ, too.
"""

import pytest
from nixl_032 import taken_from
from nixl_models import MLA, SMALL, UNIFORM
from nixl_outcome import attempt, raise_if
from nixl_pair import decode, pair, prefill
from nixl_stock import DID_NOT_RAISE, SMALLER_DECODE
from test_nixl_cache_layouts import EIGHT_TO_TWO, LARGE, LARGER_BLOCKS, PERMUTED, pairs

globals().update(
    taken_from(
        "test_nixl_cache_layouts",
        but=(
            "test_upstream_bug_permuted_layout_lands_wrong_bytes",
            "test_upstream_bug_larger_decode_block_of_mla_is_cleared_where_half_is_filled",
            "test_upstream_bug_larger_decode_blocks_land_wrong_bytes",
            "test_mixed_layers_are_not_cut_and_permuted",
            "test_mixed_layers_are_not_cut_into_larger_decode_blocks",
        ),
    )
)


@pytest.mark.unchanged
@pairs(
    *[("8", UNIFORM, *tps, False) for tps in ((2, 2), (1, 2), (2, 1))],
    ("8/2", SMALL, 2, 2, False),
    ("8/2", EIGHT_TO_TWO, 1, 2, False),
)
def test_permuted_layout_is_right(heads, layers, prefill_tp, decode_tp, push):
    p, d = prefill(layers, prefill_tp), decode(layers, decode_tp, **PERMUTED)
    with pair(p, d):
        raise_if(attempt(p, d))


@pytest.mark.holds(stock=DID_NOT_RAISE)
def test_mixed_layers_are_not_permuted_for_a_smaller_decode_tp():
    p, d = prefill(EIGHT_TO_TWO, 2), decode(EIGHT_TO_TWO, 1, **PERMUTED)
    with pair(p, d), pytest.raises(NotImplementedError, match=SMALLER_DECODE.format(1, 2)):
        raise_if(attempt(p, d))


@pytest.mark.unchanged
@pytest.mark.parametrize("layout", ["LBHNC", "LBNHC"])
@pairs(
    ("8", UNIFORM, 1, 1, False),
    ("8", UNIFORM, 1, 2, False),
    ("8/2", EIGHT_TO_TWO, 1, 1, False),
    ("8/2", EIGHT_TO_TWO, 1, 2, False),
)
def test_larger_decode_blocks_are_right(heads, layers, prefill_tp, decode_tp, push, layout):
    if layout == "LBNHC" and prefill_tp != decode_tp:
        layout = "LBHNC"
    p, d = prefill(layers, prefill_tp, layout=layout), decode(layers, decode_tp, layout=layout, **LARGE)
    with pair(p, d):
        raise_if(attempt(p, d, *LARGER_BLOCKS))


@pytest.mark.unchanged
def test_larger_decode_block_of_mla_is_right_where_half_is_filled():
    p, d = prefill((MLA,), 1), decode((MLA,), 1, **LARGE)
    with pair(p, d):
        raise_if(attempt(p, d, ([1, 3, 2],), ([2, 1],)))
