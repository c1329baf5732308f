"""What stock vLLM 0.31.0 serves, what the overlay does, and how a test of both is marked.

Stock sizes every layer by the model-wide count of KV heads. Which pairs are right, and
which bytes, is not said here but by `patchline.kv_heads`.
"""

from typing import Any

import pytest
from nixl_models import Layers

from patchline.kv_heads import Side, held, refusal

BLOCK = 32
SERVED = ""
DID_NOT_RAISE = "DID NOT RAISE"
SPLIT = r"SPLIT region \d+: remote P KV block_len \d+ must equal local \d+ \* remote_heads"
REPLICATED = r"bare assertion in the handshake: .*tp_ratio < 0 and .*kv_replicated"
SIZES = "KV cache sizes must match between P and D when replicated"
SMALLER_DECODE = "NIXL cannot serve decode TP {} < prefill TP {} when layers have different KV head counts"


def heads_on(layers: Layers, tp: int) -> list[int]:
    """KV heads that a rank holds of each layer that is split by head."""
    return [len(held(layer, tp, 0)) for layer in layers if layer.kind != "mla"]


def on_stock(layers: Layers, prefill_tp: int, decode_tp: int, push: bool) -> str:
    """What stock refuses a pair with, if it does: it sizes every layer by the first one's heads."""
    local, remote = (prefill_tp, decode_tp) if push else (decode_tp, prefill_tp)
    ours, theirs = heads_on(layers, local), heads_on(layers, remote)
    if local == remote or not ours:
        return SERVED
    if remote > layers[0].heads:
        return REPLICATED if remote > local else SERVED if ours == theirs else SIZES
    fits = all(theirs[0] * mine == ours[0] * other for mine, other in zip(ours, theirs, strict=True))
    return SERVED if fits else SPLIT


def on_the_overlay(layers: Layers, prefill_tp: int, decode_tp: int, push: bool) -> str:
    """What the overlay refuses a pair with: the model's answer, where some rank can tell that layers differ.

    Where each rank of both sides holds one head of every layer, none can, and none needs to:
    blocks are copied whole. There stock is right, or refuses the pair in its own words.
    """
    if all(len({*heads_on(layers, tp)}) <= 1 for tp in (prefill_tp, decode_tp)):
        return on_stock(layers, prefill_tp, decode_tp, push)
    if refusal(layers, Side(prefill_tp, BLOCK), Side(decode_tp, BLOCK)):
        return SMALLER_DECODE.format(decode_tp, prefill_tp)
    return SERVED


def mark(stock: str, overlay: str) -> Any:
    """The mark of a case that stock and the overlay refuse with these patterns; an empty one: served."""
    return pytest.mark.unchanged if stock == overlay else pytest.mark.holds(stock=stock or DID_NOT_RAISE)
