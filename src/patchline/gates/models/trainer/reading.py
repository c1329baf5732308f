"""Attention whose last token reads a cache that is not what was written.

A decode engine reads what a prefill engine has sent, and computes the prompt's last token itself. So whatever stands
before is as it was written, only the last token sees a fault, and its own key and value are right.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]
from transformers.masking_utils import (  # type: ignore[import-not-found,unused-ignore]
    ALL_MASK_ATTENTION_FUNCTIONS,
)
from transformers.modeling_utils import (  # type: ignore[import-not-found,unused-ignore]
    ALL_ATTENTION_FUNCTIONS,
)

from .faults import Cache, Fault

NAME = "sdpa_with_cache"

_written: list[dict[int, Cache]] = []
_read: list[tuple[dict[int, Cache], Fault]] = []


@contextmanager
def writing() -> Iterator[dict[int, Cache]]:
    """What a model is given within it is kept, by layer."""
    written: dict[int, Cache] = {}
    _written.append(written)
    try:
        yield written
    finally:
        _written.clear()


@contextmanager
def reading(written: dict[int, Cache], fault: Fault) -> Iterator[None]:
    """The one next token that a model is given within it reads `written`, with the fault."""
    _read.append((written, fault))
    try:
        yield
    finally:
        _read.clear()


def _attention(module: Any, query: Any, key: Any, value: Any, mask: Any, **more: Any) -> tuple[Any, None]:
    for written, fault in _read:
        return _next(module, query, Cache(key, value), written[module.layer_idx], fault), None
    for written in _written:
        written[module.layer_idx] = Cache(key, value)
    return ALL_ATTENTION_FUNCTIONS["sdpa"](module, query, key, value, mask, **more)[0], None


def _next(module: Any, query: Any, own: Cache, written: Cache, fault: Fault) -> Any:
    """What attention gives the next token, [lists, 1, query heads, head size]; `query` has heads before places."""
    own, cache = (_for_queries(one, module.num_key_value_groups) for one in (own, written))
    if module.layer_idx in fault.layers:
        cache = fault.apply(cache)
    if module.is_sliding:
        seen = slice(-(module.sliding_window - 1), None)
        cache = Cache(cache.keys[:, :, seen], cache.values[:, :, seen])
    scores = torch.cat([query @ cache.keys.mT, query @ own.keys.mT], -1).softmax(-1)
    return (scores[..., :-1] @ cache.values + scores[..., -1:] @ own.values).transpose(1, 2)


def _for_queries(cache: Cache, group: int) -> Cache:
    return cache if group == 1 else Cache(*(part.repeat_interleave(group, 1) for part in cache))


ALL_ATTENTION_FUNCTIONS.register(NAME, _attention)
ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])
