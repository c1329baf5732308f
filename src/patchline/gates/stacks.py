"""What an engine pair does with a layout: stock vLLM 0.28.0 and 0.31.0, and 0.31.0 with the overlay, by rule.

The rules are read from the versions' sources (`nixl/base_worker.py`, `_validate_remote_agent_handshake`, the same in
both but for pipeline stages and context parallelism) and from the patches. Those of 0.31.0 and of the overlay are held
byte for byte by the patches' tests on real connector workers (`tests/patches/vllm/nixl_stock.py`). They are for the
pull connector (`NixlConnector`), equal block sizes and the head-major cache layout on both sides, without pipeline
stages and context parallelism.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from patchline.gates.model_config import Model
from patchline.kv_heads import Layer, Side, block_bytes, held, refusal

STOCK_28, STOCK_31, OVERLAY = "stock 0.28", "stock 0.31", "overlay"
STACKS = (STOCK_28, STOCK_31, OVERLAY)

HYBRID_BY_DEFAULT = {STOCK_28: True, STOCK_31: False, OVERLAY: False}
"""Whether the hybrid KV-cache manager is on where nobody says.

On is vLLM's own default, and what 0.28's wrong answers were seen with; off is what both engines need for unequal TPs.
"""


class Outcome(StrEnum):
    """What becomes of a request."""

    SERVES = "serves"
    REFUSES = "refuses"
    """It fails with an error; no token is given."""
    WRONG = "wrong"
    """HTTP 200 and wrong text: the handshake fails and the request goes on without its KV, or wrong bytes are read."""
    UNSAFE = "unsafe"
    """It is refused, or answered wrongly where lengths happen to agree; the rules do not say which."""
    UNKNOWN = "unknown"
    """Not modelled."""


class Judgement(NamedTuple):
    """An outcome, and why: empty where nothing is to be said."""

    outcome: Outcome
    why: str = ""


class Pair(NamedTuple):
    """One layout, on both sides of which blocks have `block_size` tokens."""

    prefill: int
    """TP of the engine that is read."""
    decode: int
    """TP of the engine that reads."""
    block_size: int


def judge(stack: str, model: Model, pair: Pair, *, hybrid: bool) -> Judgement:
    """What `stack`, one of `STACKS`, does with a pair; `hybrid`: the hybrid KV-cache manager is on, on either side."""
    if why := _does_not_start(model, pair):
        return Judgement(Outcome.REFUSES, why)
    if pair.prefill == pair.decode:
        return Judgement(Outcome.SERVES)  # blocks are copied whole
    if model.state_layers:
        return Judgement(Outcome.UNKNOWN, "state layers at unequal TPs are not modelled")
    if stack == OVERLAY and _told_apart(model, pair):
        prefill, decode = Side(pair.prefill, pair.block_size), Side(pair.decode, pair.block_size)
        return _refused_if(refusal(model.layers, prefill, decode, hybrid=hybrid))
    why = handshake(model, pair)
    if not why or stack == OVERLAY:
        return _refused_if(why)
    return _on_28(model, why, hybrid=hybrid) if stack == STOCK_28 else _on_31(model, pair, why, hybrid=hybrid)


def handshake(model: Model, pair: Pair) -> str:
    """The error that stock's handshake ends with at unequal TPs, in its own words; empty where it passes.

    Stock sizes every layer's slice by one count, the largest of the model. Pages are those of the hybrid manager off.
    """
    total = max((layer.heads for layer in model.layers if layer.kind != "mla"), default=0)
    if not total:
        return ""  # an MLA model's cache is whole on every rank
    if pair.prefill > total and pair.prefill > pair.decode:
        return (
            f"AssertionError without a text: decode TP{pair.decode} < prefill TP{pair.prefill}, "
            f"which is more than {total} KV heads"
        )
    wrong = (_region(region, layer, model.itemsize, total, pair) for region, layer in enumerate(model.layers))
    return next(filter(None, wrong), "")


def _region(region: int, layer: Layer, itemsize: int, total: int, pair: Pair) -> str:
    """What stock says of one region's blocks, by their bytes (`block_len`) on both sides."""
    ours, theirs = (block_bytes(layer, Side(tp, pair.block_size), itemsize) for tp in (pair.decode, pair.prefill))
    if pair.prefill > total:
        if ours == theirs:
            return ""
        return (
            "KV cache sizes must match between P and D when replicated "
            f"(region {region}: local={ours}, remote={theirs}, bsr=1)."
        )
    local, remote = max(1, total // pair.decode), max(1, total // pair.prefill)
    if theirs == ours * remote // local:
        return ""
    end = " // block_size_ratio 1." if pair.decode > pair.prefill else "."
    return (
        f"SPLIT region {region}: remote P KV block_len {theirs} must equal local {ours} * remote_heads {remote} "
        f"// local_heads {local}{end}"
    )


def _does_not_start(model: Model, pair: Pair) -> str:
    """Why one of the engines does not start: heads that do not split over its ranks."""
    for side, tp in (("prefill", pair.prefill), ("decode", pair.decode)):
        if model.attention_heads % tp:
            return f"the {side} engine does not start: {model.attention_heads} attention heads do not split over TP{tp}"
        for layer in model.layers:
            if layer.heads % tp and tp % layer.heads and layer.kind != "mla":
                return f"the {side} engine does not start: {layer.heads} KV heads do not split over TP{tp}"
    return ""


def _told_apart(model: Model, pair: Pair) -> bool:
    """Whether the overlay's ranks see that layers differ: on one side at least they hold different numbers of heads."""
    layers = [layer for layer in model.layers if layer.kind != "mla"]
    return any(len({len(held(layer, tp, 0)) for layer in layers}) > 1 for tp in (pair.prefill, pair.decode))


def _refused_if(why: str) -> Judgement:
    return Judgement(Outcome.REFUSES, why) if why else Judgement(Outcome.SERVES)


def _on_28(model: Model, why: str, *, hybrid: bool) -> Judgement:
    """What 0.28 makes of a failed handshake.

    `_handle_failed_transfer` marks no block as invalid where the hybrid manager is needed, and the request goes on
    as if its blocks had come. Elsewhere they are invalid, and the request fails (`kv_load_failure_policy`).
    """
    if hybrid and any(layer.kind == "sliding" for layer in model.layers):
        return Judgement(Outcome.WRONG, why)
    return Judgement(Outcome.REFUSES, why)


def _on_31(model: Model, pair: Pair, why: str, *, hybrid: bool) -> Judgement:
    """What 0.31 makes of it: the request fails. Where layers share pages, lengths may agree all the same."""
    heads = {layer.heads for layer in model.layers if layer.kind != "mla"}
    if hybrid and len(heads) > 1 and not (pair.prefill > max(heads) and pair.prefill > pair.decode):
        return Judgement(
            Outcome.UNSAFE,
            "layers of different KV head counts share pages: refused on block sizes, or wrong bytes where lengths "
            "happen to agree",
        )
    return Judgement(Outcome.REFUSES, why)
