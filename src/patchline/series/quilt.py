"""The series file: which patches, in which order (quilt's form)."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from patchline.errors import UsageError
from patchline.paths import fault
from patchline.series.refusals import BadPatch

if TYPE_CHECKING:
    from patchline.series.patch import Patch

PATCH_ENDINGS = (".patch", ".diff")
"""What a file of our own patch folders is called; every such file must stand in the series."""

_COMMENT = re.compile(r"(^|\s)#.*")


def bare(name: str) -> str:
    """A patch file's name without number and ending: it stays when the patch is rebased or gets another number."""
    return re.sub(r"^\d+-|\.(patch|diff)$", "", name)


class Item(NamedTuple):
    """One line of a series file."""

    name: str
    strip: int
    line: int


class Files(NamedTuple):
    """The patch files of one series, in order, as bytes; not yet read as patches."""

    path: Path
    items: list[Item]
    raw: list[bytes]

    @property
    def digest(self) -> str:
        """sha256 over order, names, strip levels and bytes of the patches."""
        total = hashlib.sha256()
        for item, raw in zip(self.items, self.raw, strict=True):
            line = f"{item.name}\0{item.strip}\0{hashlib.sha256(raw).hexdigest()}\n"
            total.update(line.encode("utf-8", "surrogateescape"))
        return total.hexdigest()


def items(path: Path) -> list[Item]:
    """Reads the lines of a series file; `#` begins a comment, `-pN` is a strip level.

    Raises:
        UsageError: it is missing, names no patch, or has a line that is not understood; every
            such line is in the message.
    """
    try:
        text = path.read_text("utf-8", "surrogateescape")
    except OSError as gone:
        raise UsageError(
            f"there is no series file {path.name}: {gone.strerror}",
            where=str(path),
            next=f"write the patches' names, in order, in {path}; or make a first patch: python -m patchline new",
        ) from gone
    found: list[Item] = []
    faults: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        if parts := words(line):
            item = _item(parts, number)
            (faults if isinstance(item, str) else found).append(item)  # type: ignore[arg-type]
    if faults:
        raise UsageError("the series file is not understood:\n" + "\n".join(faults), where=str(path))
    if not found:
        raise UsageError(
            f"the series file {path.name} names no patch",
            where=str(path),
            next=f"write the patches' names, in order, in {path}",
        )
    return found


def words(line: str) -> list[str]:
    """A patch's name and its options; empty for a blank line and a comment."""
    return _COMMENT.sub("", line).split()


def _item(parts: list[str], number: int) -> Item | str:
    name, *options = parts
    if why := fault(name):
        return f"  line {number}: {name!r}: {why}"
    strip = 1
    for option in options:
        level = option.removeprefix("-p")
        if option == level or not level.isdigit():
            hint = " (reverse it and add it as a patch)" if option == "-R" else ""
            return f"  line {number}: {name}: the option {option} is not taken, only -pN is{hint}"
        strip = int(level)
    return Item(name, strip, number)


def disagreements(path: Path, listed: Sequence[Item], *, own: bool) -> list[str]:
    """Where folder and series file disagree; for our `own` folders, also in files that are not listed."""
    counts = Counter(item.name for item in listed)
    faults = [f"  {name}: listed {count} times" for name, count in counts.items() if count > 1]
    faults += [f"  {name}: listed, but there is no such file" for name in counts if not (path.parent / name).is_file()]
    if own:
        present = (file.name for file in sorted(path.parent.iterdir()) if file.name.endswith(PATCH_ENDINGS))
        faults += [f"  {name}: there, but not listed" for name in present if name not in counts]
    return faults


def files(path: Path, *, own: bool = False) -> Files:
    """Reads a series file and the bytes of its patches; `own` folders must agree with it both ways.

    Raises:
        UsageError: folder and series disagree; all disagreements are in the message.
    """
    listed = items(path)
    if faults := disagreements(path, listed, own=own):
        raise UsageError(
            "the folder and its series file disagree:\n" + "\n".join(faults),
            where=str(path),
            next=f"correct {path}, or the folder beside it",
        )
    return Files(path, listed, [(path.parent / item.name).read_bytes() for item in listed])


def patches(found: Files, *, lenient: bool = False) -> list[Patch]:
    """Reads the patches of a series.

    Raises:
        BadPatch: patches that cannot be read; all of them are in the message.
    """
    from patchline.series.patch import parsed

    read: list[Patch] = []
    bad: list[BadPatch] = []
    for item, raw in zip(found.items, found.raw, strict=True):
        path = found.path.parent / item.name
        try:
            read.append(parsed(raw, path, item.name, item.strip, lenient=lenient))
        except BadPatch as one:
            bad.append(BadPatch(f"{item.name}: {one.what}", where=str(path), next=one.next))
    if len(bad) == 1:
        raise bad[0]
    if bad:
        raise BadPatch("\n".join(one.what for one in bad), where=str(found.path.parent), next=bad[0].next)
    return read
