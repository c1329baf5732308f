"""The one git module: a function a question, the same answer whatever git is configured to do."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import BinaryIO, NamedTuple

from patchline import run
from patchline.errors import UsageError
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

_KEPT = ("PATH", "HOME", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO", "SSH_AUTH_SOCK", "SUDO_UID")
_SAID = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",  # refs/replace shows other bytes under the same id
    "GIT_COMMITTER_NAME": "patchline",  # of reflogs only: commits say their own
    "GIT_COMMITTER_EMAIL": "patchline@localhost",
    "LC_ALL": "C",
    "TZ": "UTC",
}
_NO_CONFIGURATION = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_GRAFT_FILE": f"{os.devnull}/none",  # other parents of a commit; a file that is there gets a warning
}


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
    """Runs git in `repo` and returns its standard output, untouched.

    For objects, refs and diffs. Git's environment is scrubbed and it reads no user's and no system's
    configuration. It reads the repository's own, where it must (object format, extensions), and each
    setting there that would change an answer has a fixed value instead; replaced objects and grafts
    are not looked at. `env` adds to the environment (`GIT_INDEX_FILE`).

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
    command = _command(_FIXED | _QUIET, [*_trusted(repo), *arguments])
    return run.start(command, cwd=repo, env=_environment() | (env or {}), stdin=stdin)


def _trusted(repo: Path) -> Iterator[str]:
    """The user's `safe.directory` settings as options, for a repository that somebody else owns."""
    with suppress(OSError):
        if {os.stat(repo).st_uid, os.stat(repo / ".git").st_uid} != {os.geteuid()}:
            for value in _safe_directories():
                yield from ("-c", f"safe.directory={value}")


@cache
def _safe_directories() -> tuple[str, ...]:
    """What the user and the system say; git heeds no repository's own word on this, nor do we."""
    command = ["git", "config", "--show-scope", "-z", "--get-all", "safe.directory"]
    answer = run.run(command, cwd=Path("/"), env=_own_environment(), ok=(0, 1)).stdout
    words = os.fsdecode(answer).split("\0")[:-1]
    return tuple(value for scope, value in zip(words[::2], words[1::2], strict=True) if scope in ("system", "global"))


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
    return run.start(_command(_QUIET, arguments), cwd=repo, env=_own_environment() | _SAID | (env or {}), stdin=stdin)


def _own_environment() -> dict[str, str]:
    ours = ("GIT_CONFIG_", "GIT_SSH")
    return {name: value for name, value in os.environ.items() if name.startswith(ours) or not name.startswith("GIT_")}


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
        UsageError: `folder` is not the top folder of a git work tree with a commit, or git may not
            or cannot read it. A subfolder of another repository is not its top: git would look up
            the wrong paths there and say nothing.
    """
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}", next="give the top folder of a git work tree")
    questions = ("--show-toplevel", "--absolute-git-dir", "--git-path", "objects", "--verify", "HEAD^{commit}")
    done = start(folder, "rev-parse", *questions).end(ok=(0, 128))
    if done.returncode:
        raise _no_top(folder, done.stderr.decode(errors="replace"))
    return _parsed(folder, done.stdout)


def _no_top(folder: Path, said: str) -> UsageError:
    """The error for what git said about `folder`."""
    import shlex

    lines = [line for line in said.split("\n") if line]
    reason = next((line for line in lines if line.startswith("fatal: ")), lines[-1] if lines else "it printed nothing")
    if "not a git repository" in reason or "Needed a single revision" in reason:
        return UsageError(
            f"{folder} is not a git work tree with a commit",
            where=f"git: {reason}",
            next=f"git -C {folder} init, and commit what is there; or give the folder with --source",
        )
    if "safe.directory" in said:
        trust = shlex.join(["git", "config", "--global", "--add", "safe.directory", str(folder.resolve())])
        return UsageError(
            f"git does not trust {folder}, which another user owns", where=f"git: {reason}", next=f"if you do: {trust}"
        )
    return UsageError(f"git cannot work in {folder}", where=f"git: {reason}", next=f"git -C {folder} status")


def _parsed(folder: Path, answer: bytes) -> Top:
    """Each answer is a line, but a path may hold line ends: the known ones are taken off at both ends."""
    here = os.fsencode(folder.resolve())
    if not answer.startswith(here + b"\n"):
        outer = os.fsdecode(answer.split(b"\n", 1)[0])
        raise UsageError(
            f"{folder} is a subfolder of the git work tree {outer}, not its top",
            where=str(folder),
            next=f"give --repo {outer}, or --source {folder} --out DIR for a folder without git",
        )
    paths, _, head = answer.removesuffix(b"\n")[len(here) + 1 :].rpartition(b"\n")
    own, _, objects = map(os.fsdecode, paths.rpartition(b"\n"))
    found = Top(Path(os.fsdecode(here)), Path(own), folder.absolute() / objects, head.decode())
    if not found.objects.is_dir():  # a linked work tree: its repository lies elsewhere, under any name
        raise UsageError(f"{folder} belongs to a repository that git cannot name on one line", where=str(found.objects))
    return found


def commit_of(repo: Path, name: str) -> str:
    """The full id of the commit that `name` means."""
    return line(repo, "rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}")


def settings_as_environment() -> dict[str, str]:
    """The scrubbed environment with the fixed settings in it, for a library that starts git itself."""
    numbered: dict[str, str] = {}
    for at, (name, value) in enumerate(_FIXED.items()):
        numbered |= {f"GIT_CONFIG_KEY_{at}": name, f"GIT_CONFIG_VALUE_{at}": value}
    return _environment() | numbered | {"GIT_CONFIG_COUNT": str(len(_FIXED))}
