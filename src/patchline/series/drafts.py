"""Files that git would write as they are, written by us, while git packs the commits.

A checkout can change bytes: line ends, keywords, encodings, filters. Where nothing of that kind
is configured, a file in the work tree is its blob, and need not be read back out of a pack.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from patchline.git import start_work
from patchline.paths import fault
from patchline.run import Started

if TYPE_CHECKING:
    from patchline.series.plan import Changes

_CONVERT = ("text", "crlf", "eol", "filter", "ident", "working-tree-encoding")
_MOST = 2000  # paths that go on a command line; more are left to git


class Draft(NamedTuple):
    """A written file: its name in the room, and the blob that it is."""

    name: str
    blob: str


class Question:
    """Which files git would write as they are; git finds out while we do something else."""

    def __init__(self, repo: Path, paths: Sequence[str]) -> None:
        self.started: tuple[Started, ...] = ()
        if 0 < len(paths) <= _MOST and not any(fault(path) or path.endswith(".gitattributes") for path in paths):
            self.started = (
                start_work(repo, "config", "--get", "core.autocrlf"),
                start_work(repo, "check-attr", "-z", *_CONVERT, "--", *paths),
            )

    def answer(self) -> set[str]:
        """Those files; none where it is not sure."""
        if not self.started:
            return set()
        line_ends, attributes = (one.end(ok=(0, 1)).stdout for one in self.started)
        if line_ends.strip() not in (b"", b"false"):
            return set()
        fields = attributes.split(b"\0")[:-1]
        paths, values = fields[::3], fields[2::3]
        changed = {path for path, value in zip(paths, values, strict=True) if value not in (b"unspecified", b"unset")}
        return {os.fsdecode(path) for path in set(paths) - changed}

    def stop(self) -> None:
        """Ends git, where nobody wants the answer any more."""
        for one in self.started:
            one.stop()


def write(room: Path, changes: Changes, plain: set[str], id_of: Callable[[bytes], str]) -> dict[str, Draft]:
    """Writes in `room` the new files of `changes` that are `plain`."""
    drafts = {}
    new = {path: entry for path, entry in changes.items() if entry and path in plain}
    for number, (path, (mode, data)) in enumerate(new.items()):
        name = f"draft-{number}"
        bits = 0o777 if mode & 0o100 else 0o666
        file = os.open(f"{room}/{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, bits)
        with open(file, "wb") as out:
            out.write(data)
        drafts[path] = Draft(name, id_of(data))
    return drafts
