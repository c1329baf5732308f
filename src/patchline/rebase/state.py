"""A rebase that waits for hands: its folder in `work/`, which survives the day and is whole at any moment."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from patchline.errors import Refused, UsageError
from patchline.files import PART, clear_parts, folder_replaced, locked
from patchline.git import git
from patchline.project import Project
from patchline.rebase import store
from patchline.series.plan import Changes
from patchline.series.trees import Entry

FORM = 1
_STATE = "state.json"
_BEGINS = "rebase-"
# As in a checked-out pin: what lies there and is committed are the files' own bytes.
_ATTRIBUTES = b"* -text !eol -ident !filter !working-tree-encoding !diff !merge !whitespace !conflict-marker-size\n"


class State(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a rebase stands."""

    form: int = FORM
    old: str
    """The series that is rebased, as `NAME==VERSION`."""
    onto: str
    series: str
    """Digest of that series: with another one the rest would not fit."""
    base: str
    """The new version's own commit."""
    head: str
    """The commit in `tree` that the patch at hand is to stand on."""
    at: int
    """Place of the patch at hand in the series, from 0."""
    patch: str
    done: list[tuple[str, str]]
    """Name and commit of each patch that is rebased."""
    left: list[tuple[str, str]]
    """Name and verdict of each patch that is left out, so far."""
    dropped: list[str] = []
    """Hunks that somebody said may go."""
    resolutions: list[dict[str, Any]] = []
    out: str = ""
    """The folder that the rebased series is to lie in; empty for the one beside the old series."""


def room(project: Project, onto: str) -> Path:
    """The folder of a rebase onto `NAME==VERSION`."""
    return project.root / "work" / f"{_BEGINS}{onto.replace('==', '-')}"


def tree(folder: Path) -> Path:
    """The work tree in which a person resolves."""
    return folder / "tree"


def waiting(project: Project, name: str, onto: str = "") -> tuple[Path, State]:
    """The rebase of upstream `name` that waits, onto `NAME==VERSION` where several do.

    Raises:
        UsageError: there is none, or several and `onto` does not say which.
        Refused: its folder is not whole.
    """
    folders = sorted((project.root / "work").glob(f"{_BEGINS}*")) if not onto else [room(project, onto)]
    found = [(folder, load(folder)) for folder in folders if folder.is_dir()]
    found = [one for one in found if onto or one[1].old.split("==")[0] == name]
    if len(found) == 1:
        return found[0]
    if not found:
        raise UsageError(
            f"no rebase of {name} waits for anything", next=f"python -m patchline rebase {name} --onto VERSION"
        )
    raise UsageError(
        f"several rebases of {name} wait: onto {', '.join(one.onto for _, one in found)}",
        next="say which: --onto VERSION",
    )


def load(folder: Path) -> State:
    """The state in `folder`.

    Raises:
        Refused: there is none that is understood.
    """
    try:
        state = msgspec.json.decode((folder / _STATE).read_bytes(), type=State)
        if state.form == FORM:
            return state
        why = f"it is of form {state.form}, not {FORM}"
    except (OSError, msgspec.MsgspecError) as wrong:
        why = str(wrong)
    raise Refused(f"the rebase in {folder} cannot go on: {why}", where=str(folder / _STATE), next=f"rm -r {folder}")


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Keeps other runs away from a rebase; clears what a dead one left."""
    with locked(folder.with_name(f".{folder.name}.lock"), str(folder)):
        clear_parts(folder)
        yield


def write(folder: Path, pins: Sequence[Path], prepare: Callable[[Path], tuple[State, Changes]]) -> State:
    """Puts the folder in place, whole: `tree` at the state's head with files changed, not committed.

    `prepare` gets the new repository, writes its commits there, and gives state and files. What was
    in `tree` before is gone; its commits stay.
    """
    with folder_replaced(folder) as part:
        made = tree(part)
        made.mkdir()
        store.make(made, *pins, bare=False)
        if folder.exists():
            shutil.copytree(store.objects(tree(folder)), store.objects(made), dirs_exist_ok=True)
        state, files = prepare(made)
        (made / ".git" / "info").mkdir(exist_ok=True)
        (made / ".git" / "info" / "attributes").write_bytes(_ATTRIBUTES)
        git(made, "update-ref", "refs/heads/patchline", state.head)
        git(made, "update-ref", "refs/patchline/base", state.base)
        git(made, "read-tree", "--reset", "-u", state.head)
        for path, entry in files.items():
            _put(made / path, entry)
        (part / _STATE).write_bytes(msgspec.json.format(msgspec.json.encode(state), indent=1) + b"\n")
    return state


def _put(path: Path, entry: Entry | None) -> None:
    if entry is None:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(entry.data)
    path.chmod(0o755 if entry.mode & 0o100 else 0o644)


def remove(folder: Path) -> None:
    """Removes a rebase: gone in one step, cleared after that."""
    part = tempfile.mkdtemp(prefix=f"{PART}{folder.name}-", dir=folder.parent)
    os.replace(folder, part)
    shutil.rmtree(part)
