"""How many items a list needs, for a prompt of so many tokens: the endpoint's own count says it."""

from __future__ import annotations

from patchline.errors import UsageError
from patchline.gates.checks.answers import CHAT, COMPLETIONS, Api, ask
from patchline.gates.checks.endpoint import Endpoint, WrongAnswer, place
from patchline.gates.checks.listing import FEWEST, Form, prompts

_PROBES = (8, 24)
"""Items of the two lists that are tried: short enough for every model, different enough for a slope."""


def items_for(endpoint: Endpoint, form: Form, api: Api, tokens: int, seed: int) -> int:
    """The number of items whose prompt has about `tokens` tokens, from the lengths of two short prompts.

    Use another seed than for what is asked afterwards: a cache would know its beginning.

    Raises:
        Unreachable, WrongAnswer: the endpoint does not answer, or does not say how many tokens a prompt has.
        UsageError: fewer tokens than the shortest list takes.
    """
    few, many = (_tokens(endpoint, form, api, items, seed) for items in _PROBES)
    each = (many - few) / (_PROBES[1] - _PROBES[0])
    if each <= 0:
        raise _uncounted(endpoint, api, f"a longer prompt has {many} tokens and a shorter one {few}")
    items = round(_PROBES[0] + (tokens - few) / each)
    if items < FEWEST:
        raise UsageError(f"{tokens} tokens are too few for a list of {FEWEST} items", next="ask for more tokens")
    return items


def _tokens(endpoint: Endpoint, form: Form, api: Api, items: int, seed: int) -> int:
    prompt = prompts(form, items, seed, 1)[0]
    counted = ask(endpoint, prompt.text, api, tokens=1).prompt_tokens
    if not counted:
        raise _uncounted(endpoint, api, "the answer does not say how many tokens its prompt has")
    return counted


def _uncounted(endpoint: Endpoint, api: Api, what: str) -> WrongAnswer:
    where = place(endpoint, CHAT if api == "chat" else COMPLETIONS)
    return WrongAnswer(f"{what}: no length in tokens can be set", where=where, next="give the length in items")
