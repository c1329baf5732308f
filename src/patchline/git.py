"""The one git module: a function a question, whatever the user's git is configured to do."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from patchline import run
from patchline.errors import CommandFailed, UsageError
from patchline.run import Started

# Each overrides a setting that changes bytes, asks a question or runs something. Global and
# system files are not read (see `_environment`); these are for the repository's own.
_FIXED = {
    "core.abbrev": "40",
    "core.attributesFile": os.devnull,  # a driver there changes hunk headings
    "core.quotePath": "true",
    "diff.suppressBlankEmpty": "false",  # strips blank context lines: a corrupt patch
    "diff.orderFile": os.devnull,
    "diff.indentHeuristic": "true",
    "fastimport.unpackLimit": "0",  # one pack: a write that is whole or absent
    "i18n.commitEncoding": "UTF-8",
    "i18n.logOutputEncoding": "UTF-8",
    "protocol.ext.allow": "never",
}
_QUIET = {
    "core.fsmonitor": "false",  # would start a daemon that outlives us
    "core.hooksPath": os.devnull,
    "gc.auto": "0",
    "maintenance.auto": "false",
    "pack.compression": "1",  # the packs that a run writes are small; zlib's default takes twice as long
    "submodule.recurse": "false",
    "advice.detachedHead": "false",
}

_KEPT = ("PATH", "HOME", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO", "SSH_AUTH_SOCK")
_SAID = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_COMMITTER_NAME": "patchline",  # of reflogs only: commits say their own
    "GIT_COMMITTER_EMAIL": "patchline@localhost",
    "LC_ALL": "C",
    "TZ": "UTC",
}
_NO_CONFIGURATION = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_ATTR_NOSYSTEM": "1"}


def _environment() -> dict[str, str]:
    return {name: os.environ[name] for name in _KEPT if name in os.environ} | _SAID | _NO_CONFIGURATION


def _command(settings: dict[str, str], arguments: Sequence[str]) -> list[str]:
    options = (word for name, value in settings.items() for word in ("-c", f"{name}={value}"))
    return ["git", "--no-pager", "--literal-pathspecs", *options, *arguments]


def git(
    repo: Path,
    *arguments: str,
    input: bytes | None = None,
    stdin: BinaryIO | None = None,
    env: dict[str, str] | None = None,
    ok: Sequence[int] = (0,),
) -> bytes:
    """Runs git in `repo`, deaf to every configuration, and returns its standard output, untouched.

    For objects, refs and diffs. `env` adds to the scrubbed environment (`GIT_INDEX_FILE`).

    Raises:
        CommandFailed: git ended with a status that is not in `ok`.
    """
    return start(repo, *arguments, stdin=stdin or subprocess.PIPE, env=env).end(input, ok=ok).stdout


def start(
    repo: Path,
    *arguments: str,
    stdin: BinaryIO | int = subprocess.DEVNULL,
    env: dict[str, str] | None = None,
) -> Started:
    """As `git`, without waiting for its end."""
    return run.start(_command(_FIXED | _QUIET, arguments), cwd=repo, env=_environment() | (env or {}), stdin=stdin)


def work(
    repo: Path,
    *arguments: str,
    input: bytes | None = None,
    env: dict[str, str] | None = None,
    ok: Sequence[int] = (0,),
) -> bytes:
    """As `git`, with the user's configuration: for files of a work tree.

    Line ends and filters (`core.autocrlf`, large-file drivers) are the user's there, and a clean
    work tree looks changed to a git that does not know them.
    """
    return start_work(repo, *arguments, env=env, stdin=subprocess.PIPE).end(input, ok=ok).stdout


def start_work(
    repo: Path, *arguments: str, env: dict[str, str] | None = None, stdin: int = subprocess.DEVNULL
) -> Started:
    """As `work`, without waiting for its end."""
    ours = ("GIT_CONFIG_", "GIT_SSH")
    own = {name: value for name, value in os.environ.items() if name.startswith(ours) or not name.startswith("GIT_")}
    return run.start(_command(_QUIET, arguments), cwd=repo, env=own | _SAID | (env or {}), stdin=stdin)


def line(repo: Path, *arguments: str) -> str:
    """The one line that git answers."""
    return os.fsdecode(git(repo, *arguments)).rstrip("\n")


class Top(NamedTuple):
    """A checked-out repository."""

    work_tree: Path
    git_dir: Path
    """The work tree's own: a linked one has another than the repository."""
    objects: Path
    head: str
    """Commit that is checked out."""


def top(folder: Path) -> Top:
    """The repository that `folder` is the top of.

    Raises:
        UsageError: `folder` is not the top folder of a git work tree with a commit. A subfolder of
            another repository is not: git would look up the wrong paths there and say nothing.
    """
    try:
        answer = git(
            folder,
            "rev-parse",
            "--show-toplevel",
            "--absolute-git-dir",
            "--git-path",
            "objects",
            "--verify",
            "HEAD^{commit}",
        )
    except (CommandFailed, NotADirectoryError) as failed:
        raise UsageError(
            f"{folder} is not a git work tree with a commit",
            next=f"git -C {folder} init, and commit what is there; or give the folder with --source",
        ) from failed
    found, own, objects, head = os.fsdecode(answer).splitlines()
    if Path(found).resolve() != folder.resolve():
        raise UsageError(
            f"{folder} is a subfolder of the git work tree {found}, not its top",
            where=str(folder),
            next=f"give --repo {found}, or --source {folder} --out DIR for a folder without git",
        )
    return Top(Path(found), Path(own), folder.absolute() / objects, head)


def commit_of(repo: Path, name: str) -> str:
    """The full id of the commit that `name` means."""
    return line(repo, "rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}")


def settings_as_environment() -> dict[str, str]:
    """The scrubbed environment with the fixed settings in it, for a library that starts git itself."""
    numbered: dict[str, str] = {}
    for at, (name, value) in enumerate(_FIXED.items()):
        numbered |= {f"GIT_CONFIG_KEY_{at}": name, f"GIT_CONFIG_VALUE_{at}": value}
    return _environment() | numbered | {"GIT_CONFIG_COUNT": str(len(_FIXED))}
