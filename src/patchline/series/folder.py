"""Writes a plan as a folder: a copy of the source with the series on it."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from pathlib import Path

from patchline.errors import UsageError
from patchline.files import clear_parts, folder_whole, locked, remove_empty_above
from patchline.project import cache_dir
from patchline.series.plan import Changes


def write(source: Path, out: Path, total: Changes) -> None:
    """Leaves at `out` a copy of `source` with the changes made, whole or not at all.

    Raises:
        UsageError: one folder lies inside the other, or `source` holds what cannot be copied.
        Refused: `out` is there already, or another run writes it.
    """
    source, out = source.resolve(), out.absolute()
    if source == out or source in out.parents or out in source.parents:
        raise UsageError(f"{out} and {source} lie one inside the other", next="give --out a folder elsewhere")
    key = hashlib.sha256(os.fsencode(out)).hexdigest()[:32]
    with locked(cache_dir() / "locks" / key, str(out)):
        clear_parts(out)
        with folder_whole(out) as part:
            _copy(source, part)
            for path, entry in sorted(total.items(), key=lambda item: item[1] is not None):
                if entry is None:
                    _remove(part, path)
                else:
                    _write(part / path, entry.data, entry.mode)


def _copy(source: Path, part: Path) -> None:
    """Copies the whole of `source`.

    Raises:
        OSError: the disk is full.
        UsageError: with everything that cannot be copied, a socket or an unreadable file.
    """
    try:
        shutil.copytree(source, part, symlinks=True, dirs_exist_ok=True)
    except shutil.Error as failed:
        _raise_full(failed, part)
        whys = "\n".join(f"  {name}: {why}" for name, _, why in failed.args[0])
        raise UsageError(f"{source} cannot be copied whole:\n{whys}", next=f"ls -lR {source}") from failed


def _raise_full(failed: shutil.Error, part: Path) -> None:
    """Raises the system's own error again where a full disk is a reason: shutil keeps only its text."""
    for number in (errno.ENOSPC, errno.EDQUOT):
        if any(f"[Errno {number}]" in str(why) for *_, why in failed.args[0]):
            raise OSError(number, os.strerror(number), str(part)) from failed


def _write(path: Path, data: bytes, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    bits = 0o777 if mode & 0o100 else 0o666
    if path.exists():
        bits = path.stat().st_mode & 0o666 | (bits & 0o111)
        path.unlink()
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, bits), "wb") as file:
        file.write(data)


def _remove(root: Path, path: str) -> None:
    full = root / path
    full.unlink(missing_ok=True)
    remove_empty_above(full, root)
