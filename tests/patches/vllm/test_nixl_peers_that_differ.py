"""NIXL connector: a peer that runs stock vLLM, or whose head counts are not what they should be.

Whatever a peer says, a request is refused before a byte is posted, or every byte lands
where `patchline.kv_heads` says.
"""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from nixl_engine import Engine
from nixl_landing import assert_nothing_moved
from nixl_models import MLA, SMALL, UNIFORM, Layers, layer_name
from nixl_outcome import attempt, raise_if, record
from nixl_pair import connect, decode, pair, prefill, pull_and_push
from nixl_stock import DID_NOT_RAISE, SERVED, SMALLER_DECODE, SPLIT, heads_on, mark, on_stock, on_the_overlay

from patchline.kv_heads import Layer

CONTRADICT = r"advertised region_kv_heads that contradict its block lengths or TP"
SHARED = r"pages that layers of different KV head counts share"
UNREADABLE = r"Failed to decode NixlAgentMetadata. Error: Expected `(int|array \| null)`, got "

PAIR = (Layer(8, 32, "sliding"), Layer(2, 64))


def engines(layers: Layers, prefill_tp: int, decode_tp: int, push: bool) -> tuple[Engine, Engine]:
    return prefill(layers, prefill_tp, push=push), decode(layers, decode_tp, push=push)


def set_field(engine: Engine, value: Any) -> None:
    engine.change_metadata(lambda metadata: metadata.update(region_kv_heads=value))


# ---- Peers without the field, and with a true one ----


@pytest.mark.unchanged
@pull_and_push
@pytest.mark.parametrize("stock_side", ["prefill", "decode"])
@pytest.mark.parametrize(
    ("heads", "layers", "prefill_tp", "decode_tp"),
    [
        pytest.param("8/2", SMALL, 1, 1, id="mixed-equal-TP"),
        pytest.param("8/2", SMALL, 4, 4, id="mixed-equal-TP-replicated"),
        pytest.param("8/2", SMALL, 1, 2, id="mixed-all-heads-divide"),
        pytest.param("8/2/MLA", (*SMALL, MLA), 1, 2, id="mixed-and-MLA"),
        pytest.param("8", UNIFORM, 1, 2, id="uniform"),
        pytest.param("8", UNIFORM, 4, 2, id="uniform-smaller-decode-TP"),
        pytest.param("MLA", (MLA, MLA), 1, 2, id="MLA"),
    ],
)
def test_stock_peer_is_served_as_on_stock(heads, layers, prefill_tp, decode_tp, stock_side, push, record_property):
    p, d = engines(layers, prefill_tp, decode_tp, push)
    (p if stock_side == "prefill" else d).as_stock()
    with pair(p, d):
        outcome = attempt(p, d)
        record(outcome, p, d, heads, record_property)
        raise_if(outcome)


@pytest.mark.holds(stock=SPLIT)
@pull_and_push
@pytest.mark.parametrize(("prefill_tp", "decode_tp"), [(2, 4), (1, 4)])
def test_stock_peer_is_refused_where_model_wide_sizing_is_wrong(prefill_tp, decode_tp, push):
    p, d = engines(SMALL, prefill_tp, decode_tp, push)
    reader, peer = (p, d) if push else (d, p)
    peer.as_stock()
    with pair(p, d):
        text = rf"{peer.engine_id} does not advertise region_kv_heads.*{layer_name(5)}"
        with pytest.raises(RuntimeError, match=text):
            connect(reader, peer)
        assert_nothing_moved(p, d)


@pytest.mark.unchanged
@pytest.mark.parametrize("decode_tp", [8, 16])
def test_stock_peer_is_refused_in_the_words_of_stock_where_no_rank_knows_of_mixed_layers(decode_tp):
    # Each decode rank holds one head of every layer, and the peer does not say more.
    p, d = engines(SMALL, 1, decode_tp, False)
    p.as_stock()
    with pair(p, d), pytest.raises(AssertionError, match=SPLIT):
        raise_if(attempt(p, d))


