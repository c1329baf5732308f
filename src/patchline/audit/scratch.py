"""A repository of its own for a moment, that sees the objects of another one: nothing is written into that."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from patchline.errors import CommandFailed, UsageError
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

    Raises:
        UsageError: git cannot read its index, or one of the files.
    """
    own = into / ".git"
    own.joinpath("info").mkdir(exist_ok=True)
    for name in ("index", "info/attributes"):
        path = repo / line(repo, "rev-parse", "--git-path", name)
        if path.is_file():
            shutil.copyfile(path, own / name)
    env = {"GIT_DIR": str(own), "GIT_WORK_TREE": str(repo), "GIT_INDEX_FILE": str(own / "index")}
    try:
        _unflag(repo, env)
        git(repo, "add", "--all", env=env)
    except CommandFailed as bad:
        why = bad.where.partition("stderr: ")[2] or bad.what
        what = f"git cannot take the files as they lie there: {' '.join(why.split())}"
        raise UsageError(what, where=str(repo), next=f"git -C {repo} status") from bad
    return git(repo, "write-tree", env=env).decode().strip()


def _unflag(repo: Path, env: dict[str, str]) -> None:
    """Files that the index says to take on trust (`--assume-unchanged`, `--skip-worktree`) are looked at, too."""
    rows = git(repo, "ls-files", "-v", "-z", env=env).split(b"\0")[:-1]
    for option, flag in (("--no-assume-unchanged", bytes.islower), ("--no-skip-worktree", b"Ss".__contains__)):
        names = b"".join(row[2:] + b"\0" for row in rows if flag(row[:1]))
        if names:
            git(repo, "update-index", option, "-z", "--stdin", env=env, input=names)
