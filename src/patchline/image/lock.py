"""Base locks: what is known of a base's packages once its layers were read, kept in the repository.

A lock is a folder: `lock.json`, and the RECORD files that an overlay corrects, at the paths that they have in the
image. With it a cut needs the base's manifest and configuration only.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from patchline.errors import Refused, SourceMismatch, UsageError
from patchline.files import folder_replaced
from patchline.image import digests
from patchline.image.contents import is_safe
from patchline.seal import sealed

if TYPE_CHECKING:
    from patchline.image.base import Base

SCHEMA = 1

_NAME = "lock.json"


class File(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A regular file of the base."""

    digest: str
    """Empty where the file was too long to be read."""
    size: int
    mode: int
    uid: int
    gid: int


class Folder(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Who owns a folder of the base, and its permission bits."""

    mode: int
    uid: int
    gid: int


class Contents(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `lock.json` says; paths are the image's, without a leading slash."""

    schema: int
    base: str
    """Digest of the base's manifest for the platform."""
    config: str
    """Digest of its configuration."""
    platform: str
    sites: dict[str, str]
    """The folder that each package is imported from."""
    records: dict[str, str]
    """Digests of the RECORD files beside the lock."""
    files: dict[str, File]
    """Every regular file below the packages, but for byte-code."""
    odd: list[str]
    """What else lies there: symbolic links and the like."""
    bytecode: list[str]
    folders: dict[str, Folder]
    """Those below the packages, and above everything that a layer of ours holds."""
    distributions: dict[str, str] = {}
    """Version by name (PEP 503's spelling) of every Python distribution of the base."""
    seal: str = ""
    """sha256 of all the rest: who edits a lock by hand is told so."""


class Lock(NamedTuple):
    """A base lock, with the bytes of the RECORD files."""

    contents: Contents
    records: dict[str, bytes]


def write(folder: Path, lock: Lock) -> None:
    """Writes a lock; it takes the place of the one in `folder`, whole.

    Raises:
        Refused: something else lies there.
    """
    if folder.exists() and not (folder / _NAME).is_file() and any(folder.iterdir()):
        raise Refused(f"{folder} holds no base lock; it was left as it is", next="give another folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder_replaced(folder) as part:
        for path, data in lock.records.items():
            (part / path).parent.mkdir(parents=True, exist_ok=True)
            (part / path).write_bytes(data)
        (part / _NAME).write_bytes(_text(sealed(lock.contents)))


def read(folder: Path) -> Lock:
    """The lock in `folder`.

    Raises:
        UsageError: there is none.
        SourceMismatch: it is damaged, was edited, or is of another schema.
    """
    path = folder / _NAME
    again = f"remove {folder} and make the base lock again"
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Contents)
        records = {name: (folder / name).read_bytes() for name in found.records if is_safe(name)}
    except FileNotFoundError as none:
        raise UsageError(f"there is no base lock here: {none.filename}", where=str(folder), next=again) from none
    except msgspec.MsgspecError as bad:
        raise SourceMismatch(f"this base lock is damaged: {bad}", where=str(path), next=again) from bad
    if found.schema != SCHEMA:
        raise SourceMismatch(f"this base lock is of schema {found.schema}, not {SCHEMA}", where=str(path), next=again)
    if sealed(found).seal != found.seal:
        raise SourceMismatch("this base lock was edited: its seal is of something else", where=str(path), next=again)
    for name, digest in found.records.items():
        if name not in records or digests.of(records[name]) != digest:
            raise SourceMismatch(f"{name} is not the one of this base lock", where=str(folder / name), next=again)
    return Lock(found, records)


def check_base(lock: Lock, base: Base) -> None:
    """A lock speaks of one base only.

    Raises:
        SourceMismatch: this is another one.
    """
    said = lock.contents
    if (said.base, said.config) != (base.digest, base.config.digest):
        raise SourceMismatch(
            f"this is not the base that was locked\n  locked: {said.base}\n  found:  {base.digest}",
            where=base.where,
            next="pin the base that was locked, or make the base lock again",
        )


def _text(contents: Contents) -> bytes:
    """JSON with a line for each file, so that a change of the base reads well."""
    parts = []
    for name, value in msgspec.to_builtins(contents).items():
        if isinstance(value, dict) and value:
            inner = ",\n".join(f"  {_json(key)}: {_json(value[key])}" for key in sorted(value))
            parts.append(f" {_json(name)}: {{\n{inner}\n }}")
        elif isinstance(value, list) and value:
            parts.append(f" {_json(name)}: [\n" + ",\n".join(f"  {_json(one)}" for one in value) + "\n ]")
        else:
            parts.append(f" {_json(name)}: {_json(value)}")
    return ("{\n" + ",\n".join(parts) + "\n}\n").encode()


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