def with_true_field(layers: Layers, prefill_tp: int, decode_tp: int, push: bool) -> Any:
    arguments = layers, prefill_tp, decode_tp, push
    return pytest.param(*arguments, marks=mark(on_stock(*arguments), on_the_overlay(*arguments)))


@pytest.mark.parametrize(
    ("layers", "prefill_tp", "decode_tp", "push"),
    [
        with_true_field(layers, *tps, push)
        for layers, tps, push in itertools.product((PAIR, UNIFORM), ((2, 2), (1, 2), (2, 4)), (False, True))
    ],
)
def test_true_field_beside_a_reader_that_may_not_know_it(layers, prefill_tp, decode_tp, push):
    # On stock this is a stock engine that meets an overlay engine: it ignores the field.
    p, d = engines(layers, prefill_tp, decode_tp, push)
    for engine in (p, d):
        set_field(engine, heads_on(layers, engine.tp))
    with pair(p, d):
        raise_if(attempt(p, d))


@pytest.mark.holds(stock=SPLIT)
def test_peer_at_a_larger_TP_than_told_is_refused_though_its_field_is_true():
    # Both sides hold two heads of the first layer, which no rank of TP1 does.
    layers = (Layer(4, 32), Layer(2, 64))
    p, d = engines(layers, 2, 2, False)
    p.tp = 1
    with pair(p, d):
        with pytest.raises(RuntimeError, match=CONTRADICT):
            connect(d, p)
        assert_nothing_moved(p, d)


@pytest.mark.unchanged
def test_stock_peer_with_another_block_length_is_refused_in_the_words_of_stock_where_heads_are_replicated():
    p, d = engines(UNIFORM, 16, 16, False)
    p.as_stock().change_metadata(
        lambda metadata: metadata.update(block_lens=[2 * size for size in metadata["block_lens"]])
    )
    with pair(p, d):
        with pytest.raises(AssertionError, match="must match between P and D when replicated"):
            connect(d, p)
        assert_nothing_moved(p, d)


# ---- Peers whose field is not true ----

Lie = Callable[[list[int]], Any]

