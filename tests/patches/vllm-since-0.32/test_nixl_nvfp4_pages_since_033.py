"""NIXL connector: NVFP4 pages, whose data and scales lie apart, are not cut by any region's head count."""

from dataclasses import replace

import nixl_032  # noqa: F401 - before any module of ../vllm
import pytest
from nixl_engine import Engine
from nixl_landing import assert_landed, assert_nothing_moved
from nixl_models import SMALL
from nixl_pair import connect, decode, pair, prefill, transfer
from nixl_stock import SIZES
from vllm.v1.kv_cache_interface import KVQuantMode

NOT_CUT = "KV-head re-sharding is not supported for NVFP4 KV cache"


def with_nvfp4(*engines: Engine) -> None:
    """Let every rank believe that its pages are NVFP4 ones."""
    for engine in engines:
        for connector in engine.connectors.values():
            specs = connector.connector_worker._layer_specs
            specs.update({name: replace(spec, kv_quant_mode=KVQuantMode.NVFP4) for name, spec in specs.items()})


@pytest.mark.holds(stock=SIZES)
def test_pages_are_not_cut_where_only_the_model_wide_count_is_equal():
    p, d = (make(SMALL, tp, model_heads=2) for make, tp in ((prefill, 4), (decode, 8)))
    with_nvfp4(p, d)
    with pair(p, d):
        with pytest.raises(RuntimeError, match=NOT_CUT):
            connect(d, p)
        assert_nothing_moved(p, d)


@pytest.mark.unchanged
def test_pages_are_not_cut_where_the_model_wide_count_differs():
    p, d = prefill(SMALL, 1), decode(SMALL, 2)
    with_nvfp4(p, d)
    with pair(p, d):
        with pytest.raises(RuntimeError, match=NOT_CUT):
            connect(d, p)
        assert_nothing_moved(p, d)


@pytest.mark.unchanged
def test_equal_tp_moves_whole_pages():
    p, d = prefill(SMALL, 2), decode(SMALL, 2)
    with_nvfp4(p, d)
    with pair(p, d):
        transfer(p, d)
        assert_landed(p, d)
