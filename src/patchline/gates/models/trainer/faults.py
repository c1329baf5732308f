"""Wrong KV on purpose: caches that are read otherwise than they were written.

Imports no torch: what judges an exam asks for the faults' names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

BLOCK = 32
"""Places of a block of KV cache; what a prompt leaves of its last one holds zeros."""

Order = Callable[[list[list[int]]], list[list[int]]]
"""Given the places of every block, gives those that are read in their stead; may change its argument."""


class Cache(NamedTuple):
    """What one layer holds; both are tensors [lists, heads, places, head size]."""

    keys: Any
    values: Any


class Fault(NamedTuple):
    """A fault in some layers."""

    name: str
    layers: tuple[int, ...]
    apply: Callable[[Cache], Cache]
    """Makes what is read of what was written; the heads of both are query heads."""
    seen: tuple[str, ...] = ()
    """The forms of prompts in which the recall check has to see it."""


NONE = Fault("none", (), lambda cache: cache)


def zeroed(name: str, layers: tuple[int, ...]) -> Fault:
    """Nothing was written."""
    return Fault(name, layers, lambda cache: Cache(*(part * 0 for part in cache)))


def shifted(name: str, layers: tuple[int, ...], heads: slice, by: int) -> Fault:
    """The query heads `heads` read what lies `by` query heads farther."""

    def apply(cache: Cache) -> Cache:
        every = range(cache.keys.shape[1])
        read = [(head + by) % len(every) if head in every[heads] else head for head in every]
        return Cache(*(part[:, read] for part in cache))

    return Fault(name, layers, apply)


def other_request(name: str, layers: tuple[int, ...], places: slice = slice(None)) -> Fault:
    """What is read at `places` was written for another list."""

    def apply(cache: Cache) -> Cache:
        changed = Cache(*(part.clone() for part in cache))
        for part, own in zip(changed, cache, strict=True):
            part[:, :, places] = own[:, :, places].roll(1, 0)
        return changed

    return Fault(name, layers, apply)


def moved(name: str, layers: tuple[int, ...], order: Order, *, values: bool = True) -> Fault:
    """Blocks are read as `order` says; without `values` that is true of the keys only."""

    def apply(cache: Cache) -> Cache:
        length = cache.keys.shape[2]
        blocks = [list(range(start, start + BLOCK)) for start in range(0, length, BLOCK)]
        at = [place for block in order(blocks) for place in block][:length]
        return Cache(_at(cache.keys, at), _at(cache.values, at) if values else cache.values)

    return Fault(name, layers, apply)


def _at(part: Any, places: list[int]) -> Any:
    lists, heads, length, size = part.shape
    whole = part.new_zeros(lists, heads, length + BLOCK, size)
    whole[:, :, :length] = part
    return whole[:, :, places]
