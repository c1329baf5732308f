"""NIXL connector: the tests of ``test_nixl_per_region_kv_heads.py``, as they are since vLLM 0.32.0.

What is rearranged after the transfer is right there, so a pull of it is served.
"""

import pytest
from nixl_032 import CONNECTOR_VERSION, taken_from
from nixl_landing import assert_landed, assert_nothing_moved
from nixl_models import SMALL
from nixl_pair import connect, decode, pair, prefill, transfer
from nixl_stock import SPLIT
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.metadata import NIXL_CONNECTOR_VERSION

globals().update(
    taken_from(
        "test_nixl_per_region_kv_heads",
        but=(
            "test_what_is_rearranged_after_the_transfer_is_refused",
            "test_a_stock_peer_can_read_the_handshake",
        ),
    )
)


PERMUTED = {"layout": "LBNHC", "enable_permute_local_kv": True}


@pytest.mark.holds(stock=SPLIT)
@pytest.mark.parametrize(
    ("options", "blocks"),
    [
        ({"block_size": 64}, (([1, 3, 2, 0],), ([2, 1],))),
        ({"block_size": 64}, (([1, 3, 2],), ([2, 1],))),
        (PERMUTED, (([1, 3],), ([2, 1],))),
        ({"block_size": 64, **PERMUTED}, (([1, 3, 2, 0],), ([2, 1],))),
    ],
    ids=["block-size", "block-size-last-block-half-filled", "layout", "both"],
)
@pytest.mark.parametrize(("prefill_tp", "decode_tp"), [(2, 4), (1, 8)])
def test_what_is_rearranged_after_the_transfer_lands_rightly(prefill_tp, decode_tp, options, blocks):
    p, d = prefill(SMALL, prefill_tp), decode(SMALL, decode_tp, **options)
    with pair(p, d):
        transfer(p, d, *blocks)
        assert_landed(p, d, *blocks)


@pytest.mark.holds(stock=SPLIT)
def test_push_between_unequal_layouts_is_refused():
    p, d = prefill(SMALL, 2, push=True, **PERMUTED), decode(SMALL, 4, push=True)
    with pair(p, d):
        with pytest.raises(NotImplementedError, match="only between equal KV cache layouts: local LBNHC, remote LBHNC"):
            connect(p, d)
        assert_nothing_moved(p, d)


@pytest.mark.unchanged
def test_stock_peers_handshake_can_be_read():
    assert NIXL_CONNECTOR_VERSION == CONNECTOR_VERSION, "another version refuses every stock peer"
