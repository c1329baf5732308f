"""Git refs of an upstream that no pin names: a series can be taken to what they mean now."""

from __future__ import annotations

import re
from pathlib import Path

from patchline.errors import CommandFailed, Unreachable, UsageError
from patchline.git import commit_of, git
from patchline.pins import GitPin
from patchline.pins.checks import of_tag
from patchline.progress import say
from patchline.rebase import histories
from patchline.series.carried import Carried
from patchline.urls import shown

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_AT = "refs/patchline/at"
"""Below it each commit that was asked for, under its version: a ref that moves makes another one."""
_FETCHED = "refs/patchline/fetched"
_SHOWN = 12
"""Hex digits of a commit that its version has."""


class AtRef(Carried):
    """A commit that a ref meant, in the place of a pin; its files lie in the upstream's history."""

    __slots__ = ()

    @property
    def repo(self) -> Path:
        """The upstream's history in the cache."""
        assert isinstance(self.pin, GitPin)
        return histories.place(self.pin.url)

    def base(self) -> str:
        """The commit; nothing is checked out."""
        assert isinstance(self.pin, GitPin)
        return self.pin.commit


def at(old: Carried, pin: GitPin, ref: str) -> AtRef:
    """What the tag, branch, full ref or full commit id `ref` means now in the repository of `pin`, the series' own.

    Its version is the ref's name and the commit's first digits, so that it never means another commit.

    Raises:
        UsageError: there is no such ref, or there are several.
        Unreachable: the repository did not answer.
    """
    if [*of_tag(ref)]:
        raise UsageError(f"'{ref}' is no name of a git ref", next=_list(pin))
    with histories.held(pin.url, pin.commit) as repo:
        full = ref if _COMMIT.fullmatch(ref) else _full(repo, pin, ref)
        say(f"fetching {full} from {shown(pin.url)}")
        try:
            commit = histories.fetch(repo, pin.url, full, _FETCHED)
        except CommandFailed as other:
            raise UsageError(f"{ref} is no commit", where=shown(pin.url), next=_list(pin)) from other
        version = commit[:_SHOWN] if full == ref == commit else f"{_plain(ref)}-{commit[:_SHOWN]}"
        git(repo, "update-ref", f"{_AT}/{version}", commit)
        git(repo, "update-ref", "-d", _FETCHED)
    return _made(old, pin, version, commit)


def kept(old: Carried, pin: GitPin, version: str) -> AtRef:
    """What `at` found before, by its version; nothing is fetched.

    Raises:
        UsageError: it is not in the cache.
    """
    try:
        commit = commit_of(histories.place(pin.url), f"{_AT}/{version}")
    except (CommandFailed, OSError) as gone:
        raise UsageError(
            f"{old.upstream.name} {version} is not pinned, and not in the cache either",
            where=shown(pin.url),
            next=f"python -m patchline rebase {old.upstream.name} --abort, then --onto REF",
        ) from gone
    return _made(old, pin, version, commit)


def _made(old: Carried, pin: GitPin, version: str, commit: str) -> AtRef:
    if commit == pin.commit:
        raise UsageError(
            f"{version} is the commit that {old.name} is on already", next="give another ref, or a pinned version"
        )
    here = GitPin(kind="git", version=version, url=pin.url, tag="", commit=commit)
    return AtRef(old.project, old.upstream, here)


def _full(repo: Path, pin: GitPin, ref: str) -> str:
    """The full name of a ref at the repository of `pin`."""
    wanted = [ref] if ref.startswith("refs/") or ref == "HEAD" else [f"refs/tags/{ref}", f"refs/heads/{ref}"]
    try:
        listing = git(repo, "ls-remote", "--", pin.url, *wanted).decode("utf-8", "surrogateescape")
    except CommandFailed as failed:
        raise Unreachable(
            f"the repository did not answer: {failed.what}", where=shown(pin.url), next="check the url and the network"
        ) from failed
    names = {line.partition("\t")[2] for line in listing.splitlines()}
    found = [name for name in wanted if name in names]
    if len(found) == 1:
        return found[0]
    what = f"{ref} is a tag and a branch" if found else f"no version {ref} is pinned, and there is no such ref"
    raise UsageError(what, where=shown(pin.url), next=f"say which: --onto {found[0]}" if found else _list(pin))


def _list(pin: GitPin) -> str:
    return f"git ls-remote {shown(pin.url)}"


def _plain(ref: str) -> str:
    """A ref's name as part of a folder's name."""
    return re.sub(r"[^A-Za-z0-9._+]+", "-", ref.removeprefix("refs/heads/").removeprefix("refs/tags/"))
