"""The installed package with an overlay on it, beside the environment, made of hard links."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from pathlib import Path

from patchline.errors import SourceMismatch
from patchline.files import clear_parts, folder_whole, locked
from patchline.overlay import Change, Overlay, write
from patchline.project import cache_dir
from patchline.proofs.installed import files, listed


def overlaid(made: Overlay, site_packages: Path) -> Path:
    """A folder to put before `site_packages` on the path; kept in the cache by content.

    One that is there already is compared, file by file.

    Raises:
        SourceMismatch: a file that the overlay replaces is not the pin's in `site_packages`, or the
            folder in the cache is not what was put there.
    """
    _check_base(made, site_packages)
    key = hashlib.sha256(f"{made.digest}\0{site_packages}".encode()).hexdigest()[:32]
    home = cache_dir().resolve() / "overlays" / key
    with locked(home.with_name(f"{key}.lock"), f"the overlay {made.digest}"):
        if not home.exists():
            _make(made, site_packages, home)
        _drop_bytecode(made, home, site_packages)
        check(made, home, site_packages, "before the runs")
    return home


def _make(made: Overlay, site_packages: Path, home: Path) -> None:
    clear_parts(home)
    with folder_whole(home) as part:
        for top in tops(made):
            shutil.copytree(site_packages / top, part / top, symlinks=True, copy_function=os.link)
        write(made, part)


def tops(made: Overlay) -> list[str]:
    """The packages that an overlay changes."""
    return sorted({change.path.split("/", 1)[0] for change in made.changes})


def packages(made: Overlay, site_packages: Path) -> tuple[str, ...]:
    """What a run has to import one of: the outermost packages with an `__init__.py` around what an overlay changes.

    A folder without one, such as `dynamo`, is a namespace: importing it says nothing about where its files come from.
    """
    outermost = (_outermost(change.path, site_packages) for change in made.changes)
    return tuple(sorted({package for package in outermost if package}))


def _outermost(path: str, site_packages: Path) -> str:
    folders = path.split("/")[:-1]
    above = (folders[: depth + 1] for depth in range(len(folders)))
    return next((".".join(names) for names in above if site_packages.joinpath(*names, "__init__.py").exists()), "")


def _drop_bytecode(made: Overlay, folder: Path, site_packages: Path) -> None:
    """Only the environment's byte-code of unchanged files stays.

    Old byte-code of a replaced file could be taken for its own: it has the time of another file.
    """
    changed = {change.path for change in made.changes}
    for top in tops(made):
        for path in (folder / top).rglob("__pycache__/*.pyc"):
            inside = path.relative_to(folder)
            source = inside.parents[1] / f"{inside.name.partition('.')[0]}.py"
            if source.as_posix() in changed or not _same_file(path, site_packages / inside):
                path.unlink(missing_ok=True)


def check(made: Overlay, folder: Path, site_packages: Path, when: str) -> None:
    """Compares what stands at `folder` with the overlay, and all else with the environment.

    Raises:
        SourceMismatch: with the files that differ.
    """
    changed = {change.path for change in made.changes}
    wrong = [change.path for change in made.changes if not _is(folder / change.path, change)]
    for top in tops(made):
        stock, here = files(site_packages, top) - changed, files(folder, top) - changed
        wrong += sorted(stock ^ here)
        wrong += [path for path in sorted(stock & here) if not _same(folder / path, site_packages / path)]
    if wrong:
        raise SourceMismatch(
            f"{when}, the overlay's tree is not what was put there: {len(wrong)} files differ\n{listed(wrong)}",
            where=str(folder),
            next=f"rm -r {folder}; it is made again",
        )


def _is(path: Path, change: Change) -> bool:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return change.new is None
    if change.new is None or not stat.S_ISREG(mode):
        return False
    return bool(mode & 0o100) == bool(change.new.mode & 0o100) and path.read_bytes() == change.new.data


def _same_file(one: Path, other: Path) -> bool:
    try:
        return os.path.samestat(one.lstat(), other.lstat())
    except FileNotFoundError:
        return False


def _same(one: Path, other: Path) -> bool:
    """Whether two entries are one file, or links or files with the same content."""
    here, there = one.lstat(), other.lstat()
    if os.path.samestat(here, there):
        return True
    if here.st_mode != there.st_mode:
        return False
    if stat.S_ISLNK(here.st_mode):
        return one.readlink() == other.readlink()
    return stat.S_ISREG(here.st_mode) and one.read_bytes() == other.read_bytes()


def _check_base(made: Overlay, site_packages: Path) -> None:
    """Refuses an environment whose files are not what the overlay was made from."""
    wrong = [
        change.path
        for change in made.changes
        if _bytes(site_packages / change.path) != (change.old.data if change.old else None)
    ]
    if wrong:
        raise SourceMismatch(
            f"the installed package is not the pin {made.name}: these files differ from it\n{listed(wrong)}",
            where=str(site_packages),
            next="remove that environment; it is made again",
        )


def _bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
