"""Parity: two endpoints, one disaggregated and one not, give the same tokens with the same log-probabilities."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from patchline.gates.checks.answers import Answer, Api, Step, ask
from patchline.gates.checks.endpoint import Endpoint, WrongAnswer
from patchline.gates.checks.result import Result, cut
from patchline.progress import say

BOUND = 1e-4
"""How far two log-probabilities may lie apart: ten times what float32 on a CPU was seen to differ by."""

TOKENS = 16
"""Tokens of each answer."""

TOP = 5
"""Most probable tokens that are compared at each place."""


class Largest(NamedTuple):
    """The largest difference between two log-probabilities, and where it is."""

    difference: float
    prompt: int
    """From 1."""
    token: int
    """From 1, in the answer."""
    text: str


class Comparison(NamedTuple):
    """Two answers to one prompt, compared token by token up to the first that differs."""

    compared: int
    largest: Largest | None
    faults: list[str]


def parity(
    one: Endpoint,
    other: Endpoint,
    texts: list[str],
    *,
    api: Api = "chat",
    tokens: int = TOKENS,
    top: int = TOP,
    bound: float = BOUND,
) -> Result:
    """Asks both endpoints every prompt of `texts`, without randomness, and compares.

    Raises:
        Unreachable: one of them did not answer, or with 429 or a status of the 500s.
    """
    found = []
    for number, text in enumerate(texts, 1):
        found.append(_of_prompt(one, other, text, number, api, tokens, top, bound))
        say(f"parity {number} of {len(texts)}: {_told(found[-1])}")
    faults = [f"prompt {number}: {fault}" for number, each in enumerate(found, 1) for fault in each.faults]
    compared = sum(each.compared for each in found)
    if compared == 0:
        faults.append("no token was compared")
    largest = max((each.largest for each in found if each.largest), default=None)
    numbers: dict[str, Any] = {
        "prompts": len(found),
        "tokens": compared,
        "bound": bound,
        "largest": largest._asdict() if largest else None,
        "endpoints": [one.shown, other.shown],
        "api": api,
        "top": top,
    }
    return Result("parity", compared, faults, numbers)


def _of_prompt(
    one: Endpoint, other: Endpoint, text: str, number: int, api: Api, tokens: int, top: int, bound: float
) -> Comparison:
    answers: list[Answer] = []
    for endpoint in (one, other):
        try:
            answers.append(ask(endpoint, text, api, tokens=tokens, logprobs=top))
        except WrongAnswer as wrong:
            return Comparison(0, None, [f"{endpoint.shown}: {wrong.what}"])
    faults = [
        f"{endpoint.shown}: {fault}"
        for endpoint, answer in zip((one, other), answers, strict=True)
        if (fault := _unusable(answer))
    ]
    return Comparison(0, None, faults) if faults else compare(answers[0], answers[1], number, bound)


def _unusable(answer: Answer) -> str | None:
    """Why an answer cannot be compared. Of its tokens the one that ends it may have no log-probability."""
    steps = answer.steps
    if not steps:
        return "the answer has no log-probabilities"
    if answer.answer_tokens not in (None, len(steps), len(steps) + 1):
        return f"the answer has {answer.answer_tokens} tokens, and log-probabilities for {len(steps)}"
    for number, step in enumerate(steps, 1):
        if not step.top:
            return f"token {number} has no list of the most probable tokens"
        if not all(map(math.isfinite, [step.logprob, *step.top.values()])):
            return f"token {number} has a log-probability that is no number"
    return None


def compare(one: Answer, other: Answer, prompt: int, bound: float = BOUND) -> Comparison:
    """Compares two answers to prompt number `prompt`; both must have log-probabilities."""
    left, right = one.steps or (), other.steps or ()
    same = _same(left, right)
    readable = min(same + 1, len(left), len(right))  # where the tokens part, what was before them is still the same
    tops = [(*_difference(left[at], right[at]), at) for at in range(readable)]
    largest = max((Largest(gap, prompt, at + 1, text) for gap, text, at in tops), default=None)
    faults = []
    if largest and not largest.difference <= bound:
        faults.append(
            f"log-probabilities differ by {largest.difference:.3g} at token {largest.token}"
            f" ({cut(largest.text, 40)!r}); {bound:g} is allowed"
        )
    if same < max(len(left), len(right)):
        faults.append(f"token {same + 1} differs: {_token(left, same)} against {_token(right, same)}")
    elif one.text != other.text:
        faults.append(f"the tokens are the same and the texts are not: {cut(one.text)!r} against {cut(other.text)!r}")
    return Comparison(same, largest, faults)


def _same(left: tuple[Step, ...], right: tuple[Step, ...]) -> int:
    """How many tokens are the same, from the first on."""
    for at, (one, other) in enumerate(zip(left, right, strict=False)):
        if one.token != other.token:
            return at
    return min(len(left), len(right))


def _difference(one: Step, other: Step) -> tuple[float, str]:
    """The largest difference at one place, and whose it is.

    A token that only one side lists is less probable on the other side than all that are listed there: its
    difference is at least the distance to the least of those.
    """
    gaps = [(abs(one.logprob - other.logprob), one.token)] if one.token == other.token else [(0.0, one.token)]
    gaps += [(abs(one.top[text] - other.top[text]), text) for text in one.top.keys() & other.top.keys()]
    for here, there in ((one.top, other.top), (other.top, one.top)):
        least = min(there.values())
        gaps += [(logprob - least, text) for text, logprob in here.items() if text not in there]
    return max(gaps)


def _token(steps: tuple[Step, ...], at: int) -> str:
    return f"{cut(steps[at].token, 40)!r} ({steps[at].logprob:.4f})" if at < len(steps) else "the answer's end"


def _told(found: Comparison) -> str:
    if found.faults:
        return found.faults[0]
    return f"{found.compared} tokens, largest difference {found.largest.difference:.3g}" if found.largest else "nothing"
