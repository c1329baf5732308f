"""The files that a drop changes, written down whole before the first is: a stopped drop is finished by the next."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import msgspec

from patchline.errors import Refused
from patchline.files import PART, clear_parts, folder_replaced, remove_empty_above, write_whole
from patchline.project import Project

FORM = 1
ROOMS = ("patches", "tests/patches", "changelog", "builds/evidence")
"""Folders in which a drop changes something, from the project's root."""


class Write(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file."""

    path: str
    """From the project's root."""
    was: str
    """sha256 of its bytes before; empty where it was not there."""
    data: bytes | None
    """Its bytes afterwards; None where it goes."""


class Journal(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All writes of one drop."""

    form: int = FORM
    patch: str
    """`vllm/nixl-hybrid-manager-guard`."""
    onto: str
    """The version that it is dropped in: `vllm==0.32.0`."""
    series: str
    """Folder of that series, from the project's root."""
    writes: list[Write]


def path_of(project: Project) -> Path:
    """Where the journal lies while its writes are made."""
    return project.root / "work" / "drop.json"


def differences(project: Project, after: Project) -> list[Write]:
    """What makes the rooms of `project` those of `after`, by path."""
    found = []
    for room in ROOMS:
        names = {*_files(after.root, room)} | {*_files(project.root, room)}
        for name in sorted(names):
            was, data = (_bytes(root / name) for root in (project.root, after.root))
            if was != data:
                found.append(Write(name, _digest(was), data))
    return found


def _files(root: Path, room: str) -> Iterator[str]:
    for path in (root / room).rglob("*"):
        if path.is_file() and path.suffix != ".pyc" and not any(part.startswith(PART) for part in path.parts):
            yield path.relative_to(root).as_posix()


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _digest(data: bytes | None) -> str:
    return "" if data is None else hashlib.sha256(data).hexdigest()


def begin(project: Project, found: Journal) -> None:
    """Writes the journal down; from here on the drop is finished, by this run or by the next."""
    write_whole(path_of(project), msgspec.json.encode(found))


def waiting(project: Project) -> Journal | None:
    """The drop that was stopped halfway; None where none was.

    Raises:
        Refused: its journal is not understood.
    """
    path = path_of(project)
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Journal)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as wrong:
        raise Refused(f"the journal of a stopped drop is not understood: {wrong}", where=str(path)) from wrong
    if found.form != FORM:
        raise Refused(f"the journal of a stopped drop is of form {found.form}, not {FORM}", where=str(path))
    return found


def finish(project: Project, found: Journal) -> None:
    """Makes all writes, those that are made already too, and forgets the journal. The series changes in one step.

    Raises:
        Refused: a file is neither as it was nor as it is to be; nothing was written.
    """
    _check(project, found)
    inside = [one for one in found.writes if PurePosixPath(one.path).parent.is_relative_to(found.series)]
    _series(project.root / found.series, found.series, inside)
    for one in found.writes:
        if one not in inside:
            _write(project.root, one)
    path_of(project).unlink()


def _check(project: Project, found: Journal) -> None:
    for one in found.writes:
        now = _digest(_bytes(project.root / one.path))
        if now not in (one.was, _digest(one.data)):
            raise Refused(
                f"{one.path} changed while the drop of {found.patch} in {found.onto} was stopped; nothing was written",
                where=str(path_of(project)),
                next=f"git checkout -- {one.path} and run again; or forget that drop: rm {path_of(project)}",
            )


def _series(folder: Path, name: str, writes: list[Write]) -> None:
    if not writes:
        return
    clear_parts(folder)
    if any(one.path == f"{name}/series" and one.data is None for one in writes):
        _remove(folder)
        return
    with folder_replaced(folder) as part:
        shutil.copytree(folder, part, symlinks=True, dirs_exist_ok=True)
        for one in writes:
            inner = PurePosixPath(one.path).relative_to(name).as_posix()
            _write(part, msgspec.structs.replace(one, path=inner))


def _remove(folder: Path) -> None:
    if folder.exists():
        part = tempfile.mkdtemp(prefix=f"{PART}{folder.name}-", dir=folder.parent)
        os.replace(folder, part)
        shutil.rmtree(part)
    remove_empty_above(folder, folder.parents[1])


def _write(root: Path, one: Write) -> None:
    path = root / one.path
    if one.data is not None:
        write_whole(path, one.data)
    elif path.exists():
        path.unlink()
        remove_empty_above(path, root)
