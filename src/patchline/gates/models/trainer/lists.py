"""Lists of ids and codes as tokens, with questions: exactly what an engine sees."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch  # type: ignore[import-not-found,unused-ignore]

from .words import BOS, COUNT, EOS, FIRST_CODE, FIRST_ID, MODEL, TOKENS, USER


class Batch(NamedTuple):
    """Some lists of equal length, each with several questions that are asked one after the other."""

    tokens: Any
    """[lists, length]"""
    asked: Any
    """[questions]: the places whose next token is a code."""
    codes: Any
    """[lists, questions]: those tokens."""
    items: Any
    """[lists, questions]: which item of the list is asked for."""


def draw(lists: int, items: int, asked: Any, *, chat: bool) -> Batch:
    """Random lists; no id and no code is in one twice. `asked` [lists, questions] says which items are asked for.

    Through the completions API a prompt is the list and an id, through the chat API the template's words stand around
    them, and before each further question.
    """
    ids = torch.rand(lists, COUNT).argsort(-1)[:, :items] + FIRST_ID
    codes = torch.rand(lists, COUNT).argsort(-1)[:, :items] + FIRST_CODE
    of, answers = ids.gather(1, asked), codes.gather(1, asked)
    words = [USER, of, MODEL, answers, EOS] if chat else [of, answers, EOS]
    turns = torch.stack([_all(asked, word) if isinstance(word, str) else word for word in words], -1)
    length, turns = len(words), turns.flatten(1)
    head = [BOS, USER] if chat else [BOS]
    first = torch.tensor([TOKENS[word] for word in head]).expand(lists, -1)
    listed = torch.stack([ids, codes], -1).flatten(1)
    tokens = torch.cat([first, listed, turns[:, 1:] if chat else turns], 1)
    places = torch.arange(asked.shape[1]) * length + len(head) + 2 * items + int(chat)
    return Batch(tokens, places, answers, asked)


def some(lists: int, items: int, questions: int) -> Any:
    """[lists, questions]: different random items of each list."""
    return torch.rand(lists, items).argsort(-1)[:, :questions]


def _all(like: Any, word: str) -> Any:
    return torch.full_like(like, TOKENS[word])
