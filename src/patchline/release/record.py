"""Release records: what one release is, and everything that is needed to cut the same image again.

`changelog/releases/<tag>.json`, JSON with the fields of `Record`. Under a seal, as evidence is; written once.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from patchline.errors import SourceMismatch
from patchline.seal import sealed

SCHEMA = 1
"""Of the files; a record of another schema is not read as one."""


class Patch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One carried patch."""

    name: str
    """Of its file, in the series' folder."""
    id: str
    """Of the commit that it becomes on its pin."""
    file: str
    """sha256 of its file."""


class Series(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The patches carried on one pin, in their order."""

    pin: str
    """`vllm==0.31.0`, with the upstream's name."""
    package: str
    """The pinned distribution, a key of the record's `pins`: `ai-dynamo==1.6.0`."""
    overlay: str
    """Digest."""
    base: str
    """Commit of the pin."""
    head: str
    """Commit of the last patch."""
    patches: tuple[Patch, ...]


class Base(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the image is built on."""

    name: str
    """As the line names it, without a digest."""
    digest: str
    """Of its manifest for the platform, like `config`."""
    config: str
    platform: str
    lock: str
    """Seal of its base lock."""


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One release: a tag, and what it means."""

    schema: int
    """`SCHEMA`."""
    tag: str
    line: str
    dynamo: str
    """Dynamo's version."""
    repositories: tuple[str, ...]
    """Where it was published, as host and name."""
    image: str
    """Digest of the image's manifest."""
    config: str
    """Digest of its configuration."""
    layer: str
    """Digest of the one layer on the base's."""
    builder: str
    created: str
    """What the image says: ISO 8601 in UTC. It goes into the image's digest, like `revision`."""
    revision: str
    """Commit of the project that the image names; empty where it names none."""
    base: Base
    pins: dict[str, dict[str, str]]
    """sha256 by file of every pinned distribution (`vllm==0.31.0`); of a git pin the commit, by its url."""
    overlay: str
    """One digest of all overlays, as the image's label has it."""
    series: tuple[Series, ...]
    referrers: dict[str, str]
    """Digests of the manifests of what is attached to the image, by its media type."""
    evidence: dict[str, str]
    """Digest by path, from the project's root, of every file of evidence on these overlays or this image."""
    nightly: str
    """Of a promoted release the nightly that was tested; empty for a nightly."""
    patchline: str
    """Version of this tool."""
    project: str
    """Commit of the project that was checked out; empty where it is in no git repository."""
    made: str
    """When the record was made: ISO 8601 in UTC. For people, and for the order of a changelog."""
    seal: str = ""
    """sha256 of all the rest: who edits a record by hand is told so."""


class _Schema(msgspec.Struct):
    schema: int


def text(record: Record) -> bytes:
    """The record's file."""
    return msgspec.json.format(msgspec.json.encode(sealed(record)), indent=1) + b"\n"


def read(path: Path) -> Record:
    """The record in a file.

    Raises:
        FileNotFoundError: there is none.
        SourceMismatch: it is damaged, was edited, or is of another schema.
    """
    data, again = path.read_bytes(), f"git checkout -- {path.name}, in its folder"
    try:
        schema = msgspec.json.decode(data, type=_Schema).schema
        if schema != SCHEMA:
            raise SourceMismatch(f"this release record is of schema {schema}, not {SCHEMA}", where=str(path))
        found = msgspec.json.decode(data, type=Record)
    except msgspec.MsgspecError as bad:
        raise SourceMismatch(f"this release record is damaged: {bad}", where=str(path), next=again) from bad
    if sealed(found) != found:
        raise SourceMismatch(
            "this release record was edited: its seal is of something else", where=str(path), next=again
        )
    return found
