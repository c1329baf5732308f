"""The recall check: nine prompts that each hide a code in a long numbered list and ask for it back.

Nine of nine or it fails. A status of 200 counts for nothing: wrong KV gives fluent wrong text.
"""

from __future__ import annotations

import re
import time
from typing import NamedTuple

from patchline.gates.checks.answers import Answer, Api, ask
from patchline.gates.checks.endpoint import Endpoint, WrongAnswer
from patchline.gates.checks.listing import Form, Prompt, prompts
from patchline.gates.checks.result import Result, cut
from patchline.progress import say


class Row(NamedTuple):
    """What came of one prompt."""

    depth: float
    """0 where the code is in the list's first item, 1 where in its last."""
    expected: str
    got: str
    """The answer, cut."""
    fault: str | None
    prompt_tokens: int | None
    answer_tokens: int | None
    seconds: float


def recall(
    endpoint: Endpoint, form: Form, *, items: int, seed: int, api: Api = "chat", tokens: int | None = None
) -> Result:
    """Asks nine prompts over lists of `items` items; an answer has `tokens` tokens, or as many as the form says.

    An engine that keeps what it has read (prefix caching) answers a prompt that it has seen without moving its KV:
    give every run a seed of its own.

    Raises:
        Unreachable: the endpoint did not answer one of them, or with 429 or a status of the 500s.
        UsageError: the form has no lists of that length.
    """
    rows = []
    asked = prompts(form, items, seed)
    for number, prompt in enumerate(asked, 1):
        row = _row(endpoint, prompt, api, tokens or form.answer_tokens)
        rows.append(row)
        say(f"recall {number} of {len(asked)}: {_told(row)}")
    right = sum(row.fault is None for row in rows)
    faults = [f"prompt {number}: {row.fault}" for number, row in enumerate(rows, 1) if row.fault]
    numbers = {
        "right": right,
        "of": len(rows),
        "form": form.name,
        "api": api,
        "items": items,
        "seed": seed,
        "prompts": [row._asdict() for row in rows],
    }
    return Result("recall", len(rows), faults, numbers)


def judge(prompt: Prompt, answer: str) -> str | None:
    """What is wrong with an answer; None where it has the code, as a whole word, and no other code.

    Raises: nothing.
    """
    words = set(re.findall(r"\w+", answer))
    others = sorted(prompt.wrong[word] for word in words & prompt.wrong.keys())
    if prompt.code in words and not others:
        return None
    if prompt.code in words:
        return f"{prompt.code} is there, and so is {', '.join(others[:3])}: {_quoted(answer)}"
    if others:
        return f"{prompt.code} was asked for, and {', '.join(others[:3])} came: {_quoted(answer)}"
    return f"{prompt.code} was asked for, and no code came: {_quoted(answer)}"


def _row(endpoint: Endpoint, prompt: Prompt, api: Api, tokens: int) -> Row:
    began = time.monotonic()
    try:
        answer = ask(endpoint, prompt.text, api, tokens=tokens)
        fault = judge(prompt, answer.text)
    except WrongAnswer as wrong:
        answer, fault = Answer("", "", (), None, None, None), wrong.what
    seconds = round(time.monotonic() - began, 3)
    depth = round(prompt.depth, 3)
    return Row(depth, prompt.code, cut(answer.text, 80), fault, answer.prompt_tokens, answer.answer_tokens, seconds)


def _quoted(answer: str) -> str:
    return f'"{cut(answer, 80)}"' if answer.strip() else "an empty answer"


def _told(row: Row) -> str:
    counted = f", {row.prompt_tokens} tokens" if row.prompt_tokens is not None else ""
    return f"depth {row.depth:.0%}{counted}, {row.seconds:.1f} s: {row.fault or 'right'}"
