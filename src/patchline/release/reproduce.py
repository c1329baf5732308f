"""Cuts a release's image again from what its record names, and compares digests.

The work tree is used where its files still are the record's inputs. Where they are not, since patches were rebased or
pins moved on, the folders `builds` and `patches` of the commit that the record names are, beside the work tree.
"""

from __future__ import annotations

import io
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from patchline import git
from patchline.errors import CommandFailed, UsageError
from patchline.lines.build import Built, building
from patchline.progress import say
from patchline.project import Project
from patchline.release import facts, inputs, records
from patchline.release.inputs import TOOL, Difference
from patchline.release.record import Record

HERE = "the work tree"
_FOLDERS = ("builds", "patches")


class Reproduced(NamedTuple):
    """What became of it."""

    record: Record
    """The nightly's, for a release: its image was cut then."""
    tree: str
    """What it was cut from: `HERE`, or `commit` and its id; empty where it was not cut."""
    here: tuple[Difference, ...]
    """Inputs of the work tree that are not the record's."""
    inputs: tuple[Difference, ...]
    """The same of what it was cut from, or was not."""
    digests: tuple[Difference, ...]
    """Manifest, configuration and layer, each as recorded and as cut; none where it was not cut."""

    @property
    def same(self) -> bool:
        """Whether the image was cut, and is the one of the record."""
        return bool(self.digests) and all(one.recorded == one.found for one in self.digests)


def reproduce(project: Project, tag: str, *, only_here: bool = False) -> Reproduced:
    """Cuts the image of that release again; with `only_here` from the work tree, or not at all.

    Nothing is cut from a tree with another input: it could not be the same image. Another version of this tool
    is tried. A pinned base is taken by its digest, whatever its tag means by now.

    Raises:
        UsageError: there is no record of the tag, or no project in the commit that it names.
        SourceMismatch: the record or a pin was edited, or the base is not what was pinned.
        DoesNotApply, Refused, Unreachable: as `building`.
    """
    found = records.of(project)
    one = records.find(found, tag)[-1]
    one = (found.get(one.nightly) if one.nightly else None) or one
    here = tuple(inputs.differences(one, inputs.stated(project, one), whole=False))
    if not _other(here):
        return _cut(project, one, HERE, here)
    if only_here or not _has(project, one.project):
        return Reproduced(one, "", here, here, ())
    say(f"the work tree has other inputs; cutting from the commit {one.project[:12]}, which the record names")
    with _at(project, one.project) as then:
        left = tuple(inputs.differences(one, inputs.stated(then, one), whole=False))
        if _other(left):
            return Reproduced(one, "", here, left, ())
        return _cut(then, one, f"commit {one.project}", here)


def _other(found: tuple[Difference, ...]) -> list[Difference]:
    return [one for one in found if one.what != TOOL]


def _cut(project: Project, one: Record, tree: str, here: tuple[Difference, ...]) -> Reproduced:
    with building(project, one.line, moved=True) as built:
        now = _record(project, one, built)
    left = tuple(inputs.differences(one, inputs.recorded(now), whole=True))
    pairs = (("manifest", "image"), ("config", "config"), ("layer", "layer"))
    digests = tuple(Difference(name, getattr(one, field), getattr(now, field)) for name, field in pairs)
    return Reproduced(one, tree, here, left, digests)


def _record(project: Project, one: Record, built: Built) -> Record:
    """The record that this image would have; what is attached to it and what proves it are no inputs."""
    return facts.record_of(facts.of(project, built, {}), one.tag, "", {}, "")


def _has(project: Project, commit: str) -> bool:
    """Whether the project's repository has the commit."""
    if not commit:
        return False
    try:
        git.git(project.root, "cat-file", "-e", f"{commit}^{{commit}}")
    except CommandFailed:
        return False
    return True


@contextmanager
def _at(project: Project, commit: str) -> Iterator[Project]:
    """The project's inputs as they were in a commit, in a folder that goes away."""
    try:
        packed = git.git(project.root, "archive", "--format=tar", commit, *_FOLDERS)
    except CommandFailed as bad:
        raise UsageError(
            f"the commit {commit[:12]} has no {' and '.join(_FOLDERS)}", where=str(project.root), next="git show --stat"
        ) from bad
    with tempfile.TemporaryDirectory(prefix="patchline-reproduce-") as folder:
        with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
            tar.extractall(folder, filter="data")
        yield Project(Path(folder))
