"""The explanations of a series on another version: those of lines that the rebased patches still have.

What no test can hold is explained in `explained.toml` beside the series, by patch and line (`hunks` reads it). An
explanation whose line is gone stands for nothing, which `hunks` takes for a fault: it is left out, and named.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from patchline.errors import UsageError
from patchline.proofs.held import explained
from patchline.series.patch import parsed

_TABLE = re.compile(r"^(?=\[\[)", re.MULTILINE)


class Explanations(NamedTuple):
    """The file for the rebased series."""

    text: str
    """Empty where nothing of it is left."""
    gone: tuple[str, ...]
    """What it no longer explains, as `PATCH: NAME`."""


class _Lines(NamedTuple):
    """The changed lines of one patch, each as `PATH: LINE`, without blanks around the line."""

    added: set[str]
    removed: set[str]


def explanations(path: Path, patches: Mapping[str, bytes]) -> Explanations:
    """What the file at `path` says of lines that the rebased `patches` have, word for word, comments and all.

    Raises:
        UsageError: the file is not as it must be, or a line in its texts begins with `[[`.
    """
    explained.load(path)
    if not path.is_file():
        return Explanations("", ())
    head, *tables = _TABLE.split(path.read_text("utf-8"))
    changed = {name: _lines(raw, name) for name, raw in patches.items()}
    kept, gone = [], []
    for table in tables:
        patch, name = _entry(table, path)
        if patch in changed and _stands(name, changed[patch]):
            kept.append(table)
        else:
            gone.append(f"{patch}: {name}")
    text = "".join([head, *kept]).rstrip() + "\n" if kept else ""
    return Explanations(text, tuple(gone))


def _entry(table: str, path: Path) -> tuple[str, str]:
    """The patch of one table, and the piece or the mutant that it explains."""
    try:
        ((_, (entry,)),) = tomllib.loads(table).items()
        return entry["patch"], entry.get("mutant") or entry["piece"]
    except (tomllib.TOMLDecodeError, ValueError, KeyError) as wrong:
        raise UsageError(
            "the explanations cannot be taken apart: a line that begins with [[ begins no table of its own",
            where=str(path),
            next="indent that line",
        ) from wrong


def _stands(name: str, lines: _Lines) -> bool:
    """Whether a patch has the line of a name: a piece is named by it, a mutant by it and by what is mistaken in it."""
    return name in lines.added | lines.removed or any(name.startswith(f"{line}: ") for line in lines.added)


def _lines(raw: bytes, name: str) -> _Lines:
    added, removed = set[str](), set[str]()
    for diff in parsed(raw, Path(name), name).files:
        for hunk in diff.hunks:
            old, new = Counter(hunk.old), Counter(hunk.new)
            added |= set(_named(diff.path, new - old))
            removed |= set(_named(diff.path, old - new))
    return _Lines(added, removed)


def _named(path: str, lines: Counter[bytes]) -> Iterator[str]:
    return (f"{path}: {line.decode(errors='backslashreplace').strip()}" for line in lines)
