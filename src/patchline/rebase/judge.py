"""Judges a whole series on another version, patch by patch on top of one another, in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from patchline.errors import DoesNotApply
from patchline.rebase.content import certain, placed
from patchline.rebase.file_fates import Files
from patchline.rebase.merge import Labels
from patchline.rebase.view import View
from patchline.rebase.whither import Whither
from patchline.rebase.words import Behaviour, Conflict, Fate, HunkFate, Judged, Verdict
from patchline.series.diff import FileDiff
from patchline.series.patch import Patch
from patchline.series.plan import Changes, Step, check_targets, plan
from patchline.series.trees import CommitTree, Entry

Behaves = Callable[[Patch], Behaviour | None]
"""What a patch's tests do on stock of the new version; None where nobody ran them."""


class Rebased(NamedTuple):
    """One patch on the new version: the verdict, and what it changes there."""

    patch: Patch
    judged: Judged
    changes: Changes
    """Our side where something is in conflict; empty where upstream has it all."""
    marked: dict[str, Entry]
    """Files in conflict, with markers."""
    labels: Labels


class Judge:
    """A series as its own pin has it, ready to be judged on other versions."""

    def __init__(self, old: CommitTree, patches: Sequence[Patch], name: str) -> None:
        """`name` is the pin's, for conflict markers.

        Raises:
            DoesNotApply: the series does not apply to its own pin.
        """
        self.old, self.name = old, name
        self.steps = plan(old, patches).steps
        for patch in patches:
            _check_once(patch)

    def onto(
        self,
        new: CommitTree,
        name: str,
        behaves: Behaves | None = None,
        start: int = 0,
        whither: Whither | None = None,
    ) -> list[Rebased]:
        """The verdicts on the commit `new`, in order, from patch `start` (from 0) on.

        With `start`, `new` holds what the patches before it became. `whither` is what is known of
        the two versions from an earlier call.
        """
        view = View(new)
        view.load(name for step in self.steps for diff in step.patch.files for name in (diff.old, diff.new) if name)
        whither = whither or Whither(self.old, new)
        done: list[Rebased] = []
        before: Changes = {}
        for at, step in enumerate(self.steps):
            if at >= start:
                labels = Labels(name, f"{self.name} before {step.patch.name}", step.patch.name)
                one = _judge(step, _Before(self.old, before), view, whither, labels)
                done.append(_with_behaviour(_leaning(one, done), behaves))
                view.put(done[-1].changes)
            before |= step.changes
        return done


def _check_once(patch: Patch) -> None:
    paths = [diff.path for diff in patch.files]
    if twice := {path for path in paths if paths.count(path) > 1}:
        raise DoesNotApply(
            f"{patch.name} has two diffs of {min(twice)}",
            where=str(patch.path),
            next="write it anew: python -m patchline refresh",
        )


class _Before(NamedTuple):
    """The old pin with the patches before the one at hand."""

    tree: CommitTree
    changed: Changes

    def entry(self, path: str) -> Entry | None:
        return self.changed[path] if path in self.changed else self.tree.entry(path)


def _judge(step: Step, before: _Before, view: View, whither: Whither, labels: Labels) -> Rebased:
    check_targets(step.patch)
    if simple := _simple(step, before, view):
        return Rebased(step.patch, _judged(step.patch, simple[0], (), labels), simple[1], {}, labels)
    files = Files(step.patch, view, whither, labels)
    found = [files.fate(diff, *_sides(diff, step, before)) for diff in step.patch.files]
    changes: Changes = {path: entry for one in found for path, entry in one.changes.items()}
    marked = {path: entry for one in found for path, entry in one.marked.items()}
    hunks = tuple(hunk for one in found for hunk in one.hunks)
    judged = _judged(step.patch, hunks, tuple(conflict for one in found for conflict in one.conflicts), labels)
    return Rebased(step.patch, judged, changes, marked, labels)


