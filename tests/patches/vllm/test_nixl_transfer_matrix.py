"""NIXL connector: what every pair of prefill and decode TP moves, byte for byte, by pull and by push.

Whether a pair is served is said by `patchline.kv_heads`, a model that knows nothing of
vLLM, and so is every byte of it. What stock does is said in ``nixl_stock``.
"""

import itertools
from typing import Any

import pytest
from nixl_engine import Engine
from nixl_landing import assert_untouched, bytes_posted
from nixl_models import GEMMA4_31B, MLA, SMALL, UNIFORM
from nixl_outcome import attempt, raise_if, record
from nixl_pair import DECODE_BLOCKS, PREFILL_BLOCKS, REQUEST, decode, handshake, pair, prefill, registration
from nixl_stock import REPLICATED, mark, on_stock, on_the_overlay

TPS = (1, 2, 4, 8, 16)
HEADS = {"8": UNIFORM, "8/2": SMALL, "16/4": GEMMA4_31B, "8/2/MLA": (*SMALL, MLA)}

NARROW = "8/2"
"""Trials of single changes run these cases only; the others vary them."""


def case(heads: str, prefill_tp: int, decode_tp: int, push: bool) -> Any:
    arguments = HEADS[heads], prefill_tp, decode_tp, push
    stock, overlay = on_stock(*arguments), on_the_overlay(*arguments)
    name = f"{heads}-TP{prefill_tp}-TP{decode_tp}-{'push' if push else 'pull'}"
    marks = [mark(stock, overlay), *([] if heads == NARROW else [pytest.mark.wide])]
    return pytest.param(heads, prefill_tp, decode_tp, push, overlay, marks=marks, id=name)


@pytest.mark.parametrize(
    ("heads", "prefill_tp", "decode_tp", "push", "refused"),
    [case(*values) for values in itertools.product(HEADS, TPS, TPS, (False, True))],
)
def test_transfer(heads, prefill_tp, decode_tp, push, refused, record_property):
    p, d = prefill(HEADS[heads], prefill_tp, push=push), decode(HEADS[heads], decode_tp, push=push)
    with pair(p, d):
        outcome = attempt(p, d)
        record(outcome, p, d, heads, record_property)
        if refused:
            with pytest.raises((AssertionError, NotImplementedError), match=refused):
                raise_if(outcome)
            assert_every_rank_refuses(p, d, refused)
            return
        raise_if(outcome)
        # Several prefill ranks may push the same bytes to one decode rank.
        assert outcome.bytes_moved == outcome.bytes_landed or prefill_tp > decode_tp
        assert outcome.bytes_moved >= outcome.bytes_landed


def assert_every_rank_refuses(p: Engine, d: Engine, refused: str) -> None:
    """Not only the first rank that was asked; where prefill pushes, it also refuses to write."""
    if not p.push:
        assert_refuses(d, p, refused)
    elif refused == REPLICATED:
        assert_refuses(p, d, refused)
    else:
        assert_refuses(d, p, refused, notif_agents_only=True)
        for rank in range(p.tp):
            with pytest.raises(NotImplementedError, match=refused):
                p.worker(rank)._do_start_push_kv(REQUEST, PREFILL_BLOCKS, registration(p, d, DECODE_BLOCKS))
    assert not bytes_posted(p, d)
    assert_untouched(p, d)


def assert_refuses(local: Engine, remote: Engine, refused: str, **kind: Any) -> None:
    for rank in range(local.tp):
        with pytest.raises((AssertionError, NotImplementedError), match=refused):
            handshake(local.worker(rank), remote, **kind)
