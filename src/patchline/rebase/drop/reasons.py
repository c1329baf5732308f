"""Why a patch is dropped, and whether the version that is named says so, too."""

from __future__ import annotations

import re

from patchline.errors import Refused, UsageError
from patchline.nearest import hint
from patchline.rebase import onto
from patchline.rebase.behaviour import OnStock
from patchline.rebase.drop.asked import Asked
from patchline.rebase.words import Judged, Verdict

FITTING = {"upstream": (Verdict.UPSTREAM,), "not-needed": (Verdict.NOT_NEEDED, Verdict.UPSTREAM)}
"""Reasons that are checked, with the verdicts that bear them out. Any other is the user's own, and needs a text."""

_OWN = "superseded"
_WORD = re.compile(r"[a-z]+(-[a-z]+)*")


def check(reason: str, text: str) -> None:
    """Refuses a reason that nobody will understand later.

    Raises:
        UsageError: it is no word, nearly a checked one, or one's own without a text.
    """
    if reason in FITTING:
        return
    near = hint(reason, [*FITTING, _OWN])
    if not _WORD.fullmatch(reason) or (reason != _OWN and near.startswith("did you mean")):
        raise UsageError(f"there is no reason {reason!r}; {near}", next="python -m patchline drop --help")
    if not text.strip():
        raise UsageError(
            f"no verdict can bear out the reason {reason!r}: say it in words",
            next=f'--reason {reason} --text "what the changelog\'s readers should know"',
        )


def judged(asked: Asked, reason: str, *, run_tests: bool, limit: float) -> Judged:
    """The patch's verdict on the version; its tests run there for `not-needed`, and where `run_tests` says so.

    Raises:
        Refused: the verdict does not bear the reason out; it is in the message, with its evidence.
        As `rebase.judge` and `rebase.behaviour`.
    """
    found = _judged(asked, None)
    by_text = reason == "not-needed" and found.verdict is Verdict.UPSTREAM
    if run_tests or (reason == "not-needed" and not by_text):
        found = _judged(asked, OnStock(asked.source, asked.here, limit=limit))
    fits = FITTING.get(reason)
    if fits and (found.verdict not in fits or found.needs_hands):
        raise _refused(asked, reason, found)
    return found


def _judged(asked: Asked, stock: OnStock | None) -> Judged:
    judge = onto.judge_of(asked.source)
    behaves = (lambda patch: stock(patch) if patch.name == asked.source_file else None) if stock else None
    done = onto.verdicts(judge, asked.source, asked.here, behaves)
    found = next(one.judged for one in done if one.patch.name == asked.source_file)
    if stock and stock.without:
        said = f"WITHOUT ITS COMPILED CODE, of its Python tree alone: {stock.without}"
        found = found._replace(evidence=(*found.evidence, said))
    return found


def _refused(asked: Asked, reason: str, found: Judged) -> Refused:
    lines = [f"{asked.name}: {reason} does not hold in {asked.here.name}, where its verdict is {found.verdict.value}"]
    lines += [f"  {line}" for line in found.evidence]
    if found.contradicted:
        lines.append("  its text is there, and its tests fail on stock: upstream's does not do what it does")
    missing = [one for one in found.hunks if one.fate.value != "upstream"] if reason == "upstream" else []
    lines += [f"  not there: {one.path}, hunk {one.hunk}: {one.fate.value}" for one in missing]
    lines.append("nothing was changed")
    name, version = asked.source.name, asked.here.pin.version
    return Refused(
        "\n".join(lines),
        where=f"patches/{asked.path}",
        next=f"python -m patchline rebase {name} --onto {version} --dry-run, or give your own --reason with --text"
        if asked.source.name != asked.here.name
        else "give your own --reason with --text",
    )
