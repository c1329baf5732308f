"""A pin as a git repository whose base commit has the same id on every machine."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from patchline import files, git
from patchline.errors import CommandFailed, Refused, SourceMismatch, UsageError
from patchline.pins.model import ArchivePin, GitPin, Pin, PinFile, Upstream, name_of
from patchline.project import Project

BASE = "refs/patchline/base"
"""The ref that marks the upstream's own tree; the series lies between it and branch `patchline`."""

# Above all `.gitattributes` of the upstream: what is checked out and committed are its own bytes.
_ATTRIBUTES = b"* -text !eol -ident !filter !working-tree-encoding !diff !merge !whitespace !conflict-marker-size\n"
_PATIENCE = 5.0
"""Seconds for a git without a parent to end; if it does not, the next run that makes this removes the rest."""

_RECORD = "patchline-pin.json"
_WHO = "patchline <patchline@localhost>"


@dataclass(frozen=True)
class Checkout:
    """A repository of one pin; `base` is the full id of the upstream's own commit."""

    repo: Path
    base: str


def checkout(project: Project, upstream: Upstream, pin: Pin) -> Checkout:
    """The repository of `pin`, made if it is not there yet; work in an existing one is left alone.

    Raises:
        SourceMismatch: the source, or an existing checkout, is not what the pin says.
        Unreachable: the source is not in the cache and nowhere to be had.
        Refused: another run works on it, or something else lies in its place.
        UsageError: the pin has several files, so that there is no one tree.
    """
    repo = project.work_dir(name_of(upstream, pin), pin.version)
    if repo.exists():
        return _existing(repo, pin)
    with files.locked(repo.with_name(f".{repo.name}.lock"), str(repo)):
        if repo.exists():
            return _existing(repo, pin)
        files.clear_parts(repo, patience=_PATIENCE)
        with files.folder_whole(repo) as part:
            base = _make(part, upstream, pin)
    return Checkout(repo, base)


def _existing(repo: Path, pin: Pin) -> Checkout:
    again = f"rm -r {repo}, then run again (commits in it that are not exported are lost)"
    try:
        recorded = json.loads((repo / ".git" / _RECORD).read_bytes())["pin"]
    except (OSError, ValueError, KeyError, TypeError) as unmade:
        raise Refused(f"{repo} is there, but no checkout of patchline made it", next=f"move it away, or {again}") from (
            unmade
        )
    if recorded != _identity(pin):
        raise SourceMismatch(
            f"{repo.name} was checked out from another source than is pinned now"
            f"\n  pinned:      {_identity(pin)}\n  checked out: {recorded}",
            where=str(repo),
            next=again,
        )
    try:
        return Checkout(repo, git.commit_of(repo, BASE))
    except CommandFailed as gone:
        raise Refused(f"the checkout has lost its ref {BASE}", where=str(repo), next=again) from gone


def _make(part: Path, upstream: Upstream, pin: Pin) -> str:
    format = "sha256" if isinstance(pin, GitPin) and len(pin.commit) == 64 else "sha1"
    git.git(part, "init", "-q", "--template=", f"--object-format={format}", "-b", "patchline")
    (part / ".git" / "info").mkdir(exist_ok=True)
    (part / ".git" / "info" / "attributes").write_bytes(_ATTRIBUTES)
    base = _fetched(part, pin) if isinstance(pin, GitPin) else _imported(part, pin)
    for ref in (BASE, "refs/heads/base", "refs/heads/patchline"):
        git.git(part, "update-ref", ref, base)
    git.git(part, "read-tree", "--reset", "-u", base)
    record = {"pin": _identity(pin), "base": base, "upstream": upstream.name, "version": pin.version}
    (part / ".git" / _RECORD).write_text(json.dumps(record, indent=1) + "\n")
    return base


def _identity(pin: Pin) -> str:
    if isinstance(pin, GitPin):
        return f"git {pin.url} {pin.tag} {pin.commit}"
    return f"{pin.kind} " + " ".join(f"{file.name} sha256:{file.sha256}" for file in pin.files)


def _fetched(part: Path, pin: GitPin) -> str:
    from patchline import remote

    found = remote.fetch_tag(part, pin.url, pin.tag)
    if found != pin.commit:
        raise SourceMismatch(
            f"tag {pin.tag} is not the commit that was pinned\n  wanted: {pin.commit}\n  found:  {found}",
            where=pin.url,
            next="ask upstream why the tag moved; nothing was kept",
        )
    return found


def _imported(part: Path, pin: ArchivePin) -> str:
    from patchline.sources import base_commit, fetch
    from patchline.sources.archive import members

    file = _only_file(pin)
    data = fetch.read(fetch.fetch(pin.distribution, file), file)
    found = members(file.name, data)
    return base_commit.commit(part, found, _message(pin, file), _WHO)


def _only_file(pin: ArchivePin) -> PinFile:
    if len(pin.files) != 1:
        raise UsageError(
            f"{pin.distribution} {pin.version} has {len(pin.files)} files, one for each platform: there is no one tree",
            where=", ".join(file.name for file in pin.files),
            next="check out the distribution that carries patches",
        )
    return pin.files[0]


def _message(pin: ArchivePin, file: PinFile) -> str:
    return f"{pin.distribution} {pin.version}\n\nFile: {file.name}\nSha256: {file.sha256}\n"
