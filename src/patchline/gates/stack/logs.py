"""Logs of a stack's processes: a folder for each, and what its end says."""

from __future__ import annotations

import re
from pathlib import Path

from patchline.errors import UsageError

_TAIL = 2**16
_SHOWN, _ERRORS = 10, 5
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_ERROR = re.compile(r"\bdied\b|\w(?:Error|Exception): \S")
"""The lines that name a cause; tracebacks stand between them."""
_IN_USE = re.compile(r"address already in use|address in use", re.IGNORECASE)


def new(root: Path, name: str) -> Path:
    """The new log file of process `name`, in a folder of its own below `root`.

    Raises:
        UsageError: the folder cannot be written, or another run's log is there.
    """
    path = root / name / f"{name}.log"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("ab").close()
    except OSError as failed:
        raise UsageError(
            f"logs cannot be kept: {failed.strerror}", where=str(path), next="give a folder that can be written"
        ) from failed
    if path.stat().st_size:
        raise UsageError(f"the log of another {name} is there already", where=str(path), next="give a new folder")
    return path


def tail(path: Path, lines: int = 20) -> list[str]:
    """The last lines of a log, without colours and empty lines; none where it is not there."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    if len(text) >= _TAIL:
        text = text.partition("\n")[2]  # its first line is the end of one
    return [line for line in _COLOURS.sub("", text).splitlines() if line.strip()][-lines:]


def shown(path: Path) -> str:
    """What a log says about an end, for a message: the first errors in its last part, and its last lines."""
    lines = tail(path, 1000)
    told = [line for line in lines[:-_SHOWN] if _ERROR.search(line) and " WARNING " not in line][:_ERRORS]
    told += ["…"] * bool(told) + lines[-_SHOWN:]
    return "\n".join(f"  | {line[:400]}" for line in told) or "  | it printed nothing"


def last(path: Path) -> str:
    """The last line of a log, short enough for a line of progress."""
    return next(iter(tail(path, 1)), "it printed nothing")[:160]


def port_taken(path: Path) -> bool:
    """Whether a log's end says that another process has the port."""
    return any(_IN_USE.search(line) for line in tail(path))
