"""`builds/upstreams.toml`: read at the door, written whole."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from patchline import files
from patchline.errors import UsageError
from patchline.nearest import hint
from patchline.pins import checks
from patchline.pins.model import ArchivePin, GitPin, Pin, PinFile, Upstream

_HEADER = """\
# The pinned upstreams: every source byte that is used is checked against a hash in this file.
# Written by `nox -s pin -- NAME==VERSION`; do not edit by hand.
"""
_TYPES: dict[str, type[ArchivePin | GitPin]] = {"sdist": ArchivePin, "wheel": ArchivePin, "git": GitPin}


def load(path: Path) -> dict[str, Upstream]:
    """The upstreams of the pins file, in its order.

    Raises:
        UsageError: the file is not there or not as it must be; every problem is named.
    """
    try:
        return _parse(path.read_bytes(), path)
    except FileNotFoundError as missing:
        raise UsageError(
            "the pins file is not there", where=str(path), next="nox -s pin -- NAME==VERSION --init"
        ) from missing


def write(path: Path, upstreams: Mapping[str, Upstream]) -> None:
    """Writes the pins file; equal upstreams always give equal bytes.

    Raises:
        UsageError: `load` would refuse what was to be written; nothing was written.
    """
    data = "\n".join([_HEADER, *map(_upstream_lines, upstreams.values())]).encode()
    _parse(data, path)
    files.write_whole(path, data)


def _parse(data: bytes, path: Path) -> dict[str, Upstream]:
    try:
        table = tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as wrong:
        raise UsageError(
            f"the pins file is not TOML: {wrong}", where=str(path), next="git checkout -- the file, then pin"
        ) from wrong
    problems: list[str] = list(_unknown(table, ("upstream",), "the file"))
    entries = table.get("upstream")
    if not isinstance(entries, dict) or not entries:
        problems.append("it names no upstream: a table [upstream.NAME] is wanted")
        entries = {}
    upstreams = {name: _upstream(name, entry, problems) for name, entry in entries.items()}
    if problems:
        raise UsageError(
            "\n".join(["the pins file is wrong:", *(f"  - {problem}" for problem in problems)]),
            where=str(path),
            next="restore the file (git checkout), then nox -s pin -- NAME==VERSION",
        )
    return upstreams


def _upstream(name: str, entry: Any, problems: list[str]) -> Upstream:
    where = f"upstream {name}"
    if not isinstance(entry, dict):
        problems.append(f"{where}: a table is wanted")
        entry = {"carried": "", "pins": []}
    carried, tables = entry.get("carried"), entry.get("pins")
    found = list(_unknown(entry, ("carried", "pins"), where))
    if not isinstance(carried, str):
        found.append(f'{where}: carried = "VERSION" is wanted')
    if not isinstance(tables, list) or not tables:
        found.append(f"{where}: it has no pins")
        tables = []
    pins = [_pin(table, f"{where}, pin {number}", found) for number, table in enumerate(tables, 1)]
    upstream = Upstream(name=name, carried=str(carried), pins=tuple(pin for pin in pins if pin))
    if isinstance(carried, str) and upstream.pins and None not in pins:
        found += [f"{where}: {problem}" for problem in checks.of_upstream(upstream)]
    problems += found
    return upstream


def _pin(table: Any, where: str, problems: list[str]) -> Pin | None:
    kind = table.get("kind") if isinstance(table, dict) else None
    if not isinstance(kind, str) or kind not in _TYPES:
        problems.append(f"{where}: kind {kind!r}: {hint(str(kind), ('sdist', 'wheel', 'git'))}")
        return None
    where = f"{where} ({table.get('distribution', kind)} {table.get('version', '?')})"
    unknown = list(_unknown(table, _TYPES[kind].__struct_fields__, where))
    listed = table.get("files")
    for file in listed if isinstance(listed, list) else []:
        unknown += _unknown(file, PinFile.__struct_fields__, f"{where}, files")
    problems += unknown
    if unknown:
        return None
    try:
        pin = msgspec.convert(table, _TYPES[kind])
    except msgspec.ValidationError as wrong:
        problems.append(f"{where}: {wrong}")
        return None
    problems += [f"{where}: {problem}" for problem in checks.of_pin(pin)]
    return pin


def _unknown(table: Any, legal: tuple[str, ...], where: str) -> Iterator[str]:
    keys = table if isinstance(table, dict) else ()
    yield from (f"{where}: unknown key '{key}': {hint(key, legal)}" for key in keys if key not in legal)


def _upstream_lines(upstream: Upstream) -> str:
    lines = [f"[upstream.{_key(upstream.name)}]", f"carried = {_text(upstream.carried)}", ""]
    for pin in upstream.pins:
        lines += [f"[[upstream.{_key(upstream.name)}.pins]]", *_pin_lines(pin), ""]
    return "\n".join(lines)


def _pin_lines(pin: Pin) -> Iterator[str]:
    for field in pin.__struct_fields__:
        if field != "files":
            yield f"{field} = {_text(getattr(pin, field))}"
    if isinstance(pin, ArchivePin):
        entries = (
            f"    {{ name = {_text(file.name)}, sha256 = {_text(file.sha256)}, size = {file.size} }},"
            for file in pin.files
        )
        yield "\n".join(["files = [", *entries, "]"])


def _key(name: str) -> str:
    return name if name.replace("-", "").replace("_", "").isalnum() and name.isascii() else _text(name)


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)
