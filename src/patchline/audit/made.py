"""What a series of the project makes of its pin, now or at any commit of it; the checked-out pin stays as it is."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from patchline.audit.scratch import scratch
from patchline.audit.wanted import Patched, PinTree
from patchline.errors import CommandFailed, PatchlineError
from patchline.git import git, start, top
from patchline.overlay import Overlay, between
from patchline.pins import load, name_of
from patchline.pins.select import normal
from patchline.progress import say
from patchline.project import Project
from patchline.series import commits, quilt
from patchline.series.carried import Carried
from patchline.series.plan import plan
from patchline.series.trees import CommitTree
from patchline.series.worktree import WorkTree


class Made(NamedTuple):
    """One series, applied in memory."""

    overlay: Overlay
    patches: tuple[tuple[str, str], ...]
    """Name and commit of each."""
    owners: dict[str, tuple[str, ...]]
    """The patches that change each file."""
    commit: str
    """The project's commit that has this series; empty for the files as they lie there."""

    @property
    def patched(self) -> Patched:
        """For a comparison."""
        return Patched(self.overlay, self.owners)

    @property
    def tops(self) -> list[str]:
        """The packages that it changes."""
        return sorted({change.path.split("/", 1)[0] for change in self.overlay.changes})


def made(carried: Carried, series: Path | None = None, commit: str = "") -> Made:
    """Applies the series of a pin, or the one in another file, in a scratch repository.

    Raises:
        DoesNotApply, Refused, SourceMismatch, Unreachable, UsageError: as `overlay.overlay`.
    """
    base = carried.base()
    patches = quilt.patches(quilt.files(series or carried.series, own=True))
    ready = plan(CommitTree(carried.repo, base), patches)
    with tempfile.TemporaryDirectory(prefix="patchline-") as folder:
        there = Carried(Project(Path(folder)), carried.upstream, carried.pin)
        scratch(carried.repo, there.repo, base)
        tree = _alone(there.repo)
        ids = commits.write(tree, base, [(step.patch.header, step.changes) for step in ready.steps])
        overlay = between(there, base, ids[-1])
    owners: dict[str, tuple[str, ...]] = {}
    for step in ready.steps:
        owners |= {path: (*owners.get(path, ()), step.patch.name) for path in step.changes}
    return Made(overlay, tuple((patch.name, id) for patch, id in zip(patches, ids, strict=True)), owners, commit)


def _alone(repo: Path) -> WorkTree:
    """A scratch repository for commits to be written into; nobody else knows it, so nobody has to be kept out."""
    checking = start(repo, "diff-index", "--cached", "--name-only", "-z", "HEAD")
    checking.end()
    tree = WorkTree(top(repo), checking)
    tree.own.mkdir()
    return tree


def with_digest(carried: Carried, digest: str, now: Made) -> Made | None:
    """The series whose overlay has that digest: as it is now, or as any commit of the project had it."""
    if now.overlay.digest == digest:
        return now
    return next((one for one in _past(carried) if one.overlay.digest == digest), None)


def _past(carried: Carried) -> Iterator[Made]:
    """The series of the pin in every state that the project's history knows, the newest first."""
    root, seen = carried.project.root, set[str]()
    inner = carried.folder.relative_to(root).as_posix()
    try:
        ids = git(root, "log", "--all", "--format=%H", "--", inner).decode().split()
    except CommandFailed as none:
        say(f"the project's history cannot be read, only its files: {none.what}")
        return
    for id in ids:
        names = git(root, "ls-tree", "-z", id, "--", f"{inner}/")
        if names and names.decode(errors="replace") not in seen:
            seen.add(names.decode(errors="replace"))
            yield from _at(carried, id, names)


def _at(carried: Carried, id: str, listed: bytes) -> Iterator[Made]:
    with tempfile.TemporaryDirectory(prefix="patchline-") as folder:
        for row in listed.split(b"\0")[:-1]:
            head, _, name = row.partition(b"\t")
            _, kind, blob = head.split()
            if kind == b"blob":
                data = git(carried.project.root, "cat-file", "blob", blob.decode())
                Path(folder, os.fsdecode(name).rpartition("/")[2]).write_bytes(data)
        try:
            yield made(carried, Path(folder, "series"), id)
        except PatchlineError as bad:  # a state of long ago need not apply; it is none that an image was cut from
            say(f"the series of {carried.name} at {id[:12]} makes no overlay: {bad.what.splitlines()[0]}")


def pin_tree(project: Project, carried: Sequence[Carried], tops: Collection[str]) -> PinTree:
    """What is known of the source of the packages `tops`, from the pins of these series."""
    pinned = {normal(name_of(one, pin)) for one in load(project.upstreams).values() for pin in one.pins}
    files: dict[str, bytes] = {}
    for one in carried:
        tree = CommitTree(one.repo, one.base())
        paths = [path for top in tops for path in tree.below(top)]
        tree.load(paths)
        entries = ((path, tree.entry(path)) for path in paths)
        files |= {path: entry.data for path, entry in entries if entry and entry.mode in (0o100644, 0o100755)}
    return PinTree(files, frozenset(pinned))
