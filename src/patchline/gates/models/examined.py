"""Whether an exam says that a tiny model is fit: it gives back codes, and wrong KV makes them wrong."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from patchline.gates.models.shapes import Shape
from patchline.gates.models.trainer import asked
from patchline.gates.models.trainer.faults import NONE, Fault

RIGHT = 0.999
"""The least share of right answers, for every length of a list and both forms of a prompt."""

UNSEEN = 1
"""So many of the five checks with a fault may see nothing of it: nine lucky answers happen."""

EXACT = 1e-3
"""A log-probability may move so much by reading right KV from a cache, in float32."""


class Seen(msgspec.Struct):
    """What became of the recall check with a fault, see `trainer.exam.Seen`."""

    name: str
    form: str
    right: list[int]
    moved: float


class Exam(msgspec.Struct):
    """What the trainer says of its model."""

    recall: dict[str, dict[int, float]]
    sensitivity: list[Seen]


def faults(exam: Exam, of: Shape) -> list[str]:
    """Why a model is not fit, one sentence each; none where it is."""
    by_fault = {(one.name, one.form): one for one in exam.sensitivity}
    return [*_of_recall(exam), *_of_control(by_fault), *_of_sensitivity(by_fault, of)]


def _of_recall(exam: Exam) -> Iterator[str]:
    for form in asked.FORMS:
        for items in asked.LENGTHS:
            share = exam.recall.get(form, {}).get(items)
            if share is None:
                yield f"{form}: lists of {items} items were not asked"
            elif not share >= RIGHT:  # NaN, too
                yield f"{form}: {share:.2%} of lists of {items} items, {RIGHT:.1%} are wanted"


def _of_control(by_fault: dict[tuple[str, str], Seen]) -> Iterator[str]:
    """Without a fault nothing may be seen, or what is seen says nothing."""
    for form in asked.FORMS:
        seen = by_fault.get((NONE.name, form))
        if seen is None or len(seen.right) != asked.CHECKS:
            yield f"{form}: it was not asked without a fault"
        elif set(seen.right) != {asked.PROMPTS} or not seen.moved < EXACT:
            yield f"{form}: without a fault {seen.right} of {asked.PROMPTS} are right, and {seen.moved:.1e} is moved"


def _of_sensitivity(by_fault: dict[tuple[str, str], Seen], of: Shape) -> Iterator[str]:
    for fault in asked.all_of(of.config):
        for form in fault.seen:
            if why := _unseen(fault, by_fault.get((fault.name, form))):
                yield f"{form}: {why}"


def _unseen(fault: Fault, seen: Seen | None) -> str:
    if seen is None or len(seen.right) != asked.CHECKS:
        return f"it was not asked with this fault: {fault.name}"
    blind = seen.right.count(asked.PROMPTS)
    if blind > UNSEEN:
        return f"{blind} of {asked.CHECKS} checks see nothing of this fault: {fault.name}"
    return ""
