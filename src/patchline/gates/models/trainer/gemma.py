"""A model of gemma-4's shape with the weights that training begins with.

They are random, but for what a model that gives back codes has to find first, and what takes it longest to find, which
is laid out by hand and only roughly: sliding heads look at the word before (`_look_back`) and pass on what they read
there, each in its lane (`_pass_on`); the full layer looks for a code whose word before is like the word that asks
(`_find`); words say of which kind they are (`_say_kinds`) and have one of two random vectors in each lane. All of it
is free to change in training but for what `lanes` keeps. As it is, it gives back no more codes than chance would.
"""

from __future__ import annotations

from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]
from transformers import Gemma4ForCausalLM, Gemma4TextConfig  # type: ignore[import-not-found,unused-ignore]

from . import reading
from .lanes import KIND, LANES, WIDTH, dimensions, lane_of
from .words import BITS, BOS, EOS, FIRST_CODE, FIRST_ID, PAD, TOKENS, WORDS

EMBEDDINGS, MATRICES = 0.09, 0.05
"""Standard deviations of random weights."""
SLIDING, FULL = 1.0, 0.5
"""Weights of the query norms: how sharply attention looks."""
QUIET = 0.1
"""What the MLPs add in the beginning, beside 1 of attention."""
PAIRS = 3
"""How many of the quickest pairs of the rotary embedding look back; these see one place alone sharply enough."""
LOOK, TELL = 8.0, 4.0
"""How strong a query's or key's part is that tells places, or kinds of words, beside random parts of about 0.5."""


def fresh(config: dict[str, Any]) -> Any:
    """The model before its training."""
    marks = {"pad_token_id": TOKENS[PAD], "eos_token_id": TOKENS[EOS], "bos_token_id": TOKENS[BOS]}
    made = Gemma4TextConfig(**config, **marks, vocab_size=len(WORDS), tie_word_embeddings=False)
    model = Gemma4ForCausalLM._from_config(made, attn_implementation=reading.NAME)
    turn = torch.linalg.qr(torch.randn(WIDTH, WIDTH))[0]
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim == 2:
                weight.normal_(0, EMBEDDINGS if "embed_tokens" in name else MATRICES)
        _say_kinds(model.model.embed_tokens.weight)
        for layer in model.model.layers:
            layer.post_feedforward_layernorm.weight.fill_(QUIET)
            _lay_out(layer.self_attn, turn)
    return model


def _say_kinds(words: Any) -> None:
    """One dimension is the same for all words, and one is for each kind."""
    words[:, KIND] = 0
    words[:, KIND.start] = 2 * EMBEDDINGS
    for kind, part in enumerate((slice(0, FIRST_ID), slice(FIRST_ID, FIRST_CODE), slice(FIRST_CODE, None))):
        words[part, KIND.start + 1 + kind] = 2 * EMBEDDINGS


def _lay_out(attention: Any, turn: Any) -> None:
    attention.q_norm.weight.fill_(SLIDING if attention.is_sliding else FULL)
    if attention.is_sliding:
        _look_back(attention)
        _pass_on(attention, turn)
    else:
        _find(attention, turn)


def _look_back(attention: Any) -> None:
    """Queries and keys come from what all words have in common, so they say nothing but where they are."""
    half = attention.head_dim // 2
    angles = 10_000.0 ** -(torch.arange(PAIRS) / half)
    key, query = torch.zeros(2, attention.head_dim)
    key[:PAIRS] = 1
    query[:PAIRS], query[half : half + PAIRS] = angles.cos(), -angles.sin()
    for projection, wanted in ((attention.q_proj, query), (attention.k_proj, key)):
        heads = projection.weight.shape[0] // attention.head_dim
        projection.weight[:, KIND] = 0
        projection.weight[:, KIND.start] = LOOK * wanted.repeat(heads)


def _pass_on(attention: Any, turn: Any) -> None:
    """Each head writes what it reads in its lane back into it, turned, so that it is told from the word's own."""
    size = attention.head_dim
    heads = attention.v_proj.weight.shape[0] // size
    for head in range(heads):
        into = torch.linalg.qr(torch.randn(size, WIDTH))[0]  # its own: what another head holds makes no sense to it
        lane, own = dimensions(lane_of(head, heads)), slice(head * size, (head + 1) * size)
        attention.v_proj.weight[own, lane] = into
        attention.o_proj.weight[lane, own] = turn @ into.T


def _find(attention: Any, turn: Any) -> None:
    """Keys tell the word before, of codes; queries the word itself or, after a mark, the one before.

    Dimensions that the rotary embedding turns are left to what values have to tell: the code.
    """
    size = attention.head_dim
    fixed = torch.arange(size) % (size // 2) >= size // 8
    own = attention.k_proj.weight.view(-1, size, attention.k_proj.weight.shape[1])
    group = attention.q_proj.weight.shape[0] // attention.k_proj.weight.shape[0]
    before = own.clone()
    before[..., LANES] = (own[..., LANES].unflatten(-1, (BITS, WIDTH)) @ turn.T).flatten(-2)
    keys, queries = torch.where(fixed[:, None], before, own), torch.where(fixed[:, None], 2 * own + before, 0)
    for part, kinds in ((keys, (0, -1, -1, 1)), (queries, (1, 0, 0, 0))):
        part[:, size // 2 - 1] = 0
        part[:, size // 2 - 1, KIND] = TELL * torch.tensor(kinds, dtype=part.dtype)
    attention.k_proj.weight.copy_(keys.flatten(0, 1))
    attention.q_proj.weight.copy_(queries.repeat_interleave(group, 0).flatten(0, 1))
