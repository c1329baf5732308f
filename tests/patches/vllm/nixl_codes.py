"""Cache contents in which each element says what it is."""

import torch

UNTOUCHED = -1
"""What every element of a cache holds before anything is written to it."""

_BITS = {"layer": 4, "block": 5, "head": 4, "position": 9, "value": 1, "channel": 7}


def codes(layer: int, blocks: torch.Tensor, positions: torch.Tensor, heads: list[int], keys: int, channels: int):
    """What a layer's elements ``[block, head, position, channel]`` hold.

    `blocks` and `positions`, both ``[block, position]``, say for each token which block
    of the prefill engine it comes from and where in it. The first `keys` channels are K.
    """
    channel = torch.arange(channels)
    parts = {
        "layer": torch.tensor(layer + 1),  # so that no code is 0
        "block": blocks[:, None, :, None],
        "head": torch.tensor(heads)[:, None, None],
        "position": positions[:, None, :, None],
        "value": channel // keys,
        "channel": channel % keys,
    }
    code = torch.tensor(0)
    for name, bits in _BITS.items():
        assert parts[name].max() < 1 << bits, f"{name} needs more than {bits} bits"
        code = (code << bits) | parts[name]
    return code.to(torch.int32)


def describe(code: int) -> str:
    """What an element with this content is, in words."""
    if code == UNTOUCHED:
        return "untouched"
    if code <= 0:
        return f"{code}, no element's content"
    found = {}
    for name, bits in reversed(_BITS.items()):
        found[name], code = code & ((1 << bits) - 1), code >> bits
    return (
        f"layer {found['layer'] - 1} block {found['block']} head {found['head']} "
        f"position {found['position']} {'KV'[found['value']]} channel {found['channel']}"
    )
