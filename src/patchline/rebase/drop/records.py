"""What lies beside a patch and is its own: tests, explanations, recorded resolutions."""

from __future__ import annotations

import json
import re
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from patchline.errors import Refused
from patchline.files import remove_empty_above
from patchline.project import Project
from patchline.proofs.held import explained
from patchline.rebase.candidate import RESOLUTIONS
from patchline.series.lint import tests_of
from patchline.series.patch import Patch, parsed
from patchline.series.quilt import PATCH_ENDINGS

_HEAD = re.compile(r"^\[\[", re.MULTILINE)


class Tests(NamedTuple):
    """What becomes of a dropped patch's test files."""

    removed: list[str]
    stay: dict[str, list[str]]
    """Paths that other patches name, with those patches."""


def tests(project: Project, patch: Patch) -> Tests:
    """Removes the test files that only `patch`, which is taken away already, named; the others stay."""
    naming: dict[str, list[str]] = {}
    for path in sorted((project.root / "patches").glob("*/*/*")):
        if path.name.endswith(PATCH_ENDINGS):
            for test in tests_of(parsed(path.read_bytes(), path, path.name)):
                naming.setdefault(test, []).append(path.relative_to(project.root / "patches").as_posix())
    own = tests_of(patch)
    removed = [path for path in own if path not in naming and (project.root / path).is_file()]
    for name in removed:
        file = project.root / name
        file.unlink()
        remove_empty_above(file, project.root / "tests" / "patches")
    return Tests(removed, {path: naming[path] for path in own if path in naming})


def explanations(folder: Path, patch: str) -> int:
    """Takes what is explained of `patch` out of the series' explanations, and leaves every other byte; how many.

    Raises:
        Refused: the file cannot be cut without changing what is said of other patches.
        UsageError: it is not as it must be.
    """
    path = folder / explained.NAME
    before = explained.load(path)
    if not any(name == patch for name, _ in (*before.comments, *before.survivors)):
        return 0
    blocks = _blocks(path.read_text())
    kept = [block for block in blocks if not _is_of(block, patch)]
    _replace(path, "".join(kept), any(_HEAD.search(block) for block in kept))
    if explained.load(path) != _without(before, patch):
        raise Refused(
            f"{path.name} cannot be cut by its tables", where=str(path), next=f"take out what is said of {patch}"
        )
    return len(blocks) - len(kept)


def _blocks(text: str) -> list[str]:
    """The text before the first table, and each table with the comments right above it."""
    lines = text.splitlines(keepends=True)
    starts = []
    for at, line in enumerate(lines):
        if line.startswith("[["):
            begin = at
            while begin and lines[begin - 1].startswith("#"):
                begin -= 1
            starts.append(begin)
    bounds = [0, *starts, len(lines)]
    return ["".join(lines[a:b]) for a, b in pairwise(bounds)]


def _is_of(block: str, patch: str) -> bool:
    try:
        table: dict[str, Any] = tomllib.loads(block)
    except tomllib.TOMLDecodeError:  # cut inside a text of several lines: the comparison afterwards refuses it
        return False
    return any(one.get("patch") == patch for entries in table.values() for one in entries)


def _without(found: explained.Explained, patch: str) -> explained.Explained:
    comments, survivors = ({key: why for key, why in one.items() if key[0] != patch} for one in found)
    return explained.Explained(comments, survivors)


def resolutions(folder: Path, patch: str) -> int:
    """Takes the recorded resolutions of `patch` out of those beside the series; how many."""
    path = folder / RESOLUTIONS
    if not path.is_file():
        return 0
    listed = json.loads(path.read_bytes())
    kept = [one for one in listed if one["patch"] != patch]
    if len(kept) < len(listed):
        _replace(path, json.dumps(kept, indent=1) + "\n", bool(kept))
    return len(listed) - len(kept)


def _replace(path: Path, text: str, any_left: bool) -> None:
    """Writes the file anew, or removes it where nothing is left to say."""
    if any_left:
        path.write_text(text)
    else:
        path.unlink()
