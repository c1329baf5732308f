"""What a trained model is examined with: lengths of lists, and the faults that a transfer of KV can have.

Imports no torch: `examined` holds an exam against it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from . import faults
from .faults import BLOCK, Fault, Order
from .words import COUNT

RAW, CHAT = "raw", "chat"
FORMS = (RAW, CHAT)
"""Prompts through the completions API and through the chat API."""

LENGTHS = (3, 8, 16, 32, 64, 96, 128, 192, COUNT)
"""Items of a list; training ends at half of the longest."""

PROMPTS, CHECKS = 9, 5
"""Of a recall check, and how many checks are made with each fault."""

ITEMS = 224
"""Items of those checks' lists. Most of the 256 ids are in one: an id that has lost a bit is mostly another's."""

PER_RANK = 2
"""Query heads of a rank where full layers' KV heads are held twice: TP4 with 8 heads, TP8 with 16."""

HELD, ALSO = 3, 5
"""Blocks that hold an item that is asked for, the third and the fourth of nine, in both forms."""


def all_of(config: dict[str, Any]) -> Iterator[Fault]:
    """All faults, for a model with that configuration, each with the forms in which it has to be seen.

    A prompt's last token is what sees a fault. In the raw form that is the id that is asked for, which needs little of
    what sliding layers hold: a fault there leaves most answers right, and moves the log-probability of some (by 0.004
    and more, each fault that was tried). In the chat form it is a mark, which needs them to know the id.
    """
    layers = tuple(range(config["num_hidden_layers"]))
    sliding, full = layers[:-1], layers[-1:]
    yield from (fault._replace(seen=FORMS) for fault in _of_full(full, config))
    yield from (fault._replace(seen=(CHAT,)) for fault in _of_sliding(sliding, config))
    # Seen by nobody: attention is a sum over places, in whatever order they lie, and keys know where they were.
    yield faults.moved(f"full: blocks {HELD} and {ALSO} swapped", full, _swapped(HELD, ALSO))


def _of_full(full: tuple[int, ...], config: dict[str, Any]) -> Iterator[Fault]:
    yield faults.zeroed("full: zeroed", full)
    yield faults.other_request("full: another request's", full)
    yield from _slices_of_full(full, config)
    yield faults.other_request(f"full: block {HELD}: another request's", full, _places(HELD))
    yield faults.moved(f"full: block {HELD} reads block {HELD + 1}", full, _copied(HELD, HELD + 1))
    yield faults.moved("full: the last block reads the first", full, _copied(-1, 0))
    yield faults.moved(f"full: block {HELD} and the last, not full, swapped", full, _swapped(HELD, -1))
    yield faults.moved(f"full: blocks {HELD} and {ALSO} swapped, keys only", full, _swapped(HELD, ALSO), values=False)
    yield faults.moved(f"full: block {HELD} backwards, keys only", full, _backwards, values=False)


def _slices_of_full(full: tuple[int, ...], config: dict[str, Any]) -> Iterator[Fault]:
    heads, kv_heads = config["num_attention_heads"], config["num_global_key_value_heads"]
    group = heads // kv_heads
    yield faults.shifted("full: every KV head is read from the next one's slice", full, slice(None), group)
    for head in range(kv_heads):
        own = slice(head * group, (head + 1) * group)
        yield faults.shifted(f"full: KV head {head} is read from the next one's slice", full, own, group)
    for rank in range(heads // PER_RANK):
        yield faults.shifted(f"full: rank {rank} reads the next KV head's slice", full, _own(rank), group)


def _of_sliding(sliding: tuple[int, ...], config: dict[str, Any]) -> Iterator[Fault]:
    yield from (faults.zeroed(f"layer {layer}: zeroed", (layer,)) for layer in sliding)
    yield faults.other_request("sliding: another request's", sliding)
    yield faults.moved("sliding: the last block reads the first", sliding, _copied(-1, 0))
    for rank in range(config["num_attention_heads"] // PER_RANK):
        yield faults.shifted(f"sliding: rank {rank} reads the next rank's slice", sliding, _own(rank), PER_RANK)
        yield faults.shifted(f"sliding: rank {rank} reads one head too far", sliding, _own(rank), 1)
    for layer in sliding:
        yield faults.shifted(f"layer {layer}: every rank reads the next one's slice", (layer,), slice(None), PER_RANK)
        yield faults.shifted(f"layer {layer}: every rank reads one head too far", (layer,), slice(None), 1)


def _own(rank: int) -> slice:
    return slice(rank * PER_RANK, (rank + 1) * PER_RANK)


def _places(block: int) -> slice:
    return slice(block * BLOCK, (block + 1) * BLOCK)


def _copied(to: int, source: int) -> Order:
    def order(blocks: list[list[int]]) -> list[list[int]]:
        blocks[to] = blocks[source]
        return blocks

    return order


def _swapped(one: int, other: int) -> Order:
    def order(blocks: list[list[int]]) -> list[list[int]]:
        blocks[one], blocks[other] = blocks[other], blocks[one]
        return blocks

    return order


def _backwards(blocks: list[list[int]]) -> list[list[int]]:
    blocks[HELD] = blocks[HELD][::-1]
    return blocks
