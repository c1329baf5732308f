"""Real git repositories and patches for tests, made in temporary folders."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

QUIET = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "Ann Author",
    "GIT_AUTHOR_EMAIL": "ann@example.org",
    "GIT_AUTHOR_DATE": "2026-03-04T05:06:07+0200",
    "GIT_COMMITTER_NAME": "Carl Committer",
    "GIT_COMMITTER_EMAIL": "carl@example.org",
    "GIT_COMMITTER_DATE": "2026-03-05T05:06:07+0000",
}


def git(repo: Path, *arguments: str, input: bytes | None = None, ok: bool = True) -> str:
    """Runs the user's git, quietly configured, and gives what it prints."""
    done = subprocess.run(["git", *arguments], cwd=repo, env=os.environ | QUIET, input=input, capture_output=True)
    assert done.returncode == 0 or not ok, done.stderr.decode()
    return done.stdout.decode(errors="surrogateescape")


def write(root: Path, files: Mapping[str, bytes | str]) -> None:
    """Writes files below `root`; text as UTF-8, without changing line ends."""
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)


def repository(root: Path, files: Mapping[str, bytes | str], message: str = "base") -> Path:
    """A repository with one commit of `files`, byte for byte."""
    root.mkdir(parents=True)
    git(root, "init", "-q", "-b", "main")
    write(root, files)
    commit(root, message)
    return root


def commit(root: Path, message: str) -> str:
    """Commits all there is, with whatever the repository ignores."""
    git(root, "add", "-A", "-f")
    git(root, "commit", "-q", "--allow-empty", "--cleanup=verbatim", "-m", message)
    return head(root)


def head(root: Path) -> str:
    """The commit at HEAD."""
    return git(root, "rev-parse", "HEAD").strip()


def series(root: Path, patches: Mapping[str, bytes | str], text: str | None = None) -> Path:
    """A folder of patches with its series file (all of them in order, unless `text` says else)."""
    write(root, patches)
    root.mkdir(parents=True, exist_ok=True)
    file = root / "series"
    file.write_text("".join(f"{name}\n" for name in patches) if text is None else text)
    return file


def files_of(root: Path) -> dict[str, tuple[str, bytes]]:
    """Every file below `root` but git's: what it is, and its bytes."""
    found: dict[str, tuple[str, bytes]] = {}
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name != ".git"]
        for path in (
            Path(folder, name) for name in [*names, *(one for one in folders if Path(folder, one).is_symlink())]
        ):
            name = path.relative_to(root).as_posix()
            if path.is_symlink():
                found[name] = ("link", os.fsencode(os.readlink(path)))
            else:
                found[name] = ("755" if path.stat().st_mode & 0o100 else "644", path.read_bytes())
    return found


def lines(count: int, start: int = 1) -> str:
    """`count` different lines."""
    return "".join(f"line {number}\n" for number in range(start, start + count))


def mail(diff: str, subject: str = "[PATCH] change it", body: str = "Why it is so.\n") -> str:
    """A patch in mail form around `diff`."""
    return (
        f"From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001\n"
        f"From: Ann Author <ann@example.org>\nDate: Wed, 4 Mar 2026 05:06:07 +0200\nSubject: {subject}\n\n"
        f"{body}---\n\n{diff}"
    )


def patch_of(repo: Path, *options: str) -> str:
    """The last commit of `repo` as git writes it."""
    return git(repo, "format-patch", "-1", "--stdout", "--binary", *options)
