"""What a person changed in the tree of a rebase that waits."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from patchline.git import git
from patchline.series.plan import Changes
from patchline.series.trees import CommitTree


def edited(tree: Path, head: str) -> Changes:
    """What the files of a tree are, where they are not what `head` says; new files included."""
    index = tree / ".git" / "patchline-index"
    # With its time: by it git knows for which files an equal size and second say nothing.
    shutil.copy2(tree / ".git" / "index", index)
    env = {"GIT_INDEX_FILE": str(index)}
    try:
        git(tree, "add", "-A", env=env)
        made = git(tree, "write-tree", env=env).decode().strip()
    finally:
        index.unlink()
    names = git(tree, "diff-tree", "-r", "-z", "--no-renames", "--name-only", head, made)
    paths = [os.fsdecode(name) for name in names.split(b"\0")[:-1]]
    found = CommitTree(tree, made)
    found.load(paths)
    return {path: found.entry(path) for path in paths}
