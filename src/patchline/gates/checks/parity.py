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


class Heard(NamedTuple):
    """What one endpoint answered to some prompts."""

    who: str
    """The endpoint, as records show it."""
    api: Api
    top: int
    answers: tuple[Answer | str, ...]
    """Or why there is none that can be compared."""


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
    left, right = (hear(endpoint, texts, api=api, tokens=tokens, top=top) for endpoint in (one, other))
    return agreement(left, right, bound=bound)


def hear(endpoint: Endpoint, texts: list[str], *, api: Api = "chat", tokens: int = TOKENS, top: int = TOP) -> Heard:
    """Asks every prompt of `texts`, without randomness; what is heard can be compared when the endpoint is gone.

    Raises:
        Unreachable: it did not answer, or with 429 or a status of the 500s.
    """
    answers: list[Answer | str] = []
    for number, text in enumerate(texts, 1):
        try:
            answer = ask(endpoint, text, api, tokens=tokens, logprobs=top)
            answers.append(_unusable(answer) or answer)
        except WrongAnswer as wrong:
            answers.append(wrong.what)
        say(f"parity, prompt {number} of {len(texts)} to {endpoint.shown}: {_heard(answers[-1])}")
    return Heard(endpoint.shown, api, top, tuple(answers))


def _heard(answer: Answer | str) -> str:
    return answer if isinstance(answer, str) else f"{len(answer.steps or ())} tokens"


def agreement(one: Heard, other: Heard, *, bound: float = BOUND) -> Result:
    """Compares what two endpoints answered to the same prompts, token by token."""
    found = [_of_prompt(one, other, at, bound) for at in range(max(len(one.answers), len(other.answers)))]
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
        "endpoints": [one.who, other.who],
        "api": one.api,
        "top": one.top,
    }
    say(f"parity: {_told(compared, largest, faults)}")
    return Result("parity", compared, faults, numbers)


def _of_prompt(one: Heard, other: Heard, at: int, bound: float) -> Comparison:
    left, right = (heard.answers[at] if at < len(heard.answers) else "it was not asked" for heard in (one, other))
    if isinstance(left, str) or isinstance(right, str):
        both = ((one, left), (other, right))
        return Comparison(0, None, [f"{heard.who}: {why}" for heard, why in both if isinstance(why, str)])
    return compare(left, right, at + 1, bound)


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
    pairs = [_named(*both) for both in zip(one.steps or (), other.steps or (), strict=False)]
    left = (*(pair[0] for pair in pairs), *(one.steps or ())[len(pairs) :])
    right = (*(pair[1] for pair in pairs), *(other.steps or ())[len(pairs) :])
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


def _named(one: Step, other: Step) -> tuple[Step, Step]:
    """Both, with a name for a token that one of them writes as nothing.

    Dynamo's frontend writes special tokens, as the one that ends an answer, as an empty text: the token itself, while
    it lists it by its name, or both. It is the one that is listed with its very log-probability; else the one token
    that only the other lists, and whether it is that one its log-probability says.
    """
    return _named_by(one, other), _named_by(other, one)


def _named_by(step: Step, other: Step) -> Step:
    if not step.token and "" not in step.top:
        same = [text for text, logprob in step.top.items() if logprob == step.logprob]
        return step._replace(token=same[0]) if len(same) == 1 else step
    only = other.top.keys() - step.top.keys()
    if "" not in step.top or "" in other.top or len(only) != 1:
        return step
    name = next(iter(only))
    top = {text or name: logprob for text, logprob in step.top.items()}
    return Step(step.token or name, step.logprob, top)


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


def _told(compared: int, largest: Largest | None, faults: list[str]) -> str:
    if faults:
        return faults[0]
    return f"{compared} tokens, largest difference {largest.difference:.3g}" if largest else "nothing"
