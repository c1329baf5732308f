"""What upstream's log says, for git pins: which commit changed the lines, and which one is our patch."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from patchline.errors import Unreachable
from patchline.git import git
from patchline.pins import GitPin
from patchline.rebase import histories
from patchline.rebase.judge import Rebased
from patchline.rebase.runs import substantial
from patchline.rebase.words import Conflict, Verdict

Stands = Callable[[bytes], bool]
"""Whether something stands in a file, whose bytes are given; empty for one that is not there."""


class Log:
    """The commits from one commit of a repository to another."""

    def __init__(self, repo: Path, old: str, new: str) -> None:
        self.repo, self.old, self.new = repo, old, new

    def touching(self, paths: Sequence[str]) -> list[str]:
        """The commits that change any of these files, the oldest first."""
        options = ("--reverse", "--topo-order", "--no-merges", "--format=%H", f"{self.old}..{self.new}")
        return git(self.repo, "log", *options, "--", *paths).decode().split()

    def file(self, commit: str, paths: Sequence[str]) -> bytes:
        """The first of these files that a commit has; empty where it has none."""
        found = (git(self.repo, "cat-file", "blob", f"{commit}:{path}", ok=(0, 128)) for path in paths)
        return next((data for data in found if data), b"")

    def named(self, commit: str) -> str:
        """A commit as people find it: its id and subject."""
        return os.fsdecode(git(self.repo, "show", "-s", "--format=%H %s", commit)).strip()

    def first_without(self, paths: Sequence[str], stands: Stands) -> str:
        """The commit, by bisection, after which something no longer stands in a file; empty where none is.

        `paths` are the names that the file had. A merge is looked into: it is named itself only where no
        commit that it brought did it.
        """
        found = self._first(self.old, self.new, paths, stands)
        while found and (within := self._within(found, paths, stands)):
            found = within
        return found

    def _first(self, old: str, new: str, paths: Sequence[str], stands: Stands) -> str:
        """As `first_without`, of the commits that came one after the other to `new`: merges are one step."""
        options = ("--first-parent", "--reverse", "--format=%H", f"{old}..{new}")
        commits = git(self.repo, "log", *options, "--", *paths).decode().split()
        low, high = 0, len(commits)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if stands(self.file(commits[middle], paths)) else (low, middle)
        if low == len(commits) or not stands(self.file(f"{commits[low]}^", paths)):
            return ""
        return commits[low]

    def _within(self, merge: str, paths: Sequence[str], stands: Stands) -> str:
        """The commit that did it among those that a merge brought; empty for other commits, too."""
        parents = git(self.repo, "show", "-s", "--format=%P", merge).decode().split()
        found = (self._first(parents[0], other, paths, stands) for other in parents[1:])
        return next((one for one in found if one), "")

    def same_change(self, raw: bytes, paths: Sequence[str]) -> str:
        """The commit whose change of `paths` has the patch-id of a patch; empty where none has it."""
        wanted = git(self.repo, "patch-id", "--stable", input=raw).split()
        if not wanted or not (commits := self.touching(paths)):
            return ""
        options = ("--stdin", "-p", "-r", "--no-ext-diff", "--no-textconv", "--no-color", "--no-renames")
        diffs = git(
            self.repo, "diff-tree", *options, "--", *paths, input="".join(f"{one}\n" for one in commits).encode()
        )
        ids = (line.split() for line in git(self.repo, "patch-id", "--stable", input=diffs).splitlines())
        return next((commit.decode() for id, commit in ids if id == wanted[0]), "")


def log(old: GitPin, new: GitPin) -> Log:
    """The log between two pins of one repository, which is brought into the cache, whole.

    Raises:
        Unreachable: the repository did not answer.
        SourceMismatch: a tag is not the pinned commit.
    """
    with histories.held(new.url, new.commit) as repo:
        for pin in (old, new):
            if pin.tag:  # else a ref brought it
                histories.bring(repo, new.url, pin)
    return Log(repo, old.commit, new.commit)


def explained(done: Sequence[Rebased], old: GitPin, new: GitPin) -> list[Rebased]:
    """The verdicts with what the log says: it adds evidence and changes no verdict."""
    wanted = [one for one in done if one.judged.conflicts or _partly(one)]
    if not wanted:
        return list(done)
    try:
        between = log(old, new)
    except Unreachable as silent:
        return [_noted(one, f"upstream's log: {silent.what}") if one in wanted else one for one in done]
    return [_explained(one, between) if one in wanted else one for one in done]


def _partly(one: Rebased) -> bool:
    return one.judged.verdict in (Verdict.UPSTREAM, Verdict.PARTLY_UPSTREAM)


def _noted(one: Rebased, evidence: str) -> Rebased:
    return one._replace(judged=one.judged._replace(evidence=(*one.judged.evidence, evidence)))


def _explained(one: Rebased, between: Log) -> Rebased:
    paths = list(dict.fromkeys(name for diff in one.patch.files for name in (diff.old, diff.new) if name))
    conflicts = tuple(_changed_by(conflict, one, between) for conflict in one.judged.conflicts)
    one = one._replace(judged=one.judged._replace(conflicts=conflicts))
    if same := between.same_change(one.patch.raw, paths):
        return _noted(one, f"patch-id: upstream's commit {between.named(same)} makes the same change")
    return one


def _changed_by(conflict: Conflict, one: Rebased, between: Log) -> Conflict:
    """The conflict with the commit after which the lines that the patch sought are no longer there."""
    olds = [hunk.path for hunk in one.judged.hunks if hunk.to == conflict.path]
    paths = list(dict.fromkeys([conflict.path, *olds]))
    for stands in _sought(conflict, one, between, paths):
        if found := between.first_without(paths, stands):
            return conflict._replace(commit=between.named(found))
    return conflict


def _sought(conflict: Conflict, one: Rebased, between: Log, paths: Sequence[str]) -> Iterator[Stands]:
    """What stood in the old version's file, the most telling first: each as a question to a file's bytes."""
    diffs = [diff for diff in one.patch.files if {diff.old, diff.new} & {*paths}]
    hunks = [hunk for diff in diffs for hunk in diff.hunks]
    met = [hunks[number - 1] for number in conflict.hunks if number <= len(hunks)]
    base = conflict.base.encode("utf-8", "surrogateescape")
    for lines in filter(None, [base, *(b"".join(hunk.old) for hunk in met)]):
        yield partial(_holds, lines)
    before = between.file(between.old, paths)
    # Where an earlier patch of ours changed some of the lines, the others are upstream's.
    own = [line for line in base.splitlines(keepends=True) if substantial([line]) and line in before]
    if own:
        yield lambda data: all(line in data for line in own)
    if not (met and before):  # a binary file, a mode, a file that both made
        yield lambda data: data == before


def _holds(lines: bytes, data: bytes) -> bool:
    return lines in data
