"""Which of upstream's own tests are run: `builds/upstream-tests/NAME-VERSION.toml`, read at the door.

Every test file below its `folders` is in a suite, or left out for a stated reason: none is forgotten.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from patchline.errors import UsageError
from patchline.nearest import hint
from patchline.paths import fault
from patchline.project import Project

_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*/[A-Za-z0-9][A-Za-z0-9_.-]*")
_CONFIG = re.compile(r"[A-Z][A-Za-z0-9]*Config")
_TEST = re.compile(r"test_.*\.py")


class Suite(Struct, frozen=True, forbid_unknown_fields=True):
    """Test files that are run, and why these."""

    name: str
    why: str
    files: tuple[str, ...]


class LeftOut(Struct, frozen=True, forbid_unknown_fields=True):
    """Test files that are not run, and why not."""

    why: str
    files: tuple[str, ...]


class Model(Struct, frozen=True, forbid_unknown_fields=True):
    """A model of which the tests want `config.json` from a model hub, and nothing else."""

    model: str
    config: str
    """Class of transformers that writes it: `OPTConfig`."""
    arguments: dict[str, Any]


class Suites(Struct, frozen=True, forbid_unknown_fields=True):
    """The tests of one pin."""

    folders: tuple[str, ...]
    suites: tuple[Suite, ...]
    left_out: tuple[LeftOut, ...] = ()
    hub: tuple[Model, ...] = ()

    @property
    def files(self) -> list[str]:
        """All files that are run, sorted."""
        return sorted(path for suite in self.suites for path in suite.files)

    def suite_of(self, file: str) -> str:
        """The name of the suite that a file is in."""
        return next(suite.name for suite in self.suites if file in suite.files)


_TABLES: dict[str, type[Struct]] = {"suites": Suite, "left_out": LeftOut, "hub": Model}


def path_of(project: Project, of: str) -> Path:
    """The file for the pin `of` (`vllm==0.31.0`)."""
    return project.root / "builds" / "upstream-tests" / f"{of.replace('==', '-')}.toml"


def load(project: Project, of: str) -> Suites:
    """The suites for the pin `of`.

    Raises:
        UsageError: there is no such file, or it is not as it must be; every problem is named.
    """
    path = path_of(project, of)
    try:
        table = tomllib.loads(path.read_bytes().decode())
    except FileNotFoundError as missing:
        raise UsageError(
            f"nothing says which of upstream's tests are run for {of}",
            where=str(path),
            next="write it after that of another version",
        ) from missing
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as bad:
        raise UsageError(f"this is not TOML: {bad}", where=str(path)) from bad
    return _parsed(table, path)


def _parsed(table: dict[str, Any], path: Path) -> Suites:
    problems = list(_unknown(table))
    if not problems:
        try:
            found = msgspec.convert(table, Suites)
        except msgspec.ValidationError as bad:
            problems = [str(bad)]
        else:
            problems = list(_wrong(found))
    if problems:
        raise _refused(path, problems)
    return found


def check(suites: Suites, path: Path, there: Collection[str]) -> None:
    """Compares the suites, read from `path`, with the files of the pin, `there`.

    Raises:
        UsageError: a file is not in the pin, or a test file below `folders` is in no list.
    """
    listed = {*suites.files, *(file for left in suites.left_out for file in left.files)}
    tests = {file for file in there if _TEST.fullmatch(file.rpartition("/")[2])}
    below = {file for file in tests if any(file.startswith(f"{folder}/") for folder in suites.folders)}
    problems = [f"the pin has no {file}" for file in sorted(listed - set(there))]
    problems += [f"{file} is in no suite, and not left out" for file in sorted(below - listed)]
    if problems:
        raise _refused(path, problems)


def _refused(path: Path, problems: list[str]) -> UsageError:
    lines = "\n".join(f"  - {problem}" for problem in problems)
    return UsageError(f"the list of upstream's tests is wrong:\n{lines}", where=str(path), next="mend that file")


def _unknown(table: dict[str, Any]) -> Iterator[str]:
    yield from _keys(table, Suites, "the file")
    for name, kind in _TABLES.items():
        entries = table.get(name, [])
        for number, entry in enumerate(entries if isinstance(entries, list) else [], 1):
            yield from _keys(entry, kind, f"{name}, entry {number}")


def _keys(table: Any, kind: type[Struct], where: str) -> Iterator[str]:
    legal = kind.__struct_fields__
    keys = table if isinstance(table, dict) else ()
    yield from (f"{where}: unknown key '{key}': {hint(key, legal)}" for key in keys if key not in legal)


def _wrong(found: Suites) -> Iterator[str]:
    lists: list[Suite | LeftOut] = [*found.suites, *found.left_out]
    counts = Counter(file for one in lists for file in one.files)
    yield from (f"{file} is named twice" for file, count in counts.items() if count > 1)
    yield from (f"{path!r}: {why}" for path in (*counts, *found.folders) if (why := fault(path)))
    yield from (f"{path} is not below tests/" for path in counts if not path.startswith("tests/"))
    yield from ("a list has no `why`" for one in lists if not one.why.strip())
    yield from ("a list has no files" for one in lists if not one.files)
    if not found.suites:
        yield "it has no suites"
    names = Counter(suite.name for suite in found.suites)
    yield from (f"two suites are named {name}" for name, count in names.items() if count > 1)
    for model in found.hub:
        if not _MODEL.fullmatch(model.model):
            yield f"'{model.model}' is not OWNER/NAME"
        if not _CONFIG.fullmatch(model.config):
            yield f"{model.model}: '{model.config}' is not a configuration class of transformers"
