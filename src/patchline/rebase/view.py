"""A tree with the patches so far on top, in memory."""

from __future__ import annotations

from collections.abc import Iterable

from patchline.series.plan import Changes
from patchline.series.trees import Entry, Tree


class View:
    """Reads as a `Tree`; `put` changes it, and nothing else does."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.changed: Changes = {}

    def load(self, paths: Iterable[str]) -> None:
        """See `Tree`."""
        self.tree.load(path for path in paths if path not in self.changed)

    def entry(self, path: str) -> Entry | None:
        """See `Tree`."""
        return self.changed[path] if path in self.changed else self.tree.entry(path)

    def below(self, path: str) -> list[str]:
        """See `Tree`."""
        added = [name for name, entry in self.changed.items() if entry and name.startswith(f"{path}/")]
        return [*(name for name in self.tree.below(path) if name not in self.changed), *added]

    def put(self, changes: Changes) -> None:
        """Takes changes in."""
        self.changed |= changes
