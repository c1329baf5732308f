"""The pin of a line's base: what its tag meant when the base lock was made; `builds/<line>/base.toml`."""

from __future__ import annotations

from pathlib import Path

import msgspec

from patchline.errors import SourceMismatch, UsageError
from patchline.files import write_whole
from patchline.image.digests import is_digest
from patchline.lines.line import Line

FILE = "base.toml"
_HEAD = "# Written by `nox -s pin -- {}`, with the base lock beside it; do not edit by hand.\n"


class Pinned(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One base."""

    name: str
    """Repository and tag, as the line names it."""
    digest: str
    """What the tag means: an index of platforms, or a manifest."""
    manifest: str
    """The manifest for the line's platform; the same where the tag means one."""


def path(line: Line) -> Path:
    """Where the pin is kept."""
    return line.folder / FILE


def read(line: Line) -> Pinned | None:
    """The pin of a line's base; None where there is none.

    Raises:
        SourceMismatch: it is damaged.
    """
    try:
        found = msgspec.toml.decode(path(line).read_bytes(), type=Pinned)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as bad:
        raise SourceMismatch(f"this is no pin of a base: {bad}", where=str(path(line)), next=_next(line)) from bad
    if not (is_digest(found.digest) and is_digest(found.manifest)):
        raise SourceMismatch("this pin of a base has no digest", where=str(path(line)), next=_next(line))
    return found


def needed(line: Line, name: str) -> Pinned:
    """The pin of the base `name`.

    Raises:
        UsageError: the base is not pinned, or another one is.
    """
    found = read(line)
    if found is None:
        raise UsageError(f"the base {name} of {line.name} is not pinned", where=str(line.folder), next=_next(line))
    if found.name != name:
        raise UsageError(
            f"the base {name} of {line.name} is not the pinned one: {found.name}",
            where=str(path(line)),
            next=f"remove {path(line)}, then {_next(line)}",
        )
    return found


def write(line: Line, pinned: Pinned) -> None:
    """Writes the pin, whole."""
    rows = [
        f"{name} = {msgspec.json.encode(value).decode()}\n" for name, value in msgspec.structs.asdict(pinned).items()
    ]
    write_whole(path(line), (_HEAD.format(line.name) + "".join(rows)).encode())  # a string of JSON is one of TOML


def _next(line: Line) -> str:
    return f"nox -s pin -- {line.name}"
