"""What is explained of a series that no test can hold: pieces that are no code, mutants that change nothing.

`explained.toml` lies beside the series. Each table `[[comment]]` names a `piece`, each `[[survivor]]` a `mutant`, as
`hunks` prints them, with the `patch` and a `reason`. One that stands for nothing is a fault, so none grows old.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from patchline.errors import UsageError
from patchline.nearest import hint

NAME = "explained.toml"
_TABLES = {"comment": "piece", "survivor": "mutant"}


class Explained(NamedTuple):
    """Reasons, by patch and name."""

    comments: dict[tuple[str, str], str]
    survivors: dict[tuple[str, str], str]


def load(path: Path) -> Explained:
    """What the file says; nothing where there is none.

    Raises:
        UsageError: it is not as it must be; every problem is named.
    """
    try:
        table = tomllib.loads(path.read_text())
    except FileNotFoundError:
        return Explained({}, {})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as wrong:
        raise UsageError(f"the explanations are not TOML: {wrong}", where=str(path)) from wrong
    problems = [*_problems(table)]
    if problems:
        listed = "\n".join(f"  {problem}" for problem in problems)
        raise UsageError(f"the explanations are not as they must be:\n{listed}", where=str(path))
    comments, survivors = (
        {(one["patch"], one[key]): one["reason"] for one in table.get(name, [])} for name, key in _TABLES.items()
    )
    return Explained(comments, survivors)


def _problems(table: dict[str, Any]) -> Iterator[str]:
    for name, entries in table.items():
        if name not in _TABLES or not isinstance(entries, list):
            yield f"{name}: {hint(name, [f'[[{one}]]' for one in _TABLES])}"
            continue
        key = _TABLES[name]
        seen: set[tuple[str, str]] = set()
        for number, entry in enumerate(entries, 1):
            yield from (f"[[{name}]] {number}: {problem}" for problem in _entry(entry, ("patch", key, "reason")))
            identity = (str(entry.get("patch")), str(entry.get(key)))
            if identity in seen:
                yield f"[[{name}]] {number}: said already"
            seen.add(identity)


def _entry(entry: dict[str, Any], keys: tuple[str, ...]) -> Iterator[str]:
    for key in entry.keys() - {*keys}:
        yield f"{key}: {hint(key, keys)}"
    for key in keys:
        if not isinstance(entry.get(key), str) or not entry[key].strip():
            yield f"it needs a {key}, as text"
