"""The one writer of the pins file: resolves, downloads, hashes, writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from patchline import files, index, remote
from patchline.download import Wanted, mismatch, save
from patchline.errors import SourceMismatch, UsageError
from patchline.index import Offer
from patchline.nearest import hint
from patchline.pins import checks
from patchline.pins.model import ArchiveKind, ArchivePin, GitPin, Pin, PinFile, Upstream, name_of
from patchline.pins.select import owner, split
from patchline.pins.store import load, write
from patchline.progress import say
from patchline.project import Project
from patchline.urls import shown


def pin_archive(
    project: Project,
    requirement: str,
    kind: ArchiveKind | None = None,
    *,
    upstream: str | None = None,
    carry: bool = False,
    init: bool = False,
) -> ArchivePin:
    """Pins `NAME==VERSION` as the index has it, and returns the pin that was written.

    Without `kind` it is the sdist, or the wheels of a release that has no sdist. Without
    `upstream` it is the one that has pins of NAME, else a new one called NAME. `carry` makes
    the version the carried one; `init` allows that there is no pins file yet.

    Raises:
        UsageError: no such release, or the requirement is not one exact version.
        SourceMismatch: the index has other bytes than an existing pin, or than it says itself.
        Unreachable: an index did not answer.
    """
    name, version = split(requirement)
    if version is None:
        raise UsageError(f"'{requirement}' names no version", next=f"nox -s pin -- {name}==VERSION")
    _refuse(checks.of_version(version), requirement)
    with _writing(project):
        upstreams = _existing(project.upstreams, init)
        known = owner(upstreams, name)
        target = upstream or (known.name if known else name)
        pin = _archive(name, version, kind, upstreams.get(target))
        write(project.upstreams, _with(upstreams, target, pin, carry))
    return pin


def pin_git(
    project: Project,
    upstream: str,
    version: str,
    url: str,
    tag: str,
    *,
    carry: bool = False,
    init: bool = False,
) -> GitPin:
    """Pins the commit that `tag` means at `url` now, and returns the pin that was written.

    Raises:
        UsageError: the url, the tag or the version is not allowed, or there is no such tag.
        SourceMismatch: the tag means another commit than the existing pin says.
        Unreachable: the repository did not answer.
    """
    problems = (*checks.of_version(version), *checks.of_git_url(url), *checks.of_tag(tag))
    _refuse(problems, f"{upstream} {version}")
    with _writing(project):
        upstreams = _existing(project.upstreams, init)
        commit = remote.commit_of_tag(url, tag)
        pin = GitPin(kind="git", version=version, url=url, tag=tag, commit=commit)
        write(project.upstreams, _with(upstreams, upstream, pin, carry))
    return pin


def _writing(project: Project) -> AbstractContextManager[None]:
    return files.locked(project.root / "work" / ".upstreams.lock", "the pins")


def _existing(path: Path, init: bool) -> dict[str, Upstream]:
    return {} if init and not path.exists() else load(path)


def _refuse(problems: Iterable[str], where: str) -> None:
    if found := list(problems):
        raise UsageError("; ".join(found), where=where, next="nox -s pin -- NAME==VERSION")


def _archive(name: str, version: str, kind: ArchiveKind | None, upstream: Upstream | None) -> ArchivePin:
    found = _release(name, version, kind)
    pinned = {
        file.name: file
        for pin in (upstream.pins if upstream else ())
        if isinstance(pin, ArchivePin)
        for file in pin.files
    }
    return ArchivePin(
        kind="wheel" if found[0].name.endswith(".whl") else "sdist",
        distribution=name,
        version=version,
        files=tuple(_file(offer, pinned.get(offer.name)) for offer in found),
    )


def _release(name: str, version: str, kind: ArchiveKind | None) -> list[Offer]:
    offers = index.offers(name)
    ours = [offer for offer in offers if offer.version == version]
    sdists = [offer for offer in ours if offer.name.endswith(".tar.gz")]
    wheels = [offer for offer in ours if offer.name.endswith(".whl")]
    chosen = {"sdist": sdists, "wheel": wheels, None: sdists or wheels}[kind]
    if not chosen:
        versions = {offer.version for offer in offers}
        raise UsageError(
            f"no index offers {'a file' if kind is None else f'a {kind}'} of {name} {version}; "
            + (hint(version, versions) if versions else "it knows nothing of that name"),
            next=index.CHECK,
        )
    if yanked := [offer.name for offer in chosen if offer.yanked]:
        say(f"yanked by its makers: {', '.join(yanked)}")
    return _agreed(chosen)


def _agreed(offers: list[Offer]) -> list[Offer]:
    """One offer for each file name; two indexes may offer one file, not two files of one name."""
    by_name: dict[str, Offer] = {}
    for offer in offers:
        first = by_name.setdefault(offer.name, offer)
        if first.sha256 is None:
            by_name[offer.name] = offer
        elif offer.sha256 not in (None, first.sha256):
            raise SourceMismatch(
                f"two indexes offer different files called {offer.name}: sha256 {first.sha256} and {offer.sha256}",
                where=f"{shown(first.url)} and {shown(offer.url)}",
                next=f"pin with one of the two switched off; {index.CHECK}",
            )
    return [by_name[name] for name in sorted(by_name)]


def _file(offer: Offer, pinned: PinFile | None) -> PinFile:
    if pinned and offer.sha256 and offer.sha256 != pinned.sha256:
        wanted = Wanted(pinned.name, pinned.sha256)
        raise mismatch(wanted, offer.sha256, pinned.size, where=shown(offer.url), next=_UNPIN)
    if offer.sha256 is None:
        say(f"{offer.name}: this index states no hash; the hash of what comes is pinned")
    if pinned:
        saved = save(offer.url, Wanted(pinned.name, pinned.sha256, pinned.size))
    else:
        saved = save(offer.url, Wanted(offer.name, offer.sha256))
    return PinFile(name=offer.name, sha256=saved.sha256, size=saved.size)


_UNPIN = "find out who changed it; a released file never changes, so the pin stays as it is"


def _with(upstreams: Mapping[str, Upstream], name: str, pin: Pin, carry: bool) -> dict[str, Upstream]:
    old = upstreams.get(name) or Upstream(name=name, carried=pin.version, pins=())
    new_name = name_of(old, pin)
    same = [at for at, was in enumerate(old.pins) if (name_of(old, was), was.version) == (new_name, pin.version)]
    pins = list(old.pins)
    if same:
        _refuse_other(old.pins[same[0]], pin, new_name)
        pins[same[0]] = pin
    else:
        pins.append(pin)
    carried = pin.version if carry else old.carried
    return {**upstreams, name: Upstream(name=name, carried=carried, pins=tuple(pins))}


def _refuse_other(old: Pin, new: Pin, name: str) -> None:
    """A pin may be made again and may gain files; what it says already never changes."""
    if isinstance(old, GitPin) and isinstance(new, GitPin):
        if (old.url, old.tag, old.commit) != (new.url, new.tag, new.commit):
            raise SourceMismatch(
                f"{name} {old.version} is pinned already, to something else"
                f"\n  pinned: {old.url} {old.tag} {old.commit}"
                f"\n  now:    {new.url} {new.tag} {new.commit}",
                next=_UNPIN,
            )
    elif isinstance(old, ArchivePin) and isinstance(new, ArchivePin) and old.kind == new.kind:
        if lost := {file.name for file in old.files} - {file.name for file in new.files}:
            raise SourceMismatch(f"the index no longer offers {', '.join(sorted(lost))}", next=_UNPIN)
    else:
        raise UsageError(
            f"{name} {old.version} is pinned already, as {old.kind}, not {new.kind}",
            next=f"pin it as {old.kind}",
        )
