"""What a series makes of a tree, in memory: every refusal comes from here, before any write."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from patchline.errors import DoesNotApply
from patchline.paths import ancestors, fault
from patchline.series.diff import FileDiff
from patchline.series.patch import Patch
from patchline.series.place import place, split
from patchline.series.placement import Placement, Rule
from patchline.series.refusals import BadPatch, HunkRefusal
from patchline.series.trees import Entry, Tree

Changes = dict[str, Entry | None]
"""Path to its new file; None where the file is removed."""


_REGULAR = (0o100644, 0o100755)


class Step(NamedTuple):
    """One patch, what it changes, and where its hunks went."""

    patch: Patch
    changes: Changes
    placements: list[Placement]


class Plan(NamedTuple):
    """A whole series, ready to be written."""

    steps: list[Step]
    total: Changes
    """What all patches together change."""


def plan(tree: Tree, patches: Sequence[Patch], rule: Rule = Rule.UNIQUE) -> Plan:
    """Applies `patches` in order to `tree`, in memory.

    Raises:
        DoesNotApply: a patch has hunks without a place, or wants to write what it may not; all
            of that patch's refusals are in the message. Nothing was written.
    """
    for patch in patches:
        check_targets(patch)
    view = _View(tree)
    tree.load(name for patch in patches for diff in patch.files for name in (diff.old, diff.new) if name)
    return Plan([_step(view, patch, rule) for patch in patches], view.changed)


def check_targets(patch: Patch) -> None:
    """Refuses paths outside the tree, `.git` in any spelling, names no file system takes.

    Raises:
        DoesNotApply: with every such path of the patch.
    """
    names = {name: diff.line for diff in patch.files for name in (diff.old, diff.new) if name}
    nameless = [
        f"line {diff.line}: no name is left when -p{patch.strip} is stripped" for diff in patch.files if _nameless(diff)
    ]
    faults = [f"line {line}: {name!r}: {why}" for name, line in names.items() if (why := fault(name))]
    if faults or nameless:
        raise _refused(patch, [*faults, *nameless], "correct the patch; a patch writes only inside its tree")


def _nameless(diff: FileDiff) -> bool:
    wanted = {"create": (False, True), "delete": (True, False)}.get(diff.action, (True, True))
    if diff.action == "modify" and not diff.git:
        return not (diff.old or diff.new)
    return any(need and not name for need, name in zip(wanted, (diff.old, diff.new), strict=True))


def _step(view: _View, patch: Patch, rule: Rule) -> Step:
    placements: list[Placement] = []
    refusals: list[HunkRefusal | str] = []
    view.begin(patch)
    for diff in patch.files:
        target = _Target(view, patch, diff, rule)
        try:
            placements += target.apply()
        except _No as no:
            refusals += no.refusals
        except BadPatch as bad:
            refusals.append(f"{diff.path} (line {diff.line} of the patch): {bad.what}")
    if refusals:
        raise _refused(patch, refusals, f"rebase the patch on this source, or look at it: {patch.path}")
    return Step(patch, view.changes, placements)


def _refused(patch: Patch, refusals: Sequence[object], next: str) -> DoesNotApply:
    text = "\n".join(f"  {refusal}" for refusal in refusals)
    return DoesNotApply(f"{patch.name} does not apply; nothing was written\n{text}", where=str(patch.path), next=next)


class _No(Exception):
    def __init__(self, *refusals: HunkRefusal | str) -> None:
        self.refusals = refusals


class _View:
    """A tree with the changes so far on top.

    Of the patch at hand it knows the `changes`, what those files were `before`, and the files that
    are `going`: removed or renamed, so that their names are free for it.
    """

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.changed: Changes = {}
        self.changes: Changes = {}
        self.before: Changes = {}
        self.going: set[str] = set()
        self._folders: dict[str, int] = {}  # how many changed files lie below

    def begin(self, patch: Patch) -> None:
        self.changes, self.before = {}, {}
        self.going = {diff.old for diff in patch.files if diff.old and diff.action in ("rename", "delete")}

    def entry(self, path: str) -> Entry | None:
        return self.changed[path] if path in self.changed else self.tree.entry(path)

    def source(self, path: str) -> Entry | None:
        """The file as it was before this patch: what its renames and copies speak of."""
        return self.before[path] if path in self.before else self.entry(path)

    def taken(self, path: str) -> bool:
        """Whether something stands at `path` that this patch does not take away itself."""
        if path in self.going and path not in self.changes:
            return False
        return self.entry(path) is not None

    def put(self, path: str, entry: Entry | None) -> None:
        more = (entry is not None) - (self.changed.get(path) is not None)
        for folder in ancestors(path) if more else ():
            self._folders[folder] = self._folders.get(folder, 0) + more
        self.before.setdefault(path, self.entry(path))
        self.changed[path] = self.changes[path] = entry

    def is_folder(self, path: str) -> bool:
        if self._folders.get(path):
            return True
        return any(not self._gone(name) for name in self.tree.below(path))

    def _gone(self, path: str) -> bool:
        return path in self.going or (path in self.changed and self.changed[path] is None)


class _Target:
    """One file's diff on its way into the view."""

    def __init__(self, view: _View, patch: Patch, diff: FileDiff, rule: Rule) -> None:
        self.view, self.patch, self.diff = view, patch, diff
        self.rule, self.nearest = rule, rule is Rule.NEAREST

    def apply(self) -> list[Placement]:
        diff = self.diff
        if diff.action in ("rename", "copy"):
            return self._move()
        path = self._path()
        old = self.view.entry(path)
        if diff.action == "create" or (old is None and self._from_nothing()):
            return self._create(path, old)
        if old is None:
            raise _No(f"{path} (line {diff.line} of the patch): there is no such file{self._hint()}")
        self._check_regular(path, old)
        return self._delete(path, old) if diff.action == "delete" else self._modify(path, old)

    def _from_nothing(self) -> bool:
        hunks = self.diff.hunks
        return not self.diff.git and len(hunks) == 1 and not hunks[0].old and hunks[0].old_start == 0

    def _path(self) -> str:
        """Which of two names is meant: git's agree; else the one that exists, as GNU patch chooses."""
        names = [name for name in (self.diff.old, self.diff.new) if name]
        if len(set(names)) == 1 or self.diff.git:
            return names[-1]
        existing = [name for name in names if self.view.entry(name) is not None] or names
        return min(existing, key=lambda name: (name.count("/"), len(name.rpartition("/")[2]), len(name)))

    def _hint(self) -> str:
        whole = [os.fsdecode(name) for name in self.diff.unprefixed]
        there = [name for name in whole if not fault(name) and self.view.entry(name) is not None]
        if there and self.patch.strip:
            return f"; {there[0]} is there: a patch without a/ and b/ needs -p0 in the series file"
        return ""

    def _check_regular(self, path: str, entry: Entry) -> None:
        kinds = {0o120000: "a symbolic link", 0o160000: "not a regular file"}
        if why := kinds.get(entry.mode):
            raise _No(f"{path}: it is {why} in the tree; a patch writes regular files only")
        self._check_ancestors(path)

    def _check_ancestors(self, path: str) -> None:
        for folder in ancestors(path):
            above = (self.view.source if self.diff.action == "delete" else self.view.entry)(folder)
            if above is not None:
                kind = "a symbolic link" if above.mode == 0o120000 else "a file"
                raise _No(f"{path}: {folder} is {kind} in the tree; nothing is written through it")

    def _create(self, path: str, old: Entry | None) -> list[Placement]:
        self._check_ancestors(path)
        empty = self.nearest and old is not None and old.mode in _REGULAR and not old.data
        if self.view.taken(path) and not empty:
            raise _No(f"{path} (line {self.diff.line} of the patch): it is to be created and is there already")
        if self.view.is_folder(path):
            raise _No(f"{path}: it is to be created and is a folder")
        data, placements = self._new_data(path, b"")
        self._put(path, self.diff.new_mode or (old.mode if old and empty else 0o100644), data)
        return placements

    def _put(self, path: str, mode: int, data: bytes) -> None:
        """Puts a file, unless it is empty and the rule is that of `patch -E`: then it goes, or never comes."""
        if data or not self.nearest:
            self.view.put(path, Entry(mode, data))
        elif self.view.entry(path) is not None:
            self.view.put(path, None)

    def _delete(self, path: str, old: Entry) -> list[Placement]:
        data, placements = self._new_data(path, old.data)
        if data:
            left = len(split(data))
            raise _No(f"{path}: it is to be removed, but {left} lines of it are not in the patch")
        self.view.put(path, None)
        return placements

    def _modify(self, path: str, old: Entry) -> list[Placement]:
        diff = self.diff
        if diff.old_mode and diff.old_mode != old.mode and not self.nearest:
            raise _No(f"{path}: its mode is {old.mode:o}; the patch changes it from {diff.old_mode:o}")
        data, placements = self._new_data(path, old.data)
        self._put(path, diff.new_mode or old.mode, data)
        return placements

    def _move(self) -> list[Placement]:
        diff = self.diff
        assert diff.old is not None
        assert diff.new is not None
        old = self.view.source(diff.old)
        if old is None:
            raise _No(f"{diff.old} (line {diff.line} of the patch): there is no such file to {diff.action}")
        self._check_regular(diff.old, old)
        if diff.old_mode and diff.old_mode != old.mode and not self.nearest:
            raise _No(f"{diff.old}: its mode is {old.mode:o}; the patch changes it from {diff.old_mode:o}")
        if self.nearest and not old.data and not diff.hunks:
            raise _No(f"{diff.old}: it is empty, and GNU patch, which is followed here, makes no empty file")
        if diff.action == "rename" and not self.view.changes.get(diff.old):
            self.view.put(diff.old, None)
        self._check_ancestors(diff.new)
        if self.view.taken(diff.new) or self.view.is_folder(diff.new):
            raise _No(f"{diff.new}: {diff.old} is to become it, and it is there already")
        data, placements = self._new_data(diff.new, old.data)
        self._put(diff.new, diff.new_mode or old.mode, data)
        return placements

    def _new_data(self, path: str, old: bytes) -> tuple[bytes, list[Placement]]:
        if self.diff.binary:
            return self.diff.binary.result(old), []
        if not self.diff.hunks:
            return old, []
        lines, placements, refusals = place(path, split(old), self.diff.hunks, self.rule)
        if refusals:
            raise _No(*refusals)
        return b"".join(lines), placements
