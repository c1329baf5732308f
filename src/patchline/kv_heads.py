"""Which KV heads a rank holds, and which bytes of which remote block it must read.

An independent model of a KV cache that moves between a prefill and a decode side of different tensor parallelism
(TP). It knows nothing of vLLM: it is worked out from two rules and compared with what vLLM really moves.

- **Heads.** TP shards KV heads over ranks, in order. Where there are more ranks than heads, each head is copied to
  equally many consecutive ranks. So a layer of H heads has max(1, H // TP) heads on a rank.
- **Bytes.** A block holds the K and V of a fixed number of tokens for all heads that its rank holds. The K and V
  channels of one head and one token lie together, K first: 2 * head_size elements, here called a row. A layout is the
  order of the rows. For MLA a row is the one latent vector that all heads share: one head, copied to every rank.

A request's tokens are counted from 0 and fill its blocks in order, on both sides. The model knows no window: a sliding
layer's blocks hold all of the request's tokens, as they do with the hybrid KV-cache manager off.

Standard library only: the tests on real vLLM import this file where the rest of patchline is not installed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

KINDS = ("full", "sliding", "mla")
LAYOUTS = ("LBHNC", "LBNHC")


class Layer(NamedTuple):
    """One attention layer. `full` and `sliding` differ in name only: their bytes lie in the same way."""

    heads: int
    """KV heads over all ranks; 1 for `mla`."""
    head_size: int
    """Channels of K, and of V; for `mla`, channels of the one latent vector."""
    kind: str = "full"
    """`full`, `sliding`, or `mla`: every rank holds the whole thing."""


class Side(NamedTuple):
    """What one engine's cache looks like."""

    tp: int
    """Ranks that the heads are sharded over."""
    block_size: int
    """Tokens in a block."""
    layout: str = "LBHNC"
    """`LBHNC`: a block is [head, token, K then V channels]; `LBNHC`: [token, head, K then V channels]."""


class Cut(NamedTuple):
    """One contiguous run of bytes that a decode rank gets from a prefill rank."""

    sources: tuple[int, ...]
    """Prefill ranks that hold these bytes, ascending; any one of them serves."""
    source_block: int
    """Index into the request's prefill blocks."""
    source_offset: int
    """Bytes from the start of the prefill block."""
    block: int
    """Index into the request's decode blocks."""
    offset: int
    """Bytes from the start of the decode block."""
    length: int
    """Bytes."""


