"""Upstream repositories with their whole history, in the cache: fetched when first needed, and never moved."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from patchline import files
from patchline.errors import CommandFailed, SourceMismatch, Unreachable
from patchline.git import commit_of, git
from patchline.pins import GitPin
from patchline.progress import say
from patchline.project import cache_dir
from patchline.urls import shown


def place(url: str) -> Path:
    """Where the history of the repository at `url` lies, or would."""
    return cache_dir() / "histories" / hashlib.sha256(url.encode()).hexdigest()[:32]


@contextmanager
def held(url: str, commit: str) -> Iterator[Path]:
    """The history of `url`, kept from other runs; made empty where it is not there, for ids as long as `commit`."""
    repo = place(url)
    with files.locked(repo.with_name(f".{repo.name}.lock"), str(repo)):
        if not repo.exists():
            files.clear_parts(repo)
            with files.folder_whole(repo) as part:
                format = "sha256" if len(commit) == 64 else "sha1"
                git(part, "init", "-q", "--bare", "--template=", f"--object-format={format}")
        yield repo


def fetch(repo: Path, url: str, name: str, ref: str) -> str:
    """Brings what `name` means at `url` to the ref `ref` of `repo`, with its history; the commit's id.

    Raises:
        Unreachable: the repository did not answer, or does not give it.
    """
    try:
        git(repo, "fetch", "-q", "--no-tags", "--", url, f"+{name}:{ref}")
    except CommandFailed as failed:
        what = name.removeprefix("refs/tags/")
        raise Unreachable(
            f"the history of {what} is not to be had: {failed.what}", where=shown(url), next="check the network"
        ) from failed
    return commit_of(repo, ref)


def bring(repo: Path, url: str, pin: GitPin) -> None:
    """Brings a pin's tag where its commit is not there yet.

    Raises:
        Unreachable: the repository did not answer.
        SourceMismatch: the tag is not the pinned commit.
    """
    ref = f"refs/tags/{pin.tag}"
    if not git(repo, "for-each-ref", ref):
        say(f"fetching the history of {pin.tag} from {shown(url)}")
        fetch(repo, url, ref, ref)
    if (found := commit_of(repo, ref)) != pin.commit:
        raise SourceMismatch(
            f"tag {pin.tag} is not the commit that was pinned\n  wanted: {pin.commit}\n  found:  {found}",
            where=shown(url),
            next=f"ask upstream why the tag moved; rm -r {repo} forgets what was fetched",
        )
