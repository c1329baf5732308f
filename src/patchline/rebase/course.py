"""The course of one rebase: patch after patch, until all are written or one needs hands."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from patchline.errors import Refused
from patchline.rebase import merge, resolutions, state, store
from patchline.rebase.candidate import Candidate, candidate, header, publish
from patchline.rebase.judge import Judge, Rebased
from patchline.rebase.resolutions import Offer
from patchline.rebase.state import State
from patchline.rebase.words import Judged
from patchline.series.carried import Carried
from patchline.series.plan import Changes
from patchline.series.trees import Entry


class Progress(NamedTuple):
    """What a rebase has come to."""

    old: Carried
    new: Carried
    judged: Sequence[Judged]
    """The patches that were judged in this run, in order."""
    folder: Path | None = None
    """The rebased series, where it is complete."""
    written: bool = False
    """Whether it was written just now."""
    tree: Path | None = None
    """Where a person has to resolve `patch`."""
    patch: str = ""
    files: tuple[str, ...] = ()
    """The files of `tree` that are in conflict."""
    offers: tuple[Offer, ...] = ()
    dropped: tuple[str, ...] = ()
    unexplained: tuple[str, ...] = ()
    """What the old series' `explained.toml` explains and the rebased patches no longer have, as `PATCH: NAME`."""

    @property
    def needs_hands(self) -> bool:
        """Whether a person has to do something before the series stands there."""
        return self.tree is not None or any(one.needs_hands for one in self.judged)


class Course:
    """One run of a rebase, while it holds its folder."""

    def __init__(self, old: Carried, new: Carried, judge: Judge, room: Path, folder: Path) -> None:
        self.old, self.new, self.judge, self.room, self.folder = old, new, judge, room, folder

    def go(self, found: State, rest: Sequence[Rebased]) -> Progress:
        """From the patch at hand on: `rest` begins with it. Stops at the first one in conflict."""
        stop = next((at for at, one in enumerate(rest) if one.judged.conflicts), None)
        clean = rest if stop is None else rest[:stop]
        kept = [one for one in clean if one.changes]
        left = [*found.left, *((one.patch.name, one.judged.verdict.value) for one in clean if not one.changes)]
        judged = [one.judged for one in rest]
        if stop is None:
            return self._finish(found, kept)._replace(judged=judged)
        self._check_free()

        def prepare(repo: Path) -> tuple[State, Changes]:
            head, done = self.commit(repo, found, kept)
            return _at(found, head, done, left, found.at + stop, rest[stop]), in_tree(rest[stop])

        state.write(self.room, [self.new.repo, self.old.repo], prepare)
        return self.stopped(rest[stop])._replace(judged=judged)

    def _check_free(self) -> None:
        if self.folder.is_dir() and any(self.folder.iterdir()):
            raise Refused(
                f"{self.folder} holds a series already; nothing was written",
                where=str(self.folder),
                next=f"--dry-run shows the verdicts only; or rm -r {self.folder} first",
            )

    def commit(self, repo: Path, found: State, kept: Sequence[Rebased]) -> tuple[str, list[tuple[str, str]]]:
        """Commits patches on the state's head: the new head, and all that is done, by name and commit."""
        ids = store.write(repo, found.head, [(header(one.patch, self.old), one.changes) for one in kept])
        named = [(one.patch.name, id) for one, id in zip(kept, ids, strict=True)]
        return (ids[-1] if ids else found.head), [*found.done, *named]

    def _finish(self, found: State, kept: Sequence[Rebased]) -> Progress:
        """Writes the candidate and forgets the tree that was resolved."""
        if not self.room.exists():
            return self.complete(found, kept)
        done = self._written(self._candidate(state.tree(self.room), found, kept))
        state.remove(self.room)
        return done

    def complete(self, found: State, done: Sequence[Rebased]) -> Progress:
        """Writes the candidate of a series without a conflict."""
        kept = [one for one in done if one.changes]
        with store.throwaway(self.new.repo) as repo:
            return self._written(self._candidate(repo, found, kept))

    def _written(self, made: Candidate | None) -> Progress:
        plain = Progress(self.old, self.new, ())
        if not made:
            return plain
        return plain._replace(folder=self.folder, written=publish(made), unexplained=made.explanations.gone)

    def _candidate(self, repo: Path, found: State, kept: Sequence[Rebased]) -> Candidate | None:
        """The series; None where nothing is left to carry."""
        head, done = self.commit(repo, found, kept)
        if not done:
            return None
        names = [name for name, _ in done]
        return candidate(repo, found.base, head, names, self.old, self.folder, found.resolutions)

    def stopped(self, one: Rebased) -> Progress:
        """What a person is told about the patch at hand."""
        known = resolutions.recorded(self.old.project, self.old.upstream.name)
        blocks = [block for entry in one.marked.values() for block in merge.conflicts(entry.data, one.labels)]
        files = dict.fromkeys(conflict.path for conflict in one.judged.conflicts)
        return Progress(
            self.old, self.new, (), None, False, state.tree(self.room), one.patch.name, tuple(files),
            tuple(resolutions.offers(blocks, known)),
        )  # fmt: skip


def _at(
    found: State, head: str, done: list[tuple[str, str]], left: list[tuple[str, str]], at: int, one: Rebased
) -> State:
    return replace(found, head=head, at=at, patch=one.patch.name, done=done, left=left)


def in_tree(one: Rebased) -> Changes:
    """What a person finds in the tree: what has a place, and markers where something has none."""
    marked: dict[str, Entry | None] = dict(one.marked)
    return {**one.changes, **marked}
