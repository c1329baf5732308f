"""Writes the commits of a checked-out pin back as its series; the inverse of apply."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from patchline.errors import DoesNotApply, Refused, UsageError
from patchline.files import folder_replaced
from patchline.series import applied, history, quilt
from patchline.series.carried import Carried
from patchline.series.history import Commit
from patchline.series.patch import Patch
from patchline.series.plan import plan
from patchline.series.trees import CommitTree
from patchline.series.worktree import WorkTree, held


class Exported(NamedTuple):
    """What an export did, by patch name."""

    folder: Path
    kept: list[str]
    written: list[str]
    removed: list[str]


def export(carried: Carried, *, check: bool = False, canonical: bool = False) -> Exported:
    """Makes the folder of patches say what the commits say.

    A patch file that still says exactly what its commit says keeps its bytes, unless `canonical`
    asks for the one form that we write. `check` writes nothing.

    Raises:
        Refused: the work tree has changes, or its commits are not one line on the base.
    """
    base = carried.base()
    with held(carried.repo) as tree:
        tree.check_clean()
        return from_commits(carried, tree, base, check=check, canonical=canonical)


def from_commits(
    carried: Carried, tree: WorkTree, base: str, *, check: bool = False, canonical: bool = False
) -> Exported:
    """As `export`, for a work tree that this run holds."""
    found = history.commits(tree.repo, base)
    if not found:
        raise Refused(
            f"no commit stands on the base of {carried.name}: there is nothing to export",
            where=str(tree.repo),
            next=f"python -m patchline apply {carried.upstream.name}",
        )
    old = _present(carried)
    names = _names(found, old, applied.load(tree.applied))
    new: dict[str, bytes] = {}
    for commit, name in zip(found, names, strict=True):
        made = history.patch(tree.repo, commit, name)
        same = name in old and not canonical and says_the_same(tree.repo, commit, old[name], made)
        new[name] = old[name].raw if same else made.raw
    return _written(carried, old, new, check)


def _present(carried: Carried) -> dict[str, Patch]:
    if not carried.series.exists():
        return {}
    return {patch.name: patch for patch in quilt.patches(quilt.files(carried.series))}


def says_the_same(repo: Path, commit: Commit, old: Patch, made: Patch) -> bool:
    """Whether a patch file still gives its commit: header, files, and every hunk at its stated line."""
    header = (
        old.header
        if old.header.seconds is not None
        else old.header._replace(seconds=commit.header.seconds, zone=commit.header.zone)
    )
    if header._replace(fields=()) != commit.header:
        return False
    tree = CommitTree(repo, commit.parent)
    try:
        step = plan(tree, [old]).steps[0]
    except DoesNotApply:
        return False
    return step.changes == plan(tree, [made]).steps[0].changes and all(one.how == "stated" for one in step.placements)


def _names(commits: Sequence[Commit], old: dict[str, Patch], record: applied.Applied | None) -> list[str]:
    """File names: as applied, else of the patch with the same subject, else new ones."""
    by_commit = {commit: name for name, commit in record.patches} if record else {}
    by_subject = {patch.header.subject: name for name, patch in old.items()}
    names: list[str] = []
    for number, commit in enumerate(commits, 1):
        name = by_commit.get(commit.id) or by_subject.get(commit.header.subject)
        if name is None or name in names:
            name = file_name(number, commit.header.subject)
        if name in names:
            raise Refused(
                f"two commits have the subject {commit.header.subject!r}",
                where=commit.id,
                next="reword one of them: git rebase -i",
            )
        names.append(name)
    return names


def file_name(number: int, subject: str) -> str:
    """`0001-what-it-does.patch`, from a subject without its tags."""
    words = re.sub(r"^(\[[^\]]*\]\s*)+", "", subject) or subject
    slug = re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")[:60].rstrip("-")
    if not slug:
        raise UsageError(
            f"no file name can be made of the subject {subject!r}", next="give the commit a subject in words"
        )
    return f"{number:04d}-{slug}.patch"


def _written(carried: Carried, old: dict[str, Patch], new: dict[str, bytes], check: bool) -> Exported:
    kept = [name for name, raw in new.items() if name in old and old[name].raw == raw]
    done = Exported(
        carried.folder, kept, [name for name in new if name not in kept], [name for name in old if name not in new]
    )
    if check or (not done.written and not done.removed and list(old) == list(new)):
        return done
    text = series_text(carried.series.read_text() if carried.series.exists() else "", list(new))
    with folder_replaced(carried.folder) as folder:
        for file in sorted(carried.folder.iterdir()) if carried.folder.exists() else []:
            if file.name not in old and file.name != "series":
                (shutil.copytree if file.is_dir() else shutil.copy2)(file, folder / file.name)
        for name, raw in new.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(raw)
        (folder / "series").write_text(text)
    return done


def series_text(old: str, names: Sequence[str]) -> str:
    """The series file with `names`, in order; comments stay above the patch that they stood above."""
    blocks: dict[str, list[str]] = {}
    pending: list[str] = []
    for line in old.splitlines():
        pending.append(line)
        word = line.partition("#")[0].split()
        if word:
            blocks[word[0]], pending = pending, []
    lines = [line for name in names for line in blocks.get(name, [name])]
    return "\n".join([*lines, *pending]) + "\n"
