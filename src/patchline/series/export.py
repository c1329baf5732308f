"""Writes the commits of a checked-out pin back as its series; the inverse of apply."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence, Set
from pathlib import Path
from typing import NamedTuple

from patchline.errors import DoesNotApply, Refused, UsageError
from patchline.files import clear_parts, folder_replaced
from patchline.series import applied, history, quilt
from patchline.series.carried import Carried
from patchline.series.history import Commit
from patchline.series.moves import held
from patchline.series.patch import Patch, changes_digest
from patchline.series.placement import Rule
from patchline.series.plan import plan
from patchline.series.trees import CommitTree
from patchline.series.worktree import WorkTree


class Exported(NamedTuple):
    """What an export did, by patch name."""

    folder: Path
    kept: list[str]
    written: list[str]
    removed: list[str]
    reordered: bool = False
    """Whether only the order of kept patches is another one."""
    taken: tuple[str, ...] = ()
    """Files of the work tree whose changes went into a patch."""
    renamed: tuple[tuple[str, str], ...] = ()
    """Of the removed ones those that came back with the same changes under another name: both names."""

    @property
    def differs(self) -> bool:
        """Whether the folder did not say what the commits say."""
        return bool(self.written or self.removed or self.reordered)


def export(carried: Carried, *, check: bool = False, force: bool = False) -> Exported:
    """Makes the folder of patches say what the commits say.

    A patch file that still says exactly what its commit says keeps its bytes. `check` writes
    nothing. `force` writes over patch files that changed since they were applied.

    Raises:
        Refused: the work tree has changes, its commits are not one line on the base, or patch
            files changed since they were applied.
    """
    base = carried.base()
    with held(carried.repo) as tree:
        tree.check_clean()
        ready = prepare(carried, tree.repo, base, tree.head, applied.load(tree.applied))
        if ready.done.differs and not force:  # a killed run may have written them and not noted it
            check_unchanged(carried, tree)
        if not check:
            publish(carried, tree, ready)
        return ready.done


def check_unchanged(carried: Carried, tree: WorkTree) -> None:
    """Refuses to write over patch files that are not those that the commits were made from.

    Raises:
        Refused: the series is another than when it was last applied or exported.
    """
    record = applied.load(tree.applied)
    if not carried.series.exists() or (record and record.series in ("", quilt.files(carried.series).digest)):
        return
    name = carried.upstream.name
    raise Refused(
        f"the patches of {carried.name} changed since they were applied; nothing was written",
        where=str(carried.folder),
        next=f"python -m patchline apply {name} to take them; or export {name} --force to write over them",
    )


class Ready(NamedTuple):
    """A folder of patches as it is to be: nothing is written yet."""

    base: str
    ids: list[str]
    old: list[str]
    new: dict[str, bytes]
    series: bytes
    done: Exported


def prepare(
    carried: Carried,
    repo: Path,
    base: str,
    head: str,
    record: applied.Applied | None,
    *,
    names: Sequence[str] = (),
    canonical: bool = False,
) -> Ready:
    """What the commits from `base` to `head` are as patch files, called `names` where those are given.

    Raises:
        Refused: there is none, or one cannot be said as a patch.
    """
    found = history.commits(repo, base, head)
    if not found:
        raise Refused(
            f"no commit stands on the base of {carried.name}: there is nothing to export",
            where=str(repo),
            next=f"python -m patchline apply {carried.upstream.name}",
        )
    old = present(carried)
    made: dict[str, Patch] = {}
    new: dict[str, bytes] = {}
    for commit, name in zip(found, names or names_of(found, old, record), strict=True):
        made[name] = history.patch(repo, commit, name)
        same = name in old and not canonical and says_the_same(repo, commit, old[name], made[name])
        new[name] = old[name].raw if same else made[name].raw
    kept = [name for name, raw in new.items() if name in old and old[name].raw == raw]
    written, removed = [name for name in new if name not in kept], [name for name in old if name not in new]
    reordered = [name for name in old if name in new] != [name for name in new if name in old]
    text = _series_bytes(carried, list(new), {name for name in written if name in old and old[name].strip != 1})
    renamed = _renamed({name: old[name] for name in removed}, {name: made[name] for name in written})
    done = Exported(carried.folder, kept, written, removed, reordered, renamed=renamed)
    return Ready(base, [commit.id for commit in found], list(old), new, text, done)


def _renamed(removed: dict[str, Patch], written: dict[str, Patch]) -> tuple[tuple[str, str], ...]:
    if not removed:
        return ()
    names = {changes_digest(patch): name for name, patch in reversed(written.items())}
    pairs = ((old, names.get(changes_digest(patch), "")) for old, patch in removed.items())
    return tuple((old, new) for old, new in pairs if new)


def publish(carried: Carried, tree: WorkTree, ready: Ready) -> None:
    """Puts the folder in place, whole, and remembers that it is what HEAD says."""
    if ready.done.differs:
        folder = carried.folder.resolve()
        clear_parts(folder)
        with folder_replaced(folder) as part:
            if folder.exists():
                shutil.copytree(folder, part, symlinks=True, dirs_exist_ok=True)
            for name in ready.old:
                (part / name).unlink()
            for name, raw in ready.new.items():
                (part / name).parent.mkdir(parents=True, exist_ok=True)
                (part / name).write_bytes(raw)
            (part / "series").write_bytes(ready.series)
    digest = quilt.files(carried.series, own=True).digest
    tree.write_record(applied.record(ready.base, digest, Rule.UNIQUE.value, list(ready.new), ready.ids).dumps())


def present(carried: Carried) -> dict[str, Patch]:
    """The patches of the series as they lie in the folder, by name."""
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


def names_of(commits: Sequence[Commit], old: dict[str, Patch], record: applied.Applied | None) -> list[str]:
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


def _series_bytes(carried: Carried, names: Sequence[str], restripped: set[str]) -> bytes:
    old = carried.series.read_bytes() if carried.series.exists() else b""
    return series_text(old.decode("utf-8", "surrogateescape"), names, restripped).encode("utf-8", "surrogateescape")


def series_text(old: str, names: Sequence[str], restripped: Set[str] = frozenset()) -> str:
    """The series file with `names`, in order; comments stay above the patch that they stood above.

    A patch that was stripped in another way and is `restripped` now has a/ and b/: its option goes.
    """
    blocks: dict[str, list[str]] = {}
    pending: list[str] = []
    for line in old.removesuffix("\n").split("\n") if old else ():
        pending.append(line)
        if words := quilt.words(line):
            if words[0] in restripped and len(words) > 1:
                comment = re.search(r"\s+#.*", line)
                pending[-1] = words[0] + (comment[0] if comment else "")
            blocks[words[0]], pending = pending, []
    lines = [line for name in names for line in blocks.get(name, [name])]
    return "\n".join([*lines, *pending]) + "\n"
