"""The overlay: what a series makes of a pin, as files inside the installed package, with one digest.

The proofs import it, an image layer holds it and an audit compares with it.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import NamedTuple

from patchline.errors import Refused, UsageError
from patchline.git import git
from patchline.pins import ArchivePin
from patchline.series.carried import Carried
from patchline.series.trees import CommitTree, Entry

_BUILT = re.compile(
    r"(csrc|rust|cmake|src)/|(CMakeLists\.txt|setup\.py|setup\.cfg|pyproject\.toml|MANIFEST\.in|rust-toolchain.*|Cargo\..*)$|"
    r"requirements/|.*\.(c|cc|cpp|cu|cuh|h|hpp|pyx|pxd|rs|cmake|proto|so|pyd)$"
)
"""What is compiled, or decides what is compiled or installed: an overlay cannot carry it."""


class Change(NamedTuple):
    """One file of the overlay. `new` is None where it is removed, `old` where it is added."""

    path: str
    """Inside the installed package: `vllm/config.py`."""
    old: Entry | None
    new: Entry | None


class Overlay(NamedTuple):
    """All files that a series, or its first patches, change in the installed package."""

    name: str
    """The pin: `vllm==0.31.0`."""
    base: str
    """Commit of the pin."""
    head: str
    """Commit of the last patch."""
    changes: tuple[Change, ...]
    outside: tuple[str, ...]
    """Changed files of the source that are not installed (docs, tests)."""

    @property
    def digest(self) -> str:
        """sha256 of what this is an overlay of, and of every changed file.

        Over records that each end with a NUL: first `of NAME==VERSION`, then, in the order of the paths'
        bytes, `OLD NEW PATH` for each file. OLD is the sha256 of the pin's bytes, or `absent`; NEW is git's
        mode in octal and the sha256 of the new bytes, with a space between, or `removed`.
        """
        total = hashlib.sha256(f"of {self.name}\0".encode())
        for change in sorted(self.changes, key=lambda change: os.fsencode(change.path)):
            total.update(_line(change))
        return f"sha256:{total.hexdigest()}"


def _line(change: Change) -> bytes:
    old = "absent" if change.old is None else hashlib.sha256(change.old.data).hexdigest()
    new = "removed" if change.new is None else f"{change.new.mode:o} {hashlib.sha256(change.new.data).hexdigest()}"
    return f"{old} {new} ".encode() + os.fsencode(change.path) + b"\0"


def overlay(carried: Carried) -> Overlay:
    """The overlay of a carried series; the series is applied where it is not.

    Raises:
        Refused: the series changes compiled code, build files, or nothing that is installed.
    """
    applied = carried.apply()
    return between(carried, applied.base, applied.patches[-1][1])


def between(carried: Carried, base: str, head: str) -> Overlay:
    """The overlay of the patches from the pin's commit `base` to `head`, both in the checked-out pin.

    Raises:
        Refused: they change compiled code, build files, or nothing that is installed.
    """
    names = git(carried.repo, "diff-tree", "-r", "-z", "--no-renames", "--name-only", base, head).split(b"\0")[:-1]
    paths = [os.fsdecode(name) for name in names]
    tops = _packages(carried, base)
    inside = [path for path in paths if path.split("/", 1)[0] in tops and "/" in path]
    _refuse_built(carried, [path for path in paths if _BUILT.match(path)])
    if not inside:
        raise Refused(
            f"the series of {carried.name} changes no file of an installed package", where=str(carried.series)
        )
    before, after = (CommitTree(carried.repo, commit) for commit in (base, head))
    for tree in (before, after):
        tree.load(inside)
    changes = tuple(Change(path, before.entry(path), after.entry(path)) for path in inside)
    return Overlay(carried.name, base, head, changes, tuple(sorted(set(paths) - set(inside))))


def _refuse_built(carried: Carried, built: list[str]) -> None:
    if built:
        listed = "\n".join(f"  {path}" for path in built)
        raise Refused(
            f"{carried.name} has no overlay: its series changes what is compiled, or what decides it\n{listed}",
            where=str(carried.series),
            next="build this line from source, with a Dockerfile of its own",
        )


def _packages(carried: Carried, base: str) -> set[str]:
    """The folders of a source that are installed as they are."""
    names = [os.fsdecode(name) for name in git(carried.repo, "ls-tree", "-z", "--name-only", base).split(b"\0")[:-1]]
    if isinstance(carried.pin, ArchivePin) and carried.pin.kind == "wheel":
        return {name for name in names if not name.endswith((".dist-info", ".data"))}
    for name in names:
        if name.endswith(".egg-info"):
            return set(git(carried.repo, "cat-file", "blob", f"{base}:{name}/top_level.txt").decode().split())
    if carried.upstream.name in names:  # a git pin has no metadata; its package bears its name
        return {carried.upstream.name}
    raise UsageError(f"nothing in {carried.repo} says which packages {carried.name} installs")


def write(made: Overlay, folder: Path) -> None:
    """Writes the overlay's files below `folder`, which holds a copy of the installed package.

    A file is replaced, never written through: it may be a hard link to the installed one.
    """
    for change in made.changes:
        path = folder / change.path
        path.unlink(missing_ok=True)
        if change.new is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(change.new.data)
            path.chmod(0o755 if change.new.mode & 0o100 else 0o644)
