"""Audit of a tree: a fork in git against its upstream and its series, or a checked-out pin against both."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from patchline.audit.difference import differing, explained
from patchline.audit.finding import Audit, Explained, Finding, ordered
from patchline.audit.fork import Commit, history
from patchline.audit.scratch import scratch, snapshot
from patchline.audit.sides import Sides, count, sides
from patchline.errors import CommandFailed, UsageError
from patchline.git import commit_of, git
from patchline.series import quilt
from patchline.series.carried import Carried
from patchline.series.patch import Patch
from patchline.series.plan import plan
from patchline.series.trees import CommitTree


def pin(carried: Carried) -> Audit:
    """The files of a checked-out pin, as they lie there, against the pin and its series.

    Raises:
        DoesNotApply: the series does not apply to the pin.
        SourceMismatch, Unreachable, UsageError: as `Carried.base` and `quilt.files`.
    """
    base, patches = carried.base(), _patches(carried.series, own=True)
    with tempfile.TemporaryDirectory(prefix="patchline-") as folder:
        there = scratch(carried.repo, Path(folder, "repo"))
        tree = snapshot(carried.repo, there)
        made = _compared(carried.name, there, base, tree, patches)
        head = commit_of(carried.repo, "HEAD")
        loose = git(there, "diff-tree", "-r", "--name-only", head, tree).splitlines()
    past = history(carried.repo, base, head, patches)
    notes = [f"{len(loose)} files are not as in HEAD: not committed"] if loose else []
    ignored = git(carried.repo, "ls-files", "--others", "--ignored", "--exclude-standard", "-z").count(b"\0")
    notes += [f"{ignored} files that git ignores were not compared"] if ignored else []
    made = made._replace(notes=(*notes, *past.notes), facts={"upstream": base, "tree": tree, "head": head})
    return _named(made, past.strange)


def fork(repo: Path, upstream: str, head: str, series: Path | None) -> Audit:
    """A fork kept as a branch: the tree of `head` against that of `upstream` and the series, if there is one.

    Raises:
        DoesNotApply: the series does not apply to upstream.
        UsageError: there is no such repository, commit or series.
    """
    base, tip = _commit(repo, upstream), _commit(repo, head)
    patches = _patches(series) if series else []
    past = history(repo, base, tip, patches)
    made = _compared(f"{head} on {upstream}", repo, base, tip, patches)
    facts = {"repository": str(repo), "upstream": base, "fork": tip, "series": str(series or "")}
    return _named(made._replace(notes=tuple(past.notes), facts=facts), past.strange)


def _patches(series: Path, *, own: bool = False) -> list[Patch]:
    return quilt.patches(quilt.files(series, own=own))


def _commit(repo: Path, name: str) -> str:
    try:
        return commit_of(repo, name)
    except (CommandFailed, NotADirectoryError, FileNotFoundError) as none:
        raise UsageError(
            f"there is no commit {name!r} in {repo}", where=str(none).splitlines()[-1], next=f"git -C {repo} log --all"
        ) from none


def _compared(subject: str, repo: Path, base: str, fork: str, patches: Sequence[Patch]) -> Audit:
    files = count(repo, [base, fork])
    if not files:
        raise UsageError("no file could be compared: both trees are empty", where=str(repo))
    upstream = CommitTree(repo, base)
    made = plan(upstream, patches) if patches else None
    findings, kept, gone, new = list[Finding](), list[Explained](), list[Sides](), list[Sides]()
    for one in sides(upstream, made, CommitTree(repo, fork)):
        found, accounted = ([], explained(one)) if one.fork == one.wanted else differing(one)
        findings += found
        kept += accounted
        if not one.patches and found:
            gone += [one] if one.fork is None else []
            new += [one] if one.upstream is None else []
    return Audit(subject, files, ordered(_renamed(findings, gone, new)), tuple(kept))


def _renamed(findings: list[Finding], gone: list[Sides], new: list[Sides]) -> list[Finding]:
    """A file that is gone and one with the very same bytes that came are one finding."""
    left = {one.upstream.id: one.path for one in gone if one.upstream}
    moved = {one.path: left[one.fork.id] for one in new if one.fork and one.fork.id in left}
    kept = [one for one in findings if one.path not in {*moved, *moved.values()}]
    return kept + [Finding("unexplained", path, f"renamed from {old}: no patch does it") for path, old in moved.items()]


def _named(made: Audit, strange: Sequence[Commit]) -> Audit:
    """The findings with the commits that touch their files."""

    def touching(path: str) -> tuple[str, ...]:
        return tuple(f"{one.id[:12]} {one.subject}" for one in strange if path in one.paths)

    return made._replace(findings=tuple(one._replace(commits=touching(one.path)) for one in made.findings))
