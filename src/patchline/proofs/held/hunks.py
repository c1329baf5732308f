"""Takes every piece of every patch away, and makes every small mistake in its lines: a test has to notice.

A patch is tried on itself and the patches before it, with its own tests: nobody else's count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from patchline.errors import DidNotEnd, ProofFailed
from patchline.overlay import Change, Overlay, overlay
from patchline.progress import say
from patchline.proofs import evidence
from patchline.proofs.bench import Bench, host
from patchline.proofs.held import explained
from patchline.proofs.held.explained import Explained
from patchline.proofs.held.mutate import Mutant, mutants
from patchline.proofs.held.pieces import Piece, added_lines, entries, pieces
from patchline.proofs.held.trials import Trial, Tried, attempt
from patchline.proofs.prove import coverage, tests_of_all
from patchline.proofs.steps import steps
from patchline.series.carried import Carried

KIND = "hunks"
LIMIT = 900.0
"""Seconds that one run of a patch's tests may take without any change."""
SCORE = 0.95
"""Of the mutants, so many at least must be noticed; every other one needs a reason."""


class Held(NamedTuple):
    """How one patch is held by its tests."""

    patch: str
    pieces: list[Piece]
    dropped: list[Tried]
    """What became of each piece when it was taken away."""
    mutants: list[Tried]
    reasons: dict[str, str]
    """Why a survivor is none, by its name: mutants, and pieces that are comments."""
    faults: list[str]

    @property
    def survivors(self) -> list[Tried]:
        """The mutants that no test noticed."""
        return [one for one in self.mutants if not one.noticed]

    @property
    def score(self) -> float:
        """The part of the mutants that a test noticed; 1 where a patch has no line to make a mistake in."""
        return 1 - len(self.survivors) / len(self.mutants) if self.mutants else 1.0


class Result(NamedTuple):
    """All patches of one series."""

    name: str
    overlay: Overlay
    patches: list[Held]
    verified: str
    """When the evidence was made that was judged; empty where the trials were made now."""

    @property
    def stands(self) -> bool:
        """Whether every carried line is held."""
        return bool(self.patches) and not any(one.faults for one in self.patches)


class _Of(NamedTuple):
    """What is tried of one patch."""

    patch: str
    before: Overlay
    after: Overlay
    files: list[str]
    pieces: list[Piece]
    mutants: list[Mutant]
    explained: set[str]


class _Outcomes(NamedTuple):
    dropped: list[Tried]
    mutants: list[Tried]


def hunks(carried: Carried, *, limit: float = LIMIT, fresh: bool = False, record: bool = False) -> Result:
    """Tries every piece and every mutant of every patch; evidence of the same inputs is judged instead.

    Raises:
        As `prove`; and UsageError: `explained.toml` is not as it must be.
    """
    tests, made = tests_of_all(carried), overlay(carried)
    all_steps = steps(carried, made)
    reasons = explained.load(carried.folder / explained.NAME)
    wanted = [
        _Of(
            name,
            before,
            after,
            paths,
            pieces(carried.repo, before, after),
            _mutants(carried, before, after),
            {said for patch, said in (*reasons.comments, *reasons.survivors) if patch == name},
        )
        for (name, paths), before, after in zip(tests.items(), all_steps[:-1], all_steps[1:], strict=True)
    ]
    covers = coverage(carried, all_steps, tests) | evidence.code("held")
    found = None if fresh else evidence.find(carried.project, KIND, carried.name, covers)
    outcomes = msgspec.convert(found.result, dict[str, _Outcomes]) if found else _try_all(carried, made, wanted, limit)
    held = [_judge(one, outcomes[one.patch], reasons) for one in wanted]
    held[-1].faults.extend(_stale(held, reasons))
    done = Result(carried.name, made, held, found.made if found else "")
    if done.stands and (not found or record):
        kept = found or evidence.new(KIND, carried.name, covers, msgspec.to_builtins(outcomes), host(carried))
        evidence.keep(kept, carried.project if record else None)
    return done


def _mutants(carried: Carried, before: Overlay, after: Overlay) -> list[Mutant]:
    found: list[Mutant] = []
    for path, entry in sorted(entries(after).items()):
        if entry and path.endswith(".py") and entry != entries(before).get(path):
            found += mutants(path, entry.data, added_lines(carried.repo, before, after, path))
    return found


