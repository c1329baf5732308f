"""A repository of its own for a moment, that sees the objects of another one: nothing is written into that."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from patchline.git import git, line


def scratch(repo: Path, at: Path, head: str = "") -> Path:
    """Makes an empty repository in the new folder `at`; `head` becomes its HEAD, and no file is checked out."""
    at.mkdir(parents=True)
    form = line(repo, "rev-parse", "--show-object-format")
    git(at, "init", "-q", "--template=", f"--object-format={form}", "-b", "scratch")
    objects = (repo / line(repo, "rev-parse", "--git-path", "objects")).resolve()
    info = at / ".git" / "objects" / "info"
    info.mkdir(exist_ok=True)
    (info / "alternates").write_bytes(os.fsencode(objects) + b"\n")
    if head:
        git(at, "update-ref", "refs/heads/scratch", head)
    return at


def snapshot(repo: Path, into: Path) -> str:
    """The id of the tree that the files of the work tree `repo` make now, written into the scratch repository `into`.

    Ignored files that are not tracked are left out, as git would.
    """
    own = into / ".git"
    own.joinpath("info").mkdir(exist_ok=True)
    for name in ("index", "info/attributes"):
        path = repo / line(repo, "rev-parse", "--git-path", name)
        if path.is_file():
            shutil.copyfile(path, own / name)
    env = {"GIT_DIR": str(own), "GIT_WORK_TREE": str(repo), "GIT_INDEX_FILE": str(own / "index")}
    git(repo, "add", "--all", env=env)
    return git(repo, "write-tree", env=env).decode().strip()
