"""What upstream's log says, for git pins: which commit changed the lines, and which one is our patch."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from patchline import files
from patchline.errors import CommandFailed, SourceMismatch, Unreachable
from patchline.git import commit_of, git
from patchline.pins import GitPin
from patchline.progress import say
from patchline.project import cache_dir
from patchline.rebase.judge import Rebased
from patchline.rebase.words import Conflict, Verdict
from patchline.urls import shown


class Log:
    """The commits from one pinned commit to another."""

    def __init__(self, repo: Path, old: str, new: str) -> None:
        self.repo, self.range, self.new = repo, f"{old}..{new}", new

    def touching(self, paths: Sequence[str]) -> list[str]:
        """The commits that change any of these files, the oldest first."""
        out = git(self.repo, "log", "--reverse", "--topo-order", "--no-merges", "--format=%H", self.range, "--", *paths)
        return out.decode().split()

    def file(self, commit: str, path: str) -> bytes:
        """A file as a commit has it; empty where it has none."""
        return git(self.repo, "cat-file", "blob", f"{commit}:{path}", ok=(0, 128))

    def named(self, commit: str) -> str:
        """A commit as people find it: its id and subject."""
        return os.fsdecode(git(self.repo, "show", "-s", "--format=%H %s", commit)).strip()

    def first_without(self, path: str, stands: Callable[[bytes], bool]) -> str:
        """The first commit, by bisection, after which something no longer stands in a file; empty where none is."""
        commits = self.touching([path])
        low, high = 0, len(commits)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if stands(self.file(commits[middle], path)) else (low, middle)
        if low == len(commits) or not stands(self.file(f"{commits[low]}^", path)):
            return ""
        return commits[low]

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
    repo = cache_dir() / "histories" / hashlib.sha256(new.url.encode()).hexdigest()[:32]
    with files.locked(repo.with_name(f".{repo.name}.lock"), str(repo)):
        if not repo.exists():
            files.clear_parts(repo)
            with files.folder_whole(repo) as part:
                format = "sha256" if len(new.commit) == 64 else "sha1"
                git(part, "init", "-q", "--bare", "--template=", f"--object-format={format}")
        for pin in (old, new):
            _bring(repo, new.url, pin)
    return Log(repo, old.commit, new.commit)


def _bring(repo: Path, url: str, pin: GitPin) -> None:
    ref = f"refs/tags/{pin.tag}"
    try:
        if not git(repo, "for-each-ref", ref):
            say(f"fetching the history of {pin.tag} from {shown(url)}")
            git(repo, "fetch", "-q", "--no-tags", "--", url, f"+{ref}:{ref}")
    except CommandFailed as failed:
        raise Unreachable(
            f"the history of {pin.tag} is not to be had: {failed.what}", where=shown(url), next="check the network"
        ) from failed
    if (found := commit_of(repo, ref)) != pin.commit:
        raise SourceMismatch(
            f"tag {pin.tag} is not the commit that was pinned\n  wanted: {pin.commit}\n  found:  {found}",
            where=shown(url),
            next=f"ask upstream why the tag moved; rm -r {repo} forgets what was fetched",
        )


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
    hunks = [hunk for diff in one.patch.files if conflict.path in (diff.old, diff.new) for hunk in diff.hunks]
    sought = [conflict.base.encode("utf-8", "surrogateescape")] if conflict.base else []
    sought += [b"".join(hunks[number - 1].old) for number in conflict.hunks if number <= len(hunks)]
    for lines in sought:
        if found := between.first_without(conflict.path, lambda data, lines=lines: lines in data):  # type: ignore[misc]
            return conflict._replace(commit=between.named(found))
    return conflict