def held(layer: Layer, tp: int, rank: int) -> range:
    """The global heads that a rank holds, out of `range(layer.heads)`.

    Raises:
        ValueError: the heads do not split over `tp` ranks, or an argument is wrong.
    """
    _check_layer(layer)
    _check_positive(tp=tp)
    if not 0 <= rank < tp:
        raise ValueError(f"rank {rank} is outside TP{tp}: ranks are 0 to {tp - 1}")
    if why := _unsplit(layer, tp):
        raise ValueError(why)
    share = max(1, layer.heads // tp)
    first = rank * layer.heads // tp
    return range(first, first + share)


def holders(layer: Layer, tp: int, head: int) -> tuple[int, ...]:
    """The ranks that hold a global head, ascending: one where heads are sharded, several where they are copied.

    Raises:
        ValueError: no such head, or as `held`.
    """
    _check_layer(layer)
    _check_positive(tp=tp)
    if not 0 <= head < layer.heads:
        raise ValueError(f"head {head} is outside the layer: its heads are 0 to {layer.heads - 1}")
    return tuple(rank for rank in range(tp) if head in held(layer, tp, rank))


def block_bytes(layer: Layer, side: Side, itemsize: int) -> int:
    """Bytes of one block of one layer on one rank: tokens * heads on the rank * bytes of a row.

    Raises:
        ValueError: as `held`.
    """
    _check_side(side)
    return side.block_size * _bytes_of_a_token(layer, side.tp, itemsize)


def bytes_per_token(layers: Sequence[Layer], tp: int, itemsize: int) -> int:
    """KV bytes of one token on one GPU, over all layers; the same on every rank.

    The brief's rule: 2 * heads on the GPU * head size * bytes of an element, summed over layers; MLA has no 2.

    Raises:
        ValueError: no layers, or as `held`.
    """
    _check_some(layers)
    return sum(_bytes_of_a_token(layer, tp, itemsize) for layer in layers)


def cuts(layer: Layer, prefill: Side, decode: Side, rank: int, *, blocks: int = 1, itemsize: int = 4) -> list[Cut]:
    """What decode rank `rank` must hold of a layer after the transfer, and where it comes from.

    For a request that fills `blocks` decode blocks wholly. Every byte of those blocks is covered exactly once, in
    ascending (block, offset). Runs are maximal: two runs that meet on both sides and have the same sources are one.

    Raises:
        ValueError: neither block size divides the other, or as `held` for either side.
    """
    for side in (prefill, decode):
        _check_side(side)
    _check_positive(blocks=blocks, itemsize=itemsize)
    if why := _uneven(prefill, decode):
        raise ValueError(why)
    step = _step(prefill, decode)
    row = _row_bytes(layer, itemsize)
    found = []
    for head in held(layer, decode.tp, rank):
        sources = holders(layer, prefill.tp, head)
        theirs, ours = held(layer, prefill.tp, sources[0]), held(layer, decode.tp, rank)
        for token in range(0, blocks * decode.block_size, step):
            source = _place(prefill, theirs, head, token)
            target = _place(decode, ours, head, token)
            found.append(Cut(sources, source[0], source[1] * row, target[0], target[1] * row, step * row))
    return _joined(sorted(found, key=lambda cut: (cut.block, cut.offset)))


def writes(
    layer: Layer, prefill: Side, decode: Side, rank: int, *, blocks: int = 1, itemsize: int = 4
) -> list[tuple[int, Cut]]:
    """What prefill rank `rank` writes where prefill pushes: (decode rank, cut), decode ranks ascending.

    Where several ranks hold a head, this lets the lowest of them write. Any other holder may do so in its place:
    what must hold is that each of `cuts` is written once, by one of its sources.

    Raises:
        ValueError: as `cuts`, and for a `rank` outside the prefill side.
    """
    held(layer, prefill.tp, rank)
    _check_side(decode)
    return [
        (reader, cut)
        for reader in range(decode.tp)
        for cut in cuts(layer, prefill, decode, reader, blocks=blocks, itemsize=itemsize)
        if cut.sources[0] == rank
    ]


def refusal(layers: Sequence[Layer], prefill: Side, decode: Side, *, hybrid: bool = False) -> str:
    """Why the carried patches do not promise to serve this pair, in one line; empty where they do.

    The brief's rules. Heads must split on both sides, and one block size must divide the other. Equal TPs are served.
    Unequal TPs with layers of different head counts (MLA aside, it is never cut) need a decode TP of at least the
    prefill TP, equal block sizes, equal layouts, and the hybrid KV-cache manager off, since a shared page cannot be
    re-sharded layer by layer. In `LBNHC` a rank's heads alternate from token to token: a block is not cut there.

    Args:
        layers: all attention layers of the model.
        prefill: the side that is read.
        decode: the side that reads.
        hybrid: whether the hybrid KV-cache manager is on, on either side.

    Raises:
        ValueError: no layers, or an argument that is wrong in itself.
    """
    _check_some(layers)
    for side in (prefill, decode):
        _check_side(side)
    for layer in layers:
        _check_layer(layer)
    if why := _impossible(layers, prefill, decode):
        return why
    if prefill.tp == decode.tp:
        return ""
    return _mixed(layers, prefill, decode, hybrid=hybrid) or _uncut(layers, prefill, decode)


def _impossible(layers: Sequence[Layer], prefill: Side, decode: Side) -> str:
    """Why no connector could serve the pair: heads that do not split, or blocks that do not line up."""
    unsplit = (_unsplit(layer, side.tp) for layer in layers for side in (prefill, decode))
    return next(filter(None, unsplit), "") or _uneven(prefill, decode)


def _mixed(layers: Sequence[Layer], prefill: Side, decode: Side, *, hybrid: bool) -> str:
    """Why layers of different head counts are refused at unequal TPs."""
    counts = sorted({layer.heads for layer in layers if layer.kind != "mla"})
    if len(counts) < 2:
        return ""
    pair = f"layers of {_listed(counts)} KV heads at prefill TP{prefill.tp}, decode TP{decode.tp}"
    if decode.tp < prefill.tp:
        return f"{pair}: decode TP must be at least prefill TP"
    if prefill.block_size != decode.block_size:
        return f"{pair}: block sizes {prefill.block_size} and {decode.block_size} must be equal"
    if prefill.layout != decode.layout:
        return f"{pair}: layouts {prefill.layout} and {decode.layout} must be equal"
    if hybrid:
        return f"{pair}: the hybrid KV-cache manager must be off, a shared page cannot be re-sharded layer by layer"
    return ""


def _uncut(layers: Sequence[Layer], prefill: Side, decode: Side) -> str:
    """Why a layout is refused at unequal TPs: some layer's blocks would be cut between heads that alternate."""
    if "LBNHC" not in (prefill.layout, decode.layout):
        return ""
    for layer in layers:
        theirs, ours = (len(held(layer, side.tp, 0)) for side in (prefill, decode))
        if theirs != ours:
            return (
                f"layout LBNHC cannot be cut by heads: a layer of {layer.heads} KV heads has {theirs} on a prefill "
                f"rank (TP{prefill.tp}), {ours} on a decode rank (TP{decode.tp})"
            )
    return ""


def _unsplit(layer: Layer, tp: int) -> str:
    """Why a layer's heads do not split over `tp` ranks; empty where they do."""
    if layer.heads % tp == 0 or tp % layer.heads == 0:
        return ""
    return f"{layer.heads} KV heads do not split over TP{tp}: one must divide the other"


def _uneven(prefill: Side, decode: Side) -> str:
    """Why blocks of the two sides do not line up; empty where they do."""
    small, large = sorted((prefill.block_size, decode.block_size))
    if large % small == 0:
        return ""
    return f"block sizes {prefill.block_size} (prefill) and {decode.block_size} (decode): one must divide the other"


def _row_bytes(layer: Layer, itemsize: int) -> int:
    """Bytes of one head's K and V of one token, or of one latent vector."""
    return (1 if layer.kind == "mla" else 2) * layer.head_size * itemsize


def _bytes_of_a_token(layer: Layer, tp: int, itemsize: int) -> int:
    """Bytes of one token of one layer on one rank."""
    _check_positive(itemsize=itemsize)
    return len(held(layer, tp, 0)) * _row_bytes(layer, itemsize)


def _step(prefill: Side, decode: Side) -> int:
    """Tokens of one head that surely lie together on both sides: those of the smaller block, or one.

    Only for speed: cuts that meet are joined afterwards.
    """
    together = prefill.layout == decode.layout == "LBHNC"
    return min(prefill.block_size, decode.block_size) if together else 1


def _place(side: Side, heads: range, head: int, token: int) -> tuple[int, int]:
    """(block, row in the block) of one head of one token, on a rank that holds `heads`."""
    block, at = divmod(token, side.block_size)
    index = heads.index(head)
    return block, at * len(heads) + index if side.layout == "LBNHC" else index * side.block_size + at


def _joined(found: Iterable[Cut]) -> list[Cut]:
    """Cuts in ascending order of target, those that meet on both sides and have the same sources made one."""
    runs: list[Cut] = []
    for cut in found:
        if runs and cut[:-1] == _after(runs[-1]):
            runs[-1] = runs[-1]._replace(length=runs[-1].length + cut.length)
        else:
            runs.append(cut)
    return runs


def _after(cut: Cut) -> tuple[tuple[int, ...], int, int, int, int]:
    """What a cut that continues this one is, without its length."""
    return cut.sources, cut.source_block, cut.source_offset + cut.length, cut.block, cut.offset + cut.length


def _listed(counts: Sequence[int]) -> str:
    """`4 and 16`, `1, 4 and 16`."""
    return f"{', '.join(map(str, counts[:-1]))} and {counts[-1]}"


def _check_some(layers: Sequence[Layer]) -> None:
    if not layers:
        raise ValueError("no layers")


def _check_layer(layer: Layer) -> None:
    if layer.kind not in KINDS:
        raise ValueError(f"unknown kind of layer {layer.kind!r}: one of {', '.join(KINDS)}")
    _check_positive(heads=layer.heads, head_size=layer.head_size)
    if layer.kind == "mla" and layer.heads != 1:
        raise ValueError(f"an mla layer has 1 head, not {layer.heads}: every rank holds the whole latent vector")


def _check_side(side: Side) -> None:
    if side.layout not in LAYOUTS:
        raise ValueError(f"unknown layout {side.layout!r}: one of {', '.join(LAYOUTS)}")
    _check_positive(tp=side.tp, block_size=side.block_size)


def _check_positive(**values: int) -> None:
    for name, value in values.items():
        if value < 1:
            raise ValueError(f"{name} is {value}: must be at least 1")
