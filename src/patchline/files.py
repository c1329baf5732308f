"""Files and folders that appear whole or not at all.

Heavy modules are imported where they are used: a run with nothing to do passes through here.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from patchline.errors import Refused

PART = ".part-"
"""What the name of a half-made file or folder starts with; whoever holds the lock may remove it."""


def write_whole(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Writes `data` at `path` in one step: after a crash the old file is there, or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    name = path.parent / f"{PART}{os.getpid()}-{time.time_ns()}"
    handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, mode)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def clear_parts(path: Path, *, patience: float = 0.0) -> None:
    """Removes what killed runs of `folder_whole` and `folder_replaced` left for exactly `path`.

    Only for the holder of the lock on `path`. With `patience` it tries for so many seconds, since
    a program without a parent may still write there, and leaves what remains to the next run.

    Raises:
        OSError: without `patience`, where something cannot be removed.
    """
    import glob
    import shutil

    name = glob.escape(f"{PART}{path.name}-") + "[a-z0-9_]" * 8  # mkdtemp's: no part of `build-2` is one of `build`
    for left in path.parent.glob(name):
        until = time.monotonic() + patience
        shutil.rmtree(left, ignore_errors=patience > 0)
        while left.exists() and time.monotonic() < until:
            time.sleep(0.01)
            shutil.rmtree(left, ignore_errors=True)


@contextmanager
def folder_whole(path: Path) -> Iterator[Path]:
    """Gives an empty folder beside `path`, which takes that name when the block ends well.

    Raises:
        Refused: `path` is there already and is not an empty folder.
    """
    if path.is_symlink() or (path.exists() and (not path.is_dir() or any(path.iterdir()))):
        raise Refused(
            f"{path} is there already; nothing was written",
            next=f"remove {path}, or give another folder",
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    with _part_of(path) as part:
        yield part
        os.replace(part, path)


@contextmanager
def folder_replaced(path: Path) -> Iterator[Path]:
    """Gives an empty folder beside `path`, which takes its place, whole, when the block ends well."""
    if not path.exists():
        with folder_whole(path) as part:
            yield part
        return
    with _part_of(path) as part:
        yield part
        _exchange(part, path)


@contextmanager
def _part_of(path: Path) -> Iterator[Path]:
    """A new folder beside `path`; what then bears its name is removed at the end."""
    import shutil
    import tempfile

    part = Path(tempfile.mkdtemp(prefix=f"{PART}{path.name}-", dir=path.parent))
    try:
        os.chmod(part, 0o755)
        yield part
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _exchange(one: Path, other: Path) -> None:
    """Lets two names change places in one step (Linux's renameat2): no moment without either."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    here, exchange = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of <fcntl.h> and <stdio.h>
    if libc.renameat2(here, os.fsencode(one), here, os.fsencode(other), exchange):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(other))


def remove_empty_above(path: Path, root: Path) -> None:
    """Removes the folders above `path`, below `root`, that nothing lies in any more."""
    with suppress(OSError):  # the first one that is not empty ends it
        for folder in path.parents:
            if folder == root:
                break
            folder.rmdir()


@contextmanager
def locked(path: Path, what: str) -> Iterator[None]:
    """Holds the lock file `path`; the system lets go of it when the process ends, however it ends.

    Raises:
        Refused: another run holds it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as held:
            raise Refused(
                f"another run of patchline works on {what}; nothing was changed",
                where=str(path),
                next="wait until it has ended, then run the same command again",
            ) from held
        yield
