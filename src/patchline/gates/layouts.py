"""For a model and each pair of prefill and decode TP: heads, bytes, and what each stack does with the pair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import product
from typing import NamedTuple

from patchline.gates.model_config import Model
from patchline.gates.stacks import Judgement, Pair, judge
from patchline.kv_heads import Layer, Side, block_bytes, bytes_per_token, held

TPS = (1, 2, 4, 8, 16)


class Kind(NamedTuple):
    """Layers of a model that are alike."""

    name: str
    """`sliding`, `full` or `mla`; with heads and size where a model has several of a kind."""
    layer: Layer
    number: int


class Share(NamedTuple):
    """What one GPU of an engine holds of a kind of layer."""

    kind: Kind
    heads: int
    """KV heads of one layer."""
    block_bytes: int
    """Bytes of one block of one layer."""


class Holding(NamedTuple):
    """What one GPU of an engine holds."""

    tp: int
    shares: tuple[Share, ...]
    bytes_per_token: int
    """KV bytes of one token, over all layers."""


class Row(NamedTuple):
    """One layout. Holdings are None where heads do not split over that TP."""

    prefill_tp: int
    decode_tp: int
    prefill: Holding | None
    decode: Holding | None
    slices: tuple[Fraction, ...]
    """For each kind of layer: what a decode GPU must read, in shares of what a prefill GPU holds.

    Below 1 it is a part, at the reader's own offset; above 1 it comes from so many prefill GPUs. Empty where a holding
    is None.
    """
    judgements: Mapping[str, Judgement]
    """By stack."""

    @property
    def fetched(self) -> int:
        """Bytes that a decode GPU must fetch for each token: all that it holds of it."""
        return self.decode.bytes_per_token if self.decode else 0


def kinds(model: Model) -> tuple[Kind, ...]:
    """The kinds of layers of a model, in the order in which they first come."""
    alike = dict.fromkeys(model.layers)
    names = [layer.kind for layer in alike]
    return tuple(
        Kind(
            layer.kind if names.count(layer.kind) == 1 else f"{layer.kind} {layer.heads}x{layer.head_size}",
            layer,
            model.layers.count(layer),
        )
        for layer in alike
    )


def holding(model: Model, tp: int, block_size: int) -> Holding | None:
    """What one of `tp` GPUs holds; None where some layer's heads do not split over them."""
    try:
        shares = tuple(
            Share(kind, len(held(kind.layer, tp, 0)), block_bytes(kind.layer, Side(tp, block_size), model.itemsize))
            for kind in kinds(model)
        )
    except ValueError:
        return None
    return Holding(tp, shares, bytes_per_token(model.layers, tp, model.itemsize))


def rows(
    model: Model,
    stacks: Mapping[str, bool],
    *,
    block_size: int,
    prefill: Sequence[int] = TPS,
    decode: Sequence[int] = TPS,
) -> list[Row]:
    """One row a pair, prefill TP first.

    Args:
        model: what the KV cache is made of.
        stacks: for each of `stacks.STACKS` that is asked about, whether the hybrid KV-cache manager is on.
        block_size: tokens in a block, on both sides.
        prefill: TPs of the engine that is read.
        decode: TPs of the engine that reads.
    """
    held_at = {tp: holding(model, tp, block_size) for tp in {*prefill, *decode}}
    return [
        Row(
            p,
            d,
            held_at[p],
            held_at[d],
            _slices(held_at[p], held_at[d]),
            _judged(model, stacks, Pair(p, d, block_size)),
        )
        for p, d in product(prefill, decode)
    ]


def _judged(model: Model, stacks: Mapping[str, bool], pair: Pair) -> dict[str, Judgement]:
    return {stack: judge(stack, model, pair, hybrid=hybrid) for stack, hybrid in stacks.items()}


def _slices(prefill: Holding | None, decode: Holding | None) -> tuple[Fraction, ...]:
    if not prefill or not decode:
        return ()
    shares = zip(prefill.shares, decode.shares, strict=True)
    return tuple(Fraction(ours.heads, theirs.heads) for theirs, ours in shares)
