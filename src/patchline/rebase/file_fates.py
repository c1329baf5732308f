"""What becomes of a patch's diff of one file on the new version, whatever kind of change it is."""

from __future__ import annotations

from collections.abc import Callable

from patchline.errors import DoesNotApply
from patchline.rebase.content import settle
from patchline.rebase.file_conflict import Three, conflict
from patchline.rebase.file_fate import REGULAR, FileFate, alike, elsewhere
from patchline.rebase.merge import Labels
from patchline.rebase.moved_hunks import MovedHunks
from patchline.rebase.view import View
from patchline.rebase.whither import Whither
from patchline.rebase.words import Fate, HunkFate, Where
from patchline.series.diff import FileDiff
from patchline.series.patch import Patch
from patchline.series.plan import Changes, plan
from patchline.series.trees import Entry


class Files:
    """Judges one patch's files against the new version as it is so far."""

    def __init__(self, patch: Patch, view: View, whither: Whither, labels: Labels) -> None:
        self.patch, self.view, self.whither, self.labels = patch, view, whither, labels
        self.moved = MovedHunks(view, whither, labels)

    def fate(self, diff: FileDiff, before: Entry | None, after: Entry | None) -> FileFate:
        """What becomes of `diff`, which makes `after` of `before` on its own pin."""
        by_action: dict[str, Callable[[FileDiff, Entry | None, Entry | None], FileFate]] = {
            "create": self._create, "delete": self._delete, "rename": self._move, "copy": self._move
        }  # fmt: skip
        return by_action.get(diff.action, self._modify)(diff, before, after)

    def _strictly(self, diff: FileDiff) -> Changes | str:
        """What the series engine makes of this file alone, or why it refuses."""
        try:
            return plan(self.view, [self.patch._replace(files=(diff,))]).steps[0].changes
        except DoesNotApply as refused:
            return refused.what.partition("\n")[2].strip() or refused.what

    def _create(self, diff: FileDiff, _: Entry | None, after: Entry | None) -> FileFate:
        assert after is not None
        path = diff.path
        present = self.view.entry(path)
        if present is None:
            made = self._strictly(diff)
            if not isinstance(made, str):
                return FileFate(made, alike(diff, Fate.APPLIES))
            return self._conflict(diff, path, Three(None, None, after), made)
        if present.data == after.data:
            return FileFate({}, alike(diff, Fate.UPSTREAM))
        settled = settle(path, b"", after.data, present.data, diff.hunks, self.labels)
        if not settled.conflicts:
            return FileFate({}, settled.hunks)
        return self._conflict(diff, path, Three(None, present, after), "upstream made a file of this name")

    def _delete(self, diff: FileDiff, before: Entry | None, _: Entry | None) -> FileFate:
        assert before is not None
        path = diff.path
        present = self.view.entry(path)
        if present is None and not (to := self.whither.renamed(path)):
            return FileFate({}, alike(diff, Fate.UPSTREAM))
        if present is None:
            where = (Where(to, 1, "renamed"),)
            return self._conflict(diff, path, Three(before, None, None), "upstream renamed the file", where)
        made = self._strictly(diff)
        if not isinstance(made, str):
            return FileFate(made, alike(diff, Fate.APPLIES))
        return self._conflict(
            diff, path, Three(before, present, None), "upstream changed the file that the patch removes"
        )

    def _move(self, diff: FileDiff, before: Entry | None, after: Entry | None) -> FileFate:
        assert before is not None
        assert after is not None
        assert diff.old is not None
        assert diff.new is not None
        made = self._strictly(diff)
        if not isinstance(made, str):
            return FileFate(made, alike(diff, Fate.APPLIES))
        source, target = self.view.entry(diff.old), self.view.entry(diff.new)
        if source is None and target is not None and diff.action == "rename":
            moved = HunkFate(diff.old, 0, Fate.UPSTREAM, to=diff.new)
            found = self._content(diff, diff.new, before, after, target)
            return found._replace(hunks=(moved, *found.hunks))
        if source is not None and target is None:
            found = self._content(diff, diff.new, before, after, source)
            changes: Changes = {diff.new: found.changes.get(diff.new) or source}
            if diff.action == "rename":
                changes[diff.old] = None
            moved = HunkFate(diff.old, 0, Fate.APPLIES, to=diff.new)
            return found._replace(changes=changes, hunks=(moved, *found.hunks))
        to = self.whither.renamed(diff.old) if source is None else ""
        where = (Where(to, 1, "renamed"),) if to else ()
        return self._conflict(diff, diff.new, Three(before, target, after), made, where)

    def _modify(self, diff: FileDiff, before: Entry | None, after: Entry | None) -> FileFate:
        assert before is not None
        assert after is not None
        path = diff.path if self.view.entry(diff.path) or not diff.old else diff.old
        present = self.view.entry(path)
        if present is None:
            return self._gone(diff, path, before, after)
        return self._content(diff, path, before, after, present)

    def _gone(self, diff: FileDiff, path: str, before: Entry, after: Entry) -> FileFate:
        """The file is no longer there: it was renamed, or its code went elsewhere, or it was removed."""
        to = self.whither.renamed(path)
        present = self.view.entry(to) if to else None
        if present is not None:
            found = self._content(diff, to, before, after, present)
            hunks = tuple(elsewhere(one, path, to, "renamed") for one in found.hunks)
            where = Where(to, 1, "renamed")
            conflicts = tuple(
                one._replace(where=(where._replace(line=max(one.line, 1)), *one.where)) for one in found.conflicts
            )
            return found._replace(hunks=hunks, conflicts=conflicts)
        moved = self.moved.found(path, dict(enumerate(diff.hunks, 1)))
        if moved and len(moved[0]) == len(diff.hunks):
            return FileFate(moved[1], tuple(moved[0].values()))
        places = (self.whither.about(path, hunk.old) for hunk in diff.hunks)
        where_all = tuple(dict.fromkeys(place for place in places if place))
        return self._conflict(diff, path, Three(before, None, after), "upstream removed the file", where_all)

    def _content(self, diff: FileDiff, path: str, before: Entry, after: Entry, present: Entry) -> FileFate:
        """The change of a file that is there, under `path`."""
        if present.mode not in REGULAR:
            return self._conflict(diff, path, Three(before, None, after), "it is no regular file there")
        if diff.binary or not diff.hunks:
            return self._whole(diff, path, before, after, present)
        mode = diff.new_mode if diff.new_mode and present.mode == before.mode else present.mode
        settled = settle(path, before.data, after.data, present.data, diff.hunks, self.labels)
        moved: Changes = {}
        if settled.conflicts and (found := self.moved.in_conflict(path, diff.hunks, settled)):
            settled, moved = self.moved.rest(path, before, present, diff.hunks, found[0]), found[1]
        conflicts = tuple(self.moved.placed(one, diff.hunks, path, present.data) for one in settled.conflicts)
        changes = {} if (settled.data, mode) == (present.data, present.mode) else {path: Entry(mode, settled.data)}
        marked = {path: Entry(mode, settled.marked)} if conflicts else {}
        return FileFate({**changes, **moved}, settled.hunks, conflicts, marked)

    def _whole(self, diff: FileDiff, path: str, before: Entry, after: Entry, present: Entry) -> FileFate:
        """A binary file, or a mode: ours, theirs, or in conflict."""
        if (present.data, present.mode) == (after.data, after.mode):
            return FileFate({}, (HunkFate(path, 0, Fate.UPSTREAM),))
        if not diff.binary and diff.new_mode:
            fate = Fate.UPSTREAM if present.mode == after.mode else Fate.APPLIES
            changes: Changes = {} if fate is Fate.UPSTREAM else {path: Entry(after.mode, present.data)}
            return FileFate(changes, (HunkFate(path, 0, fate),))
        if present.data == before.data:
            return FileFate({path: after}, (HunkFate(path, 0, Fate.APPLIES),))
        return self._conflict(diff, path, Three(before, None, after), "upstream changed the binary file")

    def _conflict(self, diff: FileDiff, path: str, sides: Three, why: str, where: tuple[Where, ...] = ()) -> FileFate:
        return conflict(diff, path, sides, self.labels, why, where)
