"""NIXL connector: a draft that is split by head, under an MLA target, moves as upstream's 0.33.0 moves it.

Which regions are the draft's is told to the worker here; upstream's own tests hold that it finds them.
"""

from typing import Any

import nixl_032  # noqa: F401 - before any module of ../vllm
import pytest
from nixl_engine import Engine
from nixl_landing import assert_landed
from nixl_models import MLA
from nixl_pair import connect, decode, pair, prefill, transfer
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.base_worker import NixlBaseConnectorWorker

from patchline.kv_heads import Layer

DRAFT = Layer(8, 32)
LAYERS = MLA, DRAFT, Layer(8, 64)


@pytest.fixture
def _drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NixlBaseConnectorWorker, "_resolve_head_sharded_draft_kv_heads", lambda worker: DRAFT.heads)
    monkeypatch.setattr(
        NixlBaseConnectorWorker,
        "_get_head_sharded_draft_regions",
        lambda worker: {i for i, mla in enumerate(worker._region_is_mla) if not mla},
    )


def engines(prefill_tp: int, decode_tp: int, **options: Any) -> tuple[Engine, Engine]:
    return (
        prefill(LAYERS, prefill_tp, use_mla=True, model_heads=8, **options),
        decode(LAYERS, decode_tp, use_mla=True, model_heads=8, **options),
    )


@pytest.mark.unchanged
@pytest.mark.usefixtures("_drafts")
@pytest.mark.parametrize(
    ("prefill_tp", "decode_tp"), [(1, 1), (2, 2), (1, 2), (2, 4), (1, 8), (2, 8), (4, 16), (8, 16)]
)
def test_each_decode_rank_pulls_its_own_heads_of_the_draft(prefill_tp, decode_tp):
    p, d = engines(prefill_tp, decode_tp)
    with pair(p, d):
        transfer(p, d)
        assert_landed(p, d)
        assert all(worker.connector_worker.draft_tp_mappings for worker in d.connectors.values())


@pytest.mark.unchanged
@pytest.mark.usefixtures("_drafts")
def test_smaller_decode_tp_is_refused_in_the_words_of_stock():
    p, d = engines(2, 1)
    with pair(p, d), pytest.raises(NotImplementedError, match="head-sharded draft KV under an MLA target requires"):
        connect(d, p)


@pytest.mark.unchanged
@pytest.mark.usefixtures("_drafts")
@pytest.mark.parametrize(
    ("prefill_tp", "decode_tp", "refused"),
    [(1, 2, "requires local TP >= remote TP"), (2, 1, "push mode does not support a head-sharded draft")],
)
def test_push_to_another_tp_is_refused_in_the_words_of_stock(prefill_tp, decode_tp, refused):
    p, d = engines(prefill_tp, decode_tp, push=True)
    with pair(p, d), pytest.raises(NotImplementedError, match=refused):
        connect(p, d)
