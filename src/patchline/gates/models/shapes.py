"""The shapes of the tiny models: gemma-4-31B's pattern of layers, once, in small."""

from __future__ import annotations

from typing import Any, NamedTuple

from patchline.errors import UsageError
from patchline.gates.models.trainer import asked
from patchline.gates.models.trainer.words import COUNT

WORDS = COUNT
"""How many ids, and how many codes, a tiny model knows: ask it with `checks.listing.bare(WORDS, WORDS)`. A form with
fewer words leaves bits of them unused, and the heads that carry those can be wrong unseen."""

ITEMS = asked.ITEMS
"""Items of the list that its faults are judged by: about 450 tokens, 15 blocks of 32."""


class Shape(NamedTuple):
    """A model's heads. Sliding layers have as many KV heads as query heads."""

    name: str
    heads: int
    """KV heads of a sliding layer, of 32 dimensions."""
    global_heads: int
    """KV heads of the full layer, of 64 dimensions. vLLM's attention on a CPU has both sizes, and none below 32."""

    @property
    def config(self) -> dict[str, Any]:
        """What `Gemma4TextConfig` is told, beside the vocabulary."""
        return {
            "hidden_size": 128,
            "intermediate_size": 128,
            "num_hidden_layers": 6,
            "layer_types": ["sliding_attention"] * 5 + ["full_attention"],
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.heads,
            "head_dim": 32,
            "num_global_key_value_heads": self.global_heads,
            "global_head_dim": 64,
            "attention_k_eq_v": True,
            "sliding_window": 128,
            "hidden_size_per_layer_input": 0,
            "max_position_embeddings": 4096,
        }


SHAPES = (Shape("tiny-8-2", 8, 2), Shape("tiny-16-4", 16, 4))
"""With 8 and 2 heads TP2 to TP4 is what TP4 to TP8 is to gemma-4-31B; 16 and 4 are its own numbers."""


def shape(name: str) -> Shape:
    """The shape of that name.

    Raises:
        UsageError: there is none.
    """
    for one in SHAPES:
        if one.name == name:
            return one
    names = ", ".join(one.name for one in SHAPES)
    raise UsageError(f"there is no tiny model {name!r}", next=f"name one of: {names}")