def _try_all(carried: Carried, made: Overlay, wanted: Sequence[_Of], limit: float) -> dict[str, _Outcomes]:
    bench = Bench(carried, made, limit)
    bench.prepare([made, *(one.after for one in wanted)])
    found: dict[str, _Outcomes] = {}
    for one in wanted:
        say(f"{carried.name}: {one.patch}: {len(one.pieces)} pieces, {len(one.mutants)} mutants")
        in_forks = [*map(_without, _in_forks(one)), *map(_mistaken, one.mutants)]
        in_forks = [trial._replace(explained=trial.name in one.explained) for trial in in_forks]
        tried = attempt(bench, one.after, f"{one.patch} changed", one.files, in_forks) if in_forks else []
        rest = iter(tried)
        dropped = [next(rest) if _is_code(piece) else _on_its_own_tree(bench, one, piece) for piece in one.pieces]
        found[one.patch] = _Outcomes(dropped, [*rest])
    bench.check()
    return found


def _is_code(piece: Piece) -> bool:
    """Whether a fork can import the file without it; anything else needs a tree of its own."""
    return piece.path.endswith(".py") and piece.line > 0


def _in_forks(one: _Of) -> list[tuple[Piece, bytes]]:
    after = entries(one.after)
    found = [(piece, after[piece.path]) for piece in one.pieces if _is_code(piece)]
    return [(piece, entry.data) for piece, entry in found if entry]


def _without(one: tuple[Piece, bytes]) -> Trial:
    piece, data = one
    text = piece.without.data.decode(errors="surrogateescape") if piece.without else ""
    return Trial(piece.name, piece.path, piece.line, piece.path, 0, len(data), text)


def _mistaken(mutant: Mutant) -> Trial:
    return Trial(mutant.name, mutant.path, mutant.line, mutant.function, mutant.start, mutant.end, mutant.after)


def _on_its_own_tree(bench: Bench, one: _Of, piece: Piece) -> Tried:
    """Runs the tests on a copy of the package that lacks the piece."""
    changes = [_back(change, piece) if change.path == piece.path else change for change in one.after.changes]
    variant = one.after._replace(changes=tuple(change for change in changes if change.old != change.new))
    try:
        done = bench.on(variant, f"{one.patch} without {piece.name}", one.files, first_failure=True)
    except DidNotEnd:
        return Tried(piece.name, piece.line, "too slow", "")
    failing = [name for name, test in done.tests.items() if test.outcome in ("failed", "error")]
    if failing or done.errors:
        by = failing[0] if failing else done.errors[0].partition(":")[0]  # the file: the rest tells of this machine
        return Tried(piece.name, piece.line, "failed", by)
    if any(test.outcome != "passed" for test in done.tests.values()):
        raise ProofFailed(f"{one.patch} without {piece.name}: not every test ran")
    return Tried(piece.name, piece.line, "survived", "")


def _back(change: Change, piece: Piece) -> Change:
    return change._replace(new=piece.without)


def _judge(one: _Of, outcomes: _Outcomes, reasons: Explained) -> Held:
    names = [piece.name for piece in one.pieces], [mutant.name for mutant in one.mutants]
    if names != ([tried.name for tried in outcomes.dropped], [tried.name for tried in outcomes.mutants]):
        raise ProofFailed(f"{one.patch}: the evidence is not of its pieces and mutants", next="run with --fresh")
    said: dict[str, str] = {}
    held = Held(one.patch, one.pieces, outcomes.dropped, outcomes.mutants, said, [])
    if not one.pieces:
        held.faults.append("it changes no file of the installed package: nothing can hold it")
    for piece, tried in zip(one.pieces, outcomes.dropped, strict=True):
        held.faults.extend(_piece_fault(piece, tried, reasons.comments.get((one.patch, piece.name)), said))
    for tried in held.survivors:
        reason = reasons.survivors.get((one.patch, tried.name))
        if reason is None:
            held.faults.append(f"line {tried.line}: no test notices this mistake: {tried.name}")
        else:
            said[tried.name] = reason
    if held.score < SCORE:
        held.faults.append(f"its tests notice {held.score:.1%} of the mistakes; {SCORE:.0%} are asked")
    return held


def _piece_fault(piece: Piece, tried: Tried, reason: str | None, said: dict[str, str]) -> list[str]:
    if tried.noticed:
        return []
    if not piece.comment:
        return [f"hunk {piece.hunk}, line {piece.line}: no test fails without it: {piece.name}"]
    if reason is None:
        return [
            f"hunk {piece.hunk}, line {piece.line}: a comment that {explained.NAME} gives no reason for: {piece.name}"
        ]
    said[piece.name] = reason
    return []


def _stale(held: Sequence[Held], reasons: Explained) -> list[str]:
    used = {(one.patch, name) for one in held for name in one.reasons}
    left = [key for key in (*reasons.comments, *reasons.survivors) if key not in used]
    return [
        f"{explained.NAME} explains what a test holds, or what is not there: {patch}: {name}" for patch, name in left
    ]
