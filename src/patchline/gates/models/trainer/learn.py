"""Training: short lists first, twice as long ones as soon as the model is good at them."""

from __future__ import annotations

import math
import time
from typing import Any, NamedTuple

import torch  # type: ignore[import-not-found,unused-ignore]

from . import lanes
from .job import Settings
from .lists import Batch, draw, some
from .words import EOS, TOKENS

BETAS = (0.9, 0.98)
WARM_UP = 50
"""Steps until the learning rate is at its highest; a cosine then takes it to a tenth."""
NORMS = 3.0
"""Norms learn so many times as fast: how sharply attention looks depends on few numbers, which have far to go."""
LONGEST_GRADIENT = 1.0
GOOD = 0.9
"""The share of right answers from which lists get longer."""
MEMORY = 0.8
"""How much of the running mean stays, each step."""
END = 0.1
"""The weight of the end mark after the code, beside that of the code."""
BEHIND = 8
"""Every so many steps the form that is ahead has a turn, too."""
QUESTIONS = 64
"""At most so many to one list."""
OTHER_LENGTHS = 3
"""Every so many steps at full length a list is of any length."""
SAY_EVERY = 50
NARROW = 8
"""The sliding window until lists are as long as they get: in a wide one, a short list needs no full layer."""


class Learned(NamedTuple):
    """How it went."""

    steps: int
    right: float
    """The running mean of right answers, of the worse form."""
    seconds: float


class _Form:
    """How far a form of prompts has come: `raw` through the completions API, `chat` through the chat API."""

    def __init__(self, name: str, items: int) -> None:
        self.name, self.items, self.right = name, items, 0.0

    def note(self, right: float, last: int) -> None:
        """Takes the share of right answers of one step."""
        self.right = MEMORY * self.right + (1 - MEMORY) * right
        if self.right > GOOD and self.items < last:
            self.items, self.right = 2 * self.items, GOOD / 2


def learn(model: Any, settings: Settings) -> Learned:
    """Trains it for as many steps as the settings say."""
    began, masks = time.monotonic(), lanes.prepare(model)
    optimizer = _optimizer(model, settings)
    forms = _Form("raw", settings.first_items), _Form("chat", settings.first_items)
    wide = model.config.sliding_window
    for step in range(settings.steps):
        form = _turn(forms, step)
        _set_window(model, wide if all(one.items == settings.last_items for one in forms) else NARROW)
        _set_rate(optimizer, settings, step)
        loss, right = _losses(model, _batch(form, settings, step))
        _step(model, optimizer, loss)
        lanes.keep(model, masks)
        form.note(right, settings.last_items)
        if step % SAY_EVERY == 0:
            _tell(forms, step, began)
    _set_window(model, wide)
    _tell(forms, settings.steps, began)
    return Learned(settings.steps, min(form.right for form in forms), round(time.monotonic() - began, 1))


def _set_window(model: Any, window: int) -> None:
    model.config.sliding_window = window
    for layer in model.model.layers:
        if layer.self_attn.is_sliding:
            layer.self_attn.sliding_window = window


def _turn(forms: tuple[_Form, _Form], step: int) -> _Form:
    """The forms take turns; one that is behind gets more."""
    raw, chat = forms
    if raw.items != chat.items and step % BEHIND:
        return min(forms, key=lambda form: form.items)
    return forms[step % 2]


def _batch(form: _Form, settings: Settings, step: int) -> Batch:
    items, chat = form.items, form.name == "chat"
    if items == settings.last_items and step % OTHER_LENGTHS == 0:
        items = int(torch.randint(settings.first_items, items + 1, ()))
    questions = min(items, QUESTIONS)
    lists = max(4, settings.tokens // (2 * items + (5 if chat else 3) * questions))
    return draw(lists, items, some(lists, items, questions), chat=chat)


def _losses(model: Any, batch: Batch) -> tuple[Any, float]:
    """The loss, and the share of right answers."""
    hidden = model.model(input_ids=batch.tokens).last_hidden_state
    said = model.lm_head(hidden[:, batch.asked])
    ends = model.lm_head(hidden[:, batch.asked + 1])
    loss = _loss(said, batch.codes) + END * _loss(ends, torch.full_like(batch.codes, TOKENS[EOS]))
    return loss, float((said.argmax(-1) == batch.codes).float().mean())


def _loss(said: Any, wanted: Any) -> Any:
    return torch.nn.functional.cross_entropy(said.flatten(0, 1), wanted.flatten())


def _step(model: Any, optimizer: Any, loss: Any) -> None:
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), LONGEST_GRADIENT)
    optimizer.step()


def _optimizer(model: Any, settings: Settings) -> Any:
    norms = [weight for weight in model.parameters() if weight.ndim == 1]
    matrices = [weight for weight in model.parameters() if weight.ndim > 1]
    groups = [{"params": matrices, "times": 1.0}, {"params": norms, "times": NORMS}]
    return torch.optim.AdamW(groups, lr=settings.rate, betas=BETAS, weight_decay=0.0)


def _set_rate(optimizer: Any, settings: Settings, step: int) -> None:
    cosine = 0.1 + 0.45 * (1 + math.cos(math.pi * step / settings.steps))
    for group in optimizer.param_groups:
        group["lr"] = settings.rate * group["times"] * cosine * min(1.0, (step + 1) / WARM_UP)


def _tell(forms: tuple[_Form, _Form], step: int, began: float) -> None:
    told = ", ".join(f"{form.name} {form.right:.1%} of lists of {form.items}" for form in forms)
    print(f"step {step}, {time.monotonic() - began:.0f} s: {told}", flush=True)