FALSE: dict[str, Lie] = {
    "scaled-up": lambda heads: [2 * n for n in heads],
    "scaled-down": lambda heads: [n // 2 for n in heads],
    "scaled-hugely": lambda heads: [n << 40 for n in heads],
    "swapped": lambda heads: heads[::-1],
    "one-more": lambda heads: [*heads[:-1], heads[-1] + 1],
    "one-less": lambda heads: [*heads[:-1], heads[-1] - 1],
    "first-one-more": lambda heads: [heads[0] + 1, *heads[1:]],
    "all-zero": lambda heads: [0] * len(heads),
    "one-zero": lambda heads: [*heads[:-1], 0],
    "negative": lambda heads: [-n for n in heads],
    "huge": lambda heads: [*heads[:-1], 1 << 40],
    "beyond-64-bits": lambda heads: [*heads[:-1], (1 << 64) - 1],
    "all-one": lambda heads: [1] * len(heads),
    "one-count-for-all": lambda heads: [heads[0]] * len(heads),
    "shared-marker": lambda heads: [*heads[:-1], -1],
    "all-shared-markers": lambda heads: [-1] * len(heads),
}
WRONG_NUMBER: dict[str, Lie] = {
    "too-few": lambda heads: heads[:-1],
    "too-many": lambda heads: [*heads, heads[-1]],
    "none-at-all": lambda heads: [],
}
WRONG_TYPE: dict[str, Lie] = {
    "strings": lambda heads: [str(n) for n in heads],
    "nested": lambda heads: [heads],
    "nested-each": lambda heads: [[n] for n in heads],
    "none-entry": lambda heads: [*heads[:-1], None],
    "fractions": lambda heads: [n + 0.5 for n in heads],
    "floats": lambda heads: [float(n) for n in heads],
    "booleans": lambda heads: [True for _ in heads],
    "number": lambda heads: heads[0],
    "text": lambda heads: "8,2",
    "map": lambda heads: {"0": 8},
}
LAYOUTS = {
    "8/2-TP1-TP2": (PAIR, 1, 2),
    "8/2-TP2-TP4": (PAIR, 2, 4),
    "8/2-TP2-TP2": (PAIR, 2, 2),
    "8-TP2-TP1": (UNIFORM, 2, 1),
}


def on_overlay(lie: str, layout: str, push: bool) -> str:
    """What the overlay says to a peer that it reads from, or writes to."""
    layers, *tps = LAYOUTS[layout]
    truth = heads_on(layers, tps[1] if push else tps[0])
    told = FALSE[lie](truth)
    if told == truth:
        return SERVED
    # A pull that reads from more ranks than it has may first hear of layers that differ.
    contradict = f"{CONTRADICT}|{SMALLER_DECODE.format(tps[1], tps[0])}" if tps[1] < tps[0] else CONTRADICT
    if -1 in told and tps[0] != tps[1]:
        return f"{SHARED}|{contradict}"
    # At equal TPs blocks are copied whole, those of shared pages too.
    if all(said in (-1, held) for said, held in zip(told, truth, strict=True)):
        return SERVED
    return contradict


def lie(name: str, layout: str, push: bool) -> Any:
    stock, overlay = on_stock(*LAYOUTS[layout], push), on_overlay(name, layout, push)
    side = "decode" if push else "prefill"
    return pytest.param(name, layout, push, overlay, marks=mark(stock, overlay), id=f"{layout}-{side}-{name}")


@pytest.mark.parametrize(
    ("name", "layout", "push", "refused"),
    [lie(*values) for values in itertools.product(FALSE, LAYOUTS, (False, True))],
)
def test_false_counts(name, layout, push, refused):
    p, d = engines(*LAYOUTS[layout], push)
    liar = d if push else p
    set_field(liar, FALSE[name](heads_on(liar.layers, liar.tp)))
    with pair(p, d):
        outcome = attempt(p, d)
        if not refused:
            raise_if(outcome)
            return
        with pytest.raises(RuntimeError, match=refused):
            raise_if(outcome)
        assert_nothing_moved(p, d)


@pytest.mark.holds(stock=DID_NOT_RAISE)
@pytest.mark.parametrize("role", ["pull-prefill", "push-decode", "push-prefill"])
@pytest.mark.parametrize("name", WRONG_NUMBER | WRONG_TYPE)
def test_wrong_number_or_type_is_refused(name, role):
    p, d = engines(PAIR, 1, 2, role != "pull-prefill")
    liar = d if role == "push-decode" else p
    told = (WRONG_NUMBER | WRONG_TYPE)[name](heads_on(PAIR, liar.tp))
    set_field(liar, told)
    with pair(p, d):
        refused = f"advertised {len(told)} region_kv_heads for 2 regions" if name in WRONG_NUMBER else UNREADABLE
        with pytest.raises(RuntimeError, match=refused):
            raise_if(attempt(p, d))


@pytest.mark.unchanged
@pytest.mark.parametrize("name", [name for name in FALSE if "marker" not in name])
def test_push_decode_reads_nothing_of_what_prefill_tells_it(name):
    p, d = engines(PAIR, 1, 2, True)
    set_field(p, FALSE[name](heads_on(PAIR, 1)))
    with pair(p, d):
        raise_if(attempt(p, d))


# ---- Peers of another TP than told ----


@pytest.mark.holds(stock=SPLIT)
def test_head_counts_that_contradict_the_tp_are_refused():
    p, d = prefill(SMALL, 1), decode(SMALL, 4)
    p.payloads[0, 1] = p.payloads[0, 0]
    p.tp = 2  # what the router says; the engine that answers runs at TP 1
    with pair(p, d):
        with pytest.raises(RuntimeError, match=CONTRADICT):
            connect(d, p)
        assert_nothing_moved(p, d)


@pytest.mark.unchanged
def test_uniform_peer_of_another_tp_than_told():
    p, d = prefill(UNIFORM, 1).as_stock(), decode(UNIFORM, 4)
    p.payloads[0, 1] = p.payloads[0, 0]
    p.tp = 2
    with pair(p, d), pytest.raises(AssertionError, match=SPLIT):
        connect(d, p)
