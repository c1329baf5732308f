"""Prepares a move of a work tree beside it: the new index, and the new files as git writes them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from patchline.errors import Refused
from patchline.git import git, work
from patchline.paths import ancestors
from patchline.series.drafts import Draft
from patchline.series.index_entries import Known, Placed, unsettled

if TYPE_CHECKING:  # a run with nothing to do imports neither
    from patchline.series.plan import Changes
    from patchline.series.trees import CommitTree

INDEX = "index"
"""Name of the new index in its room."""


class Staged(NamedTuple):
    """What is ready: `files` are pairs of a name in the room and a path in the work tree."""

    files: list[tuple[str, str]]
    removed: list[str]
    placed: list[Placed]
    """The files' blobs and states, for the index."""
    replaced: list[Known]
    """What stands in the work tree where something is written or removed."""


class Change(NamedTuple):
    """One file's difference between two commits."""

    mode: int
    """Of the new file; 0 where it is removed."""
    old: str
    blob: str
    status: str
    """Git's letter: `A`, `D`, `M` or `T`."""
    path: str


def changes_between(repo: Path, old: str, new: str) -> list[Change]:
    """What differs between two commits, as git says."""
    fields = git(repo, "diff-tree", "-r", "-z", "--no-renames", old, new).split(b"\0")[:-1]
    return [_change(head, path) for head, path in zip(fields[::2], fields[1::2], strict=True)]


def changes_planned(tree: CommitTree, total: Changes) -> list[Change]:
    """The same for a planned commit on `tree`, before git knows of it."""
    none = "0" * len(tree.commit)
    found = []
    for path, entry in sorted(total.items()):
        old, new = tree.known(path), (entry.mode, tree.id_of(entry.data)) if entry else None
        if old != new:
            status = "A" if old is None else "D" if new is None else "M"
            found.append(Change(new[0] if new else 0, old[1] if old else none, new[1] if new else none, status, path))
    return found


def stage(
    repo: Path, git_dir: Path, room: Path, changes: Sequence[Change], *, drafts: Mapping[str, Draft], in_place: bool
) -> Staged:
    """Writes in `room` what makes the changes in the work tree and its index.

    `drafts` are in `room` already. `in_place`: the files of the work tree are changed already;
    only the index is prepared.

    Raises:
        Refused: untracked files are in the way, or git does not write some of the files.
    """
    if not in_place:
        _check_room(repo, changes)
    env = {"GIT_INDEX_FILE": str(room / INDEX)}
    (room / INDEX).write_bytes((git_dir / "index").read_bytes())
    lines = [f"{one.mode:o} {one.blob}\t{one.path}\0" for one in sorted(changes, key=lambda one: one.mode != 0)]
    git(repo, "update-index", "-z", "--index-info", input=os.fsencode("".join(lines)), env=env)
    if in_place:
        return Staged([], [], [], [])
    written = {one.path: one for one in changes if one.mode}
    ready = {path: draft.name for path, draft in drafts.items() if path in written and draft.blob == written[path].blob}
    rest = {path: one for path, one in written.items() if path not in ready}
    env |= {"GIT_DIR": str(git_dir), "GIT_WORK_TREE": str(room)}
    files = [(name, path) for path, name in ready.items()] + (_files(repo, room, rest, env) if rest else [])
    placed = [_placed(written[path], f"{room}/{name}") for name, path in files]
    replaced = [Known(one.path, one.old) for one in changes if one.status != "A"]
    return Staged(files, [one.path for one in changes if not one.mode], placed, replaced)


def _placed(change: Change, staged: str) -> Placed:
    status = os.lstat(staged)
    return Placed(change.path, change.blob, status.st_mtime_ns, status.st_size, status.st_ino)


def _change(head: bytes, path: bytes) -> Change:
    _, mode, old, blob, status = head.decode().split(" ")
    return Change(int(mode, 8), old, blob, status, os.fsdecode(path))


