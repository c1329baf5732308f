"""NIXL connector: the tests of ``test_nixl_hybrid_manager_guard.py``, with what they need since vLLM 0.32.0.

Stock no longer dies of the shared pages that it reads wrongly: it goes on with what it got.
"""

import pytest
from nixl_032 import taken_from
from nixl_landing import assert_nothing_moved
from nixl_outcome import attempt, raise_if
from nixl_pair import pair
from test_nixl_hybrid_manager_guard import FLAG, SILENT, engines, own_blocks

globals().update(
    taken_from(
        "test_nixl_hybrid_manager_guard",
        but=("test_pull_refuses_shared_pages_that_stock_reads_wrongly_before_it_dies",),
    )
)


@pytest.mark.holds(stock=r"^AssertionError: kv_consumer TP 4 rank 0 holds wrong bytes, \d+ of them")
def test_pull_refuses_shared_pages_that_stock_reads_wrongly():
    p, d = engines(SILENT, 2, 4)
    with pair(p, d):
        with pytest.raises(RuntimeError, match=f"layers of different KV head.*{FLAG}"):
            raise_if(attempt(p, d, own_blocks(p, 1), own_blocks(d, 8)))
        assert_nothing_moved(p, d)