def _simple(step: Step, before: _Before, view: View) -> tuple[tuple[HunkFate, ...], Changes] | None:
    """The patch applied as it is, where every hunk has one place that it can mean."""
    for diff in step.patch.files:
        old, _ = _sides(diff, step, before)
        present = view.entry(diff.old or diff.path)
        if diff.action == "create" and present is None:
            continue
        if old is None or present is None or not all(certain(hunk, old.data, present.data) for hunk in diff.hunks):
            return None
        if diff.binary or not diff.hunks:
            return None
    try:
        made = plan(view, [step.patch]).steps[0]
    except DoesNotApply:
        return None
    return tuple(placed(one) for one in made.placements), made.changes


def _sides(diff: FileDiff, step: Step, before: _Before) -> tuple[Entry | None, Entry | None]:
    """The file before and after the patch on its own pin."""
    if diff.action in ("rename", "copy"):
        assert diff.old is not None
        assert diff.new is not None
        return before.entry(diff.old), step.changes.get(diff.new)
    names = [name for name in (diff.new, diff.old) if name]
    path = next((name for name in names if name in step.changes), names[0])
    return before.entry(path), step.changes.get(path, before.entry(path))


def _judged(patch: Patch, hunks: tuple[HunkFate, ...], conflicts: tuple[Conflict, ...], labels: Labels) -> Judged:
    return Judged(patch.name, _verdict(hunks, conflicts), hunks, conflicts, _evidence(hunks, labels))


def _verdict(hunks: Sequence[HunkFate], conflicts: Sequence[Conflict]) -> Verdict:
    fates = {hunk.fate for hunk in hunks}
    if fates == {Fate.UPSTREAM}:
        return Verdict.UPSTREAM
    standing = sum(hunk.standing for hunk in hunks)
    met = sum(hunk.changed - hunk.standing for hunk in hunks if hunk.fate in (Fate.CONFLICTS, Fate.PARTLY))
    if conflicts and 4 * standing < standing + met:  # an import that upstream needed, too, says little
        return Verdict.CONFLICTS
    if fates & {Fate.UPSTREAM, Fate.PARTLY}:
        return Verdict.PARTLY_UPSTREAM
    if conflicts:
        return Verdict.CONFLICTS
    return Verdict.MOVED if fates & {Fate.MOVED, Fate.MERGED} else Verdict.APPLIES


def _evidence(hunks: Sequence[HunkFate], labels: Labels) -> tuple[str, ...]:
    whole = sum(hunk.fate is Fate.UPSTREAM for hunk in hunks)
    partly = sum(hunk.fate is Fate.PARTLY for hunk in hunks)
    if not whole + partly:
        return ()
    parts = f", {partly} more in part" if partly else ""
    return (f"reverse application: {whole} of {len(hunks)} hunks stand in {labels.ours}{parts}",)


def _leaning(one: Rebased, earlier: Sequence[Rebased]) -> Rebased:
    """The verdict with the patches before it, in the same files, that are there in part only."""
    files = {diff.path for diff in one.patch.files}
    partly = [each for each in earlier if files & {conflict.path for conflict in each.judged.conflicts}]
    said = tuple(f"judged on top of {each.patch.name}, which is there without what is in conflict" for each in partly)
    return one._replace(judged=one.judged._replace(evidence=(*one.judged.evidence, *said))) if said else one


def _with_behaviour(one: Rebased, behaves: Behaves | None) -> Rebased:
    """The verdict with what the patch's tests do on stock: only they can say that it is not needed."""
    found = behaves(one.patch) if behaves else None
    if found is None:
        return one
    judged = one.judged._replace(
        behaviour=found, evidence=(*one.judged.evidence, f"behaviour: its tests on stock: {found.value}")
    )
    if found is Behaviour.PASSES and judged.verdict is not Verdict.UPSTREAM:
        judged = judged._replace(verdict=Verdict.NOT_NEEDED, conflicts=())
        return one._replace(judged=judged, changes={}, marked={})  # the patches after it are judged without it
    return one._replace(judged=judged)