def _files(repo: Path, room: Path, written: dict[str, Change], env: dict[str, str]) -> list[tuple[str, str]]:
    """Lets git write the files: line ends and filters are what a checkout here gives."""
    names = b"".join(os.fsencode(path) + b"\0" for path in written)
    out = work(room, "checkout-index", "-z", "--temp", "--stdin", input=names, env=env)
    pairs = (os.fsdecode(record).partition("\t") for record in out.split(b"\0")[:-1])
    found = [(name, path) for name, _, path in pairs]
    if len(found) != len(written):
        raise Refused(
            f"git wrote {len(found)} of {len(written)} files (a sparse checkout?); nothing was changed", where=str(repo)
        )
    mask = _umask()
    for name, path in found:
        _give_mode(f"{room}/{name}", written[path].mode, mask)
    return found


def _give_mode(path: str, mode: int, mask: int) -> None:
    """Git writes every temporary file for its owner alone, a symbolic link as a file with its target."""
    if mode == 0o120000:
        target = Path(path).read_bytes()
        os.unlink(path)
        os.symlink(target, os.fsencode(path))
    else:
        os.chmod(path, (0o777 if mode & 0o100 else 0o666) & ~mask)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _check_room(repo: Path, changes: Sequence[Change]) -> None:
    """Refuses to write over what git does not know, or through a symbolic link."""
    removed = {one.path for one in changes if not one.mode}
    folders = {folder for one in changes if one.mode for folder in ancestors(one.path)}
    added = [one.path for one in changes if one.status == "A"]
    present = [path for path in (*added, *folders) if _in_the_way(repo, path, path in folders, removed)]
    if present:
        raise Refused(
            f"untracked files of {repo} are in the way; nothing was changed\n{some(present)}", next="move them away"
        )


def _in_the_way(repo: Path, path: str, as_folder: bool, removed: set[str]) -> bool:
    full = f"{repo}/{path}"
    if not os.path.lexists(full):
        return False
    if os.path.islink(full) or not os.path.isdir(full):
        return path not in removed
    return not as_folder and _holds_more(repo, full, removed)


def _holds_more(repo: Path, full: str, removed: set[str]) -> bool:
    """Whether a folder that a file takes the place of holds anything but what goes."""
    going = removed | {folder for path in removed for folder in ancestors(path)}
    inside = (os.path.join(folder, name) for folder, folders, names in os.walk(full) for name in (*folders, *names))
    return os.path.relpath(full, repo) not in going or any(os.path.relpath(path, repo) not in going for path in inside)


def check_replaced(repo: Path, index: bytes, replaced: list[Known]) -> None:
    """Refuses to write over a file that is not what its commit says, whatever the index is told of it.

    Where the index vouches for a file, that is enough; the others (changed this moment, or marked
    assume-unchanged or skip-worktree) are read, as git would read them.

    Raises:
        Refused: with the files.
    """
    doubtful = set(unsettled(index, repo, replaced))
    there = [one for one in replaced if one.path in doubtful and os.path.lexists(f"{repo}/{one.path}")]
    changed = [one.path for one in there if _blob_of(repo, one.path) != one.blob]
    if changed:
        raise Refused(
            f"files of {repo} are not what HEAD says; nothing was changed\n{some(changed)}",
            next="commit or stash them (git ls-files -v shows what assume-unchanged and skip-worktree hide)",
        )


def _blob_of(repo: Path, path: str) -> str:
    if os.path.islink(f"{repo}/{path}"):
        target = os.readlink(os.fsencode(f"{repo}/{path}"))
        return git(repo, "hash-object", "--stdin", input=target).decode().strip()
    if not os.path.isfile(f"{repo}/{path}"):
        return "not a file"
    return work(repo, "hash-object", "--", path).decode().strip()


def some(paths: list[str], most: int = 10) -> str:
    """The paths, one a line, cut after `most`."""
    lines = [f"  {path}" for path in paths[:most]]
    return "\n".join([*lines, f"  … {len(paths) - most} more"] if len(paths) > most else lines)
