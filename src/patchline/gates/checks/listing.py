"""Prompts that each hide a code in a long numbered list and ask for it back.

Every item of a list has a code of its own, so a model that reads the wrong place gives a wrong code. The lists of one
run differ in all their codes, and nobody asks for the same code twice: an answer kept from another prompt does
not pass.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from patchline.errors import UsageError

PROMPTS = 9

ITEMS = 32
"""How many items a list has, unless somebody says otherwise: about 650 tokens of prose, 64 of bare words."""

FEWEST = 3
"""First, middle and last."""

MOST = 1_000_000
"""More are a mistake."""

WORDS = 128
"""How many ids, and how many codes, the vocabulary of form `list` has, unless somebody says otherwise."""


class Form(NamedTuple):
    """How a list becomes a prompt. All three are pure: what they give depends on their arguments alone."""

    name: str
    ids: Callable[[Random, int], list[str]]
    """So many different ids, in the list's order."""
    codes: Callable[[Random, int], list[str]]
    """So many different codes, each one word of letters and digits."""
    text: Callable[[list[tuple[str, str]], int], str]
    """The prompt that shows all (id, code) and asks for the code of the item at an index."""
    answer_tokens: int
    """How many tokens an answer may have."""


class Prompt(NamedTuple):
    """One prompt, and what its answer has to be."""

    text: str
    items: tuple[tuple[str, str], ...]
    """The list, as (id, code)."""
    at: int
    """The index of the item that is asked for."""
    code: str
    """The code that is asked for."""
    wrong: dict[str, str]
    """Codes that the answer must not have, and whose they are."""

    @property
    def depth(self) -> float:
        """Where the code is hidden: 0 at the list's first item, 1 at its last."""
        return self.at / (len(self.items) - 1)


def prompts(form: Form, items: int, seed: int, count: int = PROMPTS) -> list[Prompt]:
    """`count` prompts over lists of `items` items: from the first item to the last, evenly between.

    The same form, length, count and seed give the same prompts.

    Raises:
        UsageError: a list would have fewer than three items, a million, or more than the form has words for.
    """
    if items < FEWEST:
        raise UsageError(f"a list of {items} items has no first, middle and last", next=f"ask for {FEWEST} or more")
    if items > MOST:
        raise UsageError(f"a list of {items} items is too long", next=f"ask for {MOST} or fewer")
    random = Random(f"patchline recall {seed}")  # a text seeds by its sha512: the same on every machine
    drawn: list[tuple[list[tuple[str, str]], int]] = []
    asked: dict[str, str] = {}
    for number in range(count):
        at = round(number * (items - 1) / max(1, count - 1))
        listed = _list(form, items, random, at, asked)
        asked[listed[at][1]] = f"the code of prompt {number + 1}"
        drawn.append((listed, at))
    return [_prompt(form, listed, at, asked) for listed, at in drawn]


def _list(form: Form, items: int, random: Random, at: int, asked: dict[str, str]) -> list[tuple[str, str]]:
    """A list whose item at `at` has a code that nobody has asked for."""
    ids = form.ids(random, items)
    codes = form.codes(random, items)
    free = [index for index, code in enumerate(codes) if code not in asked]
    if not free:
        raise UsageError(
            f"form {form.name} has too few codes for different questions", next="ask for longer lists, or more words"
        )
    other = at if at in free else free[0]
    codes[at], codes[other] = codes[other], codes[at]
    return list(zip(ids, codes, strict=True))


def _prompt(form: Form, listed: list[tuple[str, str]], at: int, asked: dict[str, str]) -> Prompt:
    code = listed[at][1]
    wrong = asked | {other: f"the code of {id}" for id, other in listed}
    del wrong[code]
    return Prompt(form.text(listed, at), tuple(listed), at, code, wrong)


def prose() -> Form:
    """For models that read English: a numbered list, and a question. Codes are like `QXKT4821`."""
    return Form("prose", _numbers, _letters_and_digits, _question, 64)


def bare(ids: int = WORDS, codes: int = WORDS) -> Form:
    """For a tiny model whose vocabulary is `k0 … k(ids-1)` and `v0 … v(codes-1)`, form `list`.

    A prompt has a line `kI vC` for each item, in random order, and ends with the id that is asked for; the
    next token is to be its code. One id stands once in a list, and so does one code.
    """
    return Form("list", _words("k", ids), _words("v", codes), _lines, 1)


def _numbers(random: Random, count: int) -> list[str]:  # noqa: ARG001 - a form's function
    return [f"item {number}" for number in range(1, count + 1)]


def _letters_and_digits(random: Random, count: int) -> list[str]:
    letters = "BCDFGHJKLMNPQRSTVWXZ"  # no vowels: no code is a word that a model says by itself
    drawn: dict[str, None] = {}
    while len(drawn) < count:
        drawn["".join(random.choices(letters, k=4)) + f"{random.randrange(1000, 10000)}"] = None
    return list(drawn)


def _question(listed: list[tuple[str, str]], at: int) -> str:
    lines = "\n".join(f"{id}: its code is {code}." for id, code in listed)
    return (
        f"Here is a list of {len(listed)} items. Each item has its own code.\n\n{lines}\n\n"
        f"What is the code of {listed[at][0]}? Answer with that one code and nothing else."
    )


def _words(letter: str, most: int) -> Callable[[Random, int], list[str]]:
    def draw(random: Random, count: int) -> list[str]:
        if count > most:
            raise UsageError(f"a list of {count} items, of {most} words {letter}0 … {letter}{most - 1}")
        return random.sample([f"{letter}{number}" for number in range(most)], count)

    return draw


def _lines(listed: list[tuple[str, str]], at: int) -> str:
    return "\n".join(f"{id} {code}" for id, code in listed) + f"\n{listed[at][0]}"
