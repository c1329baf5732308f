"""`builds/fleets.toml`: where gates run, read at the door."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from patchline.errors import UsageError
from patchline.gates import fleet_checks
from patchline.gates.fleet import Fleet, Layout, Model
from patchline.nearest import hint
from patchline.project import Project

_Shape = TypeVar("_Shape", Fleet, Model | Layout)

_TABLES: dict[str, type[Model | Layout]] = {"models": Model, "layouts": Layout}
_KEYS = tuple(key for key in Fleet.__struct_fields__ if key != "name")


def path_of(project: Project) -> Path:
    """The project's fleets file."""
    return project.root / "builds" / "fleets.toml"


def load(path: Path) -> dict[str, Fleet]:
    """The fleets, in the file's order.

    Raises:
        UsageError: the file is not there or not as it must be; every problem is named.
    """
    table = _table(path)
    problems = list(_unknown(table, ("fleet",), "the file"))
    entries = table.get("fleet")
    if not isinstance(entries, dict) or not entries:
        problems.append("it names no fleet: a table [fleet.NAME] is wanted")
        entries = {}
    read = {name: _fleet(name, entry, problems) for name, entry in entries.items()}
    fleets = {name: fleet for name, fleet in read.items() if fleet}
    if len(fleets) == len(entries):
        problems += fleet_checks.of_all(fleets)
    if problems:
        raise UsageError(
            "\n".join(["the fleets file is wrong:", *(f"  - {problem}" for problem in problems)]),
            where=str(path),
            next="mend the file",
        )
    return fleets


def select(fleets: Mapping[str, Fleet], name: str) -> Fleet:
    """The fleet of that name.

    Raises:
        UsageError: there is none.
    """
    if name not in fleets:
        raise UsageError(f"there is no fleet {name!r}: {hint(name, fleets)}", next="see builds/fleets.toml")
    return fleets[name]


def _table(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_bytes().decode())
    except OSError as failed:
        raise UsageError(
            f"the fleets file cannot be read: {failed.strerror}", where=str(path), next="git checkout -- the file"
        ) from failed
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as wrong:
        raise UsageError(f"the fleets file is not TOML: {wrong}", where=str(path), next="mend the file") from wrong


def _fleet(name: str, entry: Any, problems: list[str]) -> Fleet | None:
    """One fleet, None where it is not of the right shape; what is wrong is added to `problems`."""
    where = f"fleet {name}"
    if not isinstance(entry, dict):
        problems.append(f"{where}: a table is wanted")
        return None
    found = list(_unknown(entry, _KEYS, where))
    parts = {key: _parts(entry.get(key), key, where, found) for key in _TABLES}
    known = {key: value for key, value in entry.items() if key in _KEYS}
    fleet = _converted({**known, **parts, "name": name}, Fleet, where, found)
    if fleet and not found:
        found += [f"{where}: {problem}" for problem in fleet_checks.of_fleet(fleet)]
    problems += found
    return fleet


def _parts(tables: Any, key: str, where: str, problems: list[str]) -> list[Model | Layout]:
    """The models or layouts of a fleet that are of the right shape."""
    if not isinstance(tables, list) or not tables:
        problems.append(f"{where}: it has no {key}: tables [[fleet.NAME.{key}]] are wanted")
        return []
    kind, made = _TABLES[key], []
    for number, table in enumerate(tables, 1):
        at = f"{where}, {key} {number}"
        unknown = list(_unknown(table, kind.__struct_fields__, at))
        problems += unknown
        part = None if unknown else _converted(table, kind, at, problems)
        made += [part] if part else []
    return made


def _converted(table: Any, kind: type[_Shape], where: str, problems: list[str]) -> _Shape | None:
    """The table as `kind`, None where it is not of that shape."""
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as wrong:
        problems.append(f"{where}: {wrong}")
        return None


def _unknown(table: Any, legal: tuple[str, ...], where: str) -> Iterator[str]:
    keys = table if isinstance(table, dict) else ()
    yield from (f"{where}: unknown key '{key}': {hint(key, legal)}" for key in keys if key not in legal)
