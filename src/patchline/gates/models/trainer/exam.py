"""The exam of a trained model: fresh lists of every length, and the recall check's nine prompts with wrong KV."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch  # type: ignore[import-not-found,unused-ignore]

from . import asked, reading
from .asked import CHAT, CHECKS, FORMS, ITEMS, LENGTHS, PROMPTS
from .faults import NONE, Fault
from .lists import Batch, draw, some

QUESTIONS = 1_000
"""At least so many for each length and form."""


class Seen(NamedTuple):
    """What became of the recall check with a fault."""

    name: str
    form: str
    right: list[int]
    """Of nine, in each check."""
    moved: float
    """By how much the right code's log-probability moved where it moved most: what the parity check would see."""


def recall(model: Any) -> dict[str, dict[int, float]]:
    """The share of right answers, by form and by the number of items."""
    return {form: {items: _share(model, items, chat=form == CHAT) for items in LENGTHS} for form in FORMS}


def _share(model: Any, items: int, *, chat: bool) -> float:
    """Asks for every item of some lists."""
    lists = -(-QUESTIONS // items)
    batch = draw(lists, items, some(lists, items, items), chat=chat)
    with torch.no_grad():
        said = model.lm_head(model.model(input_ids=batch.tokens).last_hidden_state[:, batch.asked])
    return float((said.argmax(-1) == batch.codes).float().mean())


def sensitivity(model: Any, config: dict[str, Any]) -> list[Seen]:
    """What the recall check says without a fault and with each, in both forms; the model was made by `config`."""
    return [one for form in FORMS for one in _with_faults(model, config, form)]


def _with_faults(model: Any, config: dict[str, Any], form: str) -> Iterator[Seen]:
    at = torch.linspace(0, ITEMS - 1, PROMPTS).round().long().repeat(CHECKS)[:, None]
    batch = draw(len(at), ITEMS, at, chat=form == CHAT)
    answers, whole = _reader(model, batch)
    for fault in (NONE, *asked.all_of(config)):
        after = answers(fault)
        right = (after.argmax(-1, keepdim=True) == batch.codes).view(CHECKS, PROMPTS).sum(1)
        yield Seen(fault.name, form, right.tolist(), float((after - whole).gather(1, batch.codes).abs().max()))


def _reader(model: Any, batch: Batch) -> tuple[Callable[[Fault], Any], Any]:
    """What tells the log-probabilities [lists, words] of what follows the first question, and those without a cache."""
    end = int(batch.asked[0])
    with torch.no_grad():
        whole = _said(model, batch.tokens[:, : end + 1])
        with reading.writing() as written:
            _said(model, batch.tokens[:, :end])

    def answers(fault: Fault) -> Any:
        with torch.no_grad(), reading.reading(written, fault):
            return _said(model, batch.tokens[:, end : end + 1], position_ids=torch.tensor([[end]]))

    return answers, whole


def _said(model: Any, tokens: Any, **more: Any) -> Any:
    return model(input_ids=tokens, logits_to_keep=1, use_cache=False, **more).logits[:, 0].log_softmax(-1)
