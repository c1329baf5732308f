"""What has to lie in the caches of both engines after a transfer, byte for byte.

The answer is that of `patchline.kv_heads`, a model that knows nothing of vLLM.
"""

from typing import NamedTuple

import numpy as np
import torch
from nixl_codes import describe
from nixl_engine import Blocks, Engine, Rank
from nixl_pair import DECODE_BLOCKS, PREFILL_BLOCKS

from patchline import kv_heads

ITEM = 4


class Landed(NamedTuple):
    """What a comparison found right."""

    bytes_landed: int
    """Bytes of decode caches that have to come from prefill caches."""
    bytes_checked: int
    """Bytes compared: all of the caches of both engines."""


def assert_landed(
    prefill: Engine,
    decode: Engine,
    prefill_blocks: Blocks = PREFILL_BLOCKS,
    decode_blocks: Blocks = DECODE_BLOCKS,
) -> Landed:
    """Each decode rank holds its own heads of the request's blocks; no other byte of any cache has changed."""
    landed = checked = 0
    for rank, memory in decode.memory.items():
        expected, count = _expected(prefill, decode, rank, prefill_blocks, decode_blocks)
        _assert_equal(decode, rank, memory, expected)
        landed, checked = landed + count, checked + memory.size
    assert landed, "no byte had to land"
    return Landed(landed, checked + assert_untouched(prefill))


def assert_untouched(*engines: Engine) -> int:
    """No byte of any cache has changed since the engine started or was filled; returns how many bytes there are."""
    for engine in engines:
        for rank, memory in engine.memory.items():
            _assert_equal(engine, rank, memory, engine.before[rank])
    return sum(memory.size for engine in engines for memory in engine.memory.values())


def assert_nothing_moved(*engines: Engine) -> int:
    """No rank prepared or posted a transfer, no byte has changed; returns how many bytes there are."""
    for engine in engines:
        for rank, agent in engine.agents.items():
            # The first list is of the rank's own memory, made when its caches are registered.
            more = len(agent.prepared) - 1
            assert not more, f"{engine.role} rank {rank.tp} prepared {more} lists of descriptors"
            assert not agent.posted, f"{engine.role} rank {rank.tp} posted {len(agent.posted)} transfers"
    return assert_untouched(*engines)


def bytes_posted(*engines: Engine) -> int:
    """Bytes of all transfers that any rank posted."""
    return sum(agent.bytes_posted() for engine in engines for agent in engine.agents.values())


def _expected(
    prefill: Engine, decode: Engine, rank: Rank, prefill_blocks: Blocks, decode_blocks: Blocks
) -> tuple[np.ndarray, int]:
    """What a decode rank's memory has to hold, and how many bytes of it come from prefill."""
    expected, landed = decode.before[rank].copy(), 0
    for layer in decode.caches[rank]:
        theirs, ours = prefill_blocks[prefill.group(layer)], decode_blocks[decode.group(layer)]
        if not ours:
            continue
        pages = decode.pages(rank, layer, expected)
        pages[ours] = 0  # what prefill has no block for is cleared
        sides = prefill.side(layer), decode.side(layer)
        for cut in kv_heads.cuts(decode.layers[layer], *sides, rank.tp, blocks=len(ours), itemsize=ITEM):
            landed += _copy(prefill, layer, cut, theirs, pages, ours)
        _assert_named(prefill, decode, rank, layer, theirs, pages[ours])
    return expected, landed


def _copy(prefill: Engine, layer: int, cut: kv_heads.Cut, theirs: list[int], pages: np.ndarray, ours: list[int]) -> int:
    """Does one cut, from what the source ranks held before the transfer; returns its bytes."""
    if cut.source_block >= len(theirs):
        return 0
    block, end = theirs[cut.source_block], cut.source_offset + cut.length
    ranks = [prefill.rank_of(layer, source) for source in cut.sources]
    found = [prefill.pages(rank, layer, prefill.before[rank])[block, cut.source_offset : end] for rank in ranks]
    assert all(np.array_equal(found[0], other) for other in found), "the model's sources hold different bytes"
    assert found[0].size == cut.length, "the model's cut leaves its block"
    pages[ours[cut.block], cut.offset : cut.offset + cut.length] = found[0]
    return cut.length


def _assert_named(
    prefill: Engine, decode: Engine, rank: Rank, layer: int, theirs: list[int], pages: np.ndarray
) -> None:
    """The model's answer holds the elements that have to be there, by their names: a second opinion."""
    size, prefill_size = decode.side(layer).block_size, prefill.side(layer).block_size
    tokens = torch.arange(len(pages) * size).view(-1, size)
    within = tokens < len(theirs) * prefill_size
    blocks = torch.tensor(theirs)[(tokens // prefill_size).clamp(max=len(theirs) - 1)]
    named = decode.contents(rank, layer, blocks, tokens % prefill_size) * within[:, None, :, None]
    if decode.layout == "LBNHC":
        named = named.transpose(1, 2)
    assert np.array_equal(pages.view(np.int32).ravel(), named.numpy().ravel()), "the model names other elements"


def _assert_equal(engine: Engine, rank: Rank, memory: np.ndarray, expected: np.ndarray) -> None:
    if np.array_equal(memory, expected):
        return
    differ = np.flatnonzero(memory != expected)
    at = int(differ[0]) // ITEM * ITEM
    found, right = (int(content[at : at + ITEM].view(np.int32)[0]) for content in (memory, expected))
    raise AssertionError(
        f"{engine.role} TP {engine.tp} rank {rank.tp} holds wrong bytes, {len(differ)} of them, the first in "
        f"{_place(engine, rank, at)}: found {describe(found)}; expected {describe(right)}"
    )


def _place(engine: Engine, rank: Rank, at: int) -> str:
    """Which layers' blocks a byte of a rank's memory lies in, in words."""
    places = []
    for layer, cache in engine.caches[rank].items():
        block, offset = divmod(at - engine.base(rank, layer), cache.stride(0) * ITEM)
        if 0 <= block < cache.shape[0] and offset < cache[0].numel() * ITEM:
            places.append(f"layer {layer} block {block} byte {offset}")
    return " and ".join(places) or "no layer's block"
