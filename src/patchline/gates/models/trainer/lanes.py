"""Lanes: every head carries a part of a word that no other head carries, so no head can be wrong unseen.

Heads that are trained freely all carry the whole code, and a wrong one is outvoted: then seven of ten answers stay
right although one of two KV heads of the full layer is read from the wrong place. Here the bits of a word go separate
ways, from the embedding to the answer, and a head that reads what is not its own makes another code of it.

The model's dimensions are eight lanes, four that say of which kind a word is (mark, id, code), and spare ones:

- Words whose bit `n` is equal are equal in lane `n`; outside the lanes all ids are equal, and all codes.
- In sliding layer `l` the heads of lane `n` read and write that lane where `n % 5 == l`; all the others write into the
  spare dimensions. So each layer and each head is needed by some bit.
- In the full layer a head writes into its own lane. It looks everywhere but into the spare dimensions, where a
  sliding layer may have put a whole id.
- MLPs write into the spare dimensions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch  # type: ignore[import-not-found,unused-ignore]

from .words import BITS, COUNT, FIRST_CODE, FIRST_ID

WIDTH = 14
LANES = slice(0, BITS * WIDTH)
KIND = slice(LANES.stop, LANES.stop + 4)
"""Nothing writes here."""
SPARE = slice(KIND.stop, None)


class Mask(NamedTuple):
    """A weight, and which of its entries may be other than zero."""

    weight: Any
    allowed: Any


def dimensions(lane: int) -> slice:
    """Where a lane is."""
    return slice(lane * WIDTH, (lane + 1) * WIDTH)


def lane_of(head: int, heads: int) -> int:
    """The lane of a query head."""
    return head * BITS // heads


def prepare(model: Any) -> list[Mask]:
    """Gives the words their bits, and returns the masks that `keep` needs."""
    for table in _tables(model):
        for first in (FIRST_ID, FIRST_CODE):
            _scatter(table[first : first + COUNT])
    masks = [mask for layer in model.model.layers for mask in _masks(model, layer)]
    keep(model, masks)
    return masks


def keep(model: Any, masks: list[Mask]) -> None:
    """Puts the weights back on their lanes, after a step of training."""
    with torch.no_grad():
        for weight, allowed in masks:
            weight.mul_(allowed)
        for table in _tables(model):
            for first in (FIRST_ID, FIRST_CODE):
                _share(table[first : first + COUNT])


def _tables(model: Any) -> tuple[Any, Any]:
    return model.model.embed_tokens.weight, model.lm_head.weight


def _scatter(words: Any) -> None:
    """Two words stand for all: the mean of so many, as `_share` takes it, would be nearly nothing."""
    with torch.no_grad():
        for lane in range(BITS):
            bit = (torch.arange(COUNT) >> (BITS - 1 - lane)) & 1
            words[:, dimensions(lane)] = words[:2, dimensions(lane)][bit]


def _share(words: Any) -> None:
    """Takes, in every lane, the mean of the words with the same bit."""
    by_bit = words.view(*[2] * BITS, -1)
    for lane in range(BITS):
        part = by_bit[..., dimensions(lane)]
        part.copy_(part.mean([other for other in range(BITS) if other != lane], keepdim=True))
    words[:, LANES.stop :] = words[:, LANES.stop :].mean(0)


def _masks(model: Any, layer: Any) -> Iterator[Mask]:
    yield Mask(layer.mlp.down_proj.weight, _only(layer.mlp.down_proj.weight, SPARE))
    yield from (_sliding if layer.self_attn.is_sliding else _full)(layer.self_attn, model.config)


def _only(weight: Any, rows: slice) -> Any:
    allowed = torch.zeros_like(weight)
    allowed[rows] = 1
    return allowed


def _sliding(attention: Any, config: Any) -> Iterator[Mask]:
    size, heads = attention.head_dim, config.num_attention_heads
    sliding = config.layer_types.count("sliding_attention")
    reads, writes = torch.zeros_like(attention.v_proj.weight), torch.zeros_like(attention.o_proj.weight)
    for head in range(heads):
        lane, own = lane_of(head, heads), slice(head * size, (head + 1) * size)
        carries = lane % sliding == attention.layer_idx
        reads[own, dimensions(lane) if carries else slice(None)] = 1
        writes[dimensions(lane) if carries else SPARE, own] = 1
    yield Mask(attention.v_proj.weight, reads)
    yield Mask(attention.o_proj.weight, writes)


def _full(attention: Any, config: Any) -> Iterator[Mask]:
    size, heads = attention.head_dim, config.num_attention_heads
    writes = torch.zeros_like(attention.o_proj.weight)
    for head in range(heads):
        writes[dimensions(lane_of(head, heads)), head * size : (head + 1) * size] = 1
    yield Mask(attention.o_proj.weight, writes)
    for projection in (attention.q_proj, attention.k_proj):
        allowed = torch.ones_like(projection.weight)
        allowed[:, SPARE] = 0
        yield Mask(projection.weight, allowed)
