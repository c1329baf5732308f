"""Git repositories elsewhere: what a tag means there, and that one tag brought here."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from git import GitCommandError, RemoteProgress, Repo
from git.exc import UnsafeProtocolError

from patchline import git
from patchline.errors import CommandFailed, Unreachable, UsageError
from patchline.progress import EVERY, say
from patchline.urls import shown


def commit_of_tag(url: str, tag: str) -> str:
    """The full id of the commit that `tag` means at `url` now.

    Raises:
        UsageError: the repository has no such tag.
        Unreachable: the repository did not answer.
    """
    ref = f"refs/tags/{tag}"
    with TemporaryDirectory() as empty:  # no repository's configuration may rewrite the url
        try:
            listing = git.git(Path(empty), "ls-remote", "--", url, ref, f"{ref}^{{}}").decode()
        except CommandFailed as failed:
            raise _silent(url, failed.what) from failed
    refs = {name: id for id, _, name in (line.partition("\t") for line in listing.splitlines())}
    commit = refs.get(f"{ref}^{{}}") or refs.get(ref)
    if commit is None:
        raise UsageError(f"no tag {tag} at {shown(url)}", next=f"git ls-remote --tags {shown(url)}")
    return commit


def fetch_tag(repo: Path, url: str, tag: str) -> str:
    """Brings `tag` of `url` into `repo`, without its history, and returns the id of its commit.

    Raises:
        UsageError: the url would make git run a command.
        Unreachable: the repository did not answer, or has no such tag.
    """
    ref = f"refs/tags/{tag}"
    say(f"fetching {tag} from {shown(url)}")
    with _only(git.settings_as_environment()):
        try:
            with Repo(repo) as opened:
                remote = opened.create_remote("upstream", url)
                remote.fetch(f"+{ref}:{ref}", progress=_Progress(), depth=1, no_tags=True)
        except UnsafeProtocolError as unsafe:
            raise UsageError(
                f"{shown(url)} would make git run a command", next="pin an https, ssh or git url"
            ) from unsafe
        except GitCommandError as failed:
            raise _silent(url, _reason(failed.stderr)) from failed
    return git.commit_of(repo, ref)


@contextmanager
def _only(environment: Mapping[str, str]) -> Iterator[None]:
    """Our environment for a while: GitPython hands all of it to git and can leave nothing out."""
    kept = dict(os.environ)
    os.environ.clear()
    os.environ.update(environment)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(kept)


class _Progress(RemoteProgress):
    """A line every few seconds, from what git says about its progress."""

    def __init__(self) -> None:
        super().__init__()
        self._told = time.monotonic()

    def update(self, *_: object, **__: object) -> None:
        if time.monotonic() - self._told >= EVERY:
            self._told = time.monotonic()
            say(f"fetching: {self._cur_line}")


def _reason(stderr: str) -> str:
    lines = [line.strip() for line in stderr.splitlines() if "fatal:" in line or "error:" in line]
    return lines[0].removeprefix("stderr:").strip(" '") if lines else stderr.strip()


def _silent(url: str, reason: str) -> Unreachable:
    return Unreachable(
        f"the repository did not answer: {reason}",
        where=shown(url),
        next="check the url and the network, then run again",
    )
