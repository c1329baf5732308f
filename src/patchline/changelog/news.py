"""News fragments: one file a change, `changelog/DAY-WHAT.KIND.md`.

The names are towncrier's (`WHAT.KIND.md`, `WHAT.KIND.NUMBER.md`), with the day in front of WHAT: the changelog is in
the order of days, and no clone's git history or clock has a say in it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import NamedTuple

from patchline.errors import UsageError
from patchline.files import write_whole
from patchline.image import tags
from patchline.nearest import hint
from patchline.project import Project
from patchline.series.mail import Header
from patchline.series.quilt import bare

KINDS = {
    "carried": ("Patch",),
    "rebased": ("Patch",),
    "dropped": ("Patch", "Upstream"),
    "image": (),
    "gate": (),
    "tooling": (),
}
"""Every kind, with the fields that it has to have."""

FIELDS = ("Patch", "Was", "Upstream", "Release")
"""Lines `KEY: VALUE` of a fragment's last paragraph. Patch: a file below `patches/`, which may be gone; Was: what the
one patch was called before it was renamed; Upstream: the version that made a patch unneeded, `NAME==VERSION`; Release:
the tag of a promoted image."""

_NAME = re.compile(r"(?P<day>\d{4}-\d\d-\d\d)-(?P<what>[a-z0-9]+(?:-[a-z0-9]+)*)\.(?P<kind>[a-z]+)(?:\.\d+)?\.md")
_FORM = "DAY-WHAT.KIND.md: 2026-11-29-per-region-heads.carried.md"
_PATCH = re.compile(r"(?P<upstream>[a-z0-9-]+)/(?P<version>[^/\s]+)/(?P<file>[^/\s]+)")
_CONFLICT = re.compile(r"^(<{7}|>{7}) ", re.MULTILINE)
_PIN = re.compile(r"[a-z0-9-]+==\S+")


class Named(NamedTuple):
    """A patch, as a fragment names it."""

    upstream: str
    version: str
    file: str

    @property
    def key(self) -> tuple[str, str]:
        """Upstream and bare name: they stay when a patch is rebased or gets another number."""
        return self.upstream, bare(self.file)


class Fragment(NamedTuple):
    """One change, as a reader of the changelog is told of it."""

    path: Path
    day: str
    """`YYYY-MM-DD`."""
    what: str
    kind: str
    text: str
    """Markdown, without the fields."""
    patches: tuple[Named, ...]
    upstream: str
    """`NAME==VERSION`; empty where it names none."""
    release: str
    """A tag; empty where it names none."""
    was: tuple[Named, ...] = ()
    """Earlier names of its one patch."""


def folder(project: Project) -> Path:
    """Where the fragments lie."""
    return project.root / "changelog"


def read(project: Project) -> list[Fragment]:
    """All fragments, newest first; of one day in the order of their names.

    Raises:
        UsageError: fragments that are not as they have to be; all of them are in the message.
    """
    found: list[Fragment] = []
    faults: list[str] = []
    for path in sorted(folder(project).glob("*.md")):
        if path.name == "README.md":
            continue
        try:
            found.append(_fragment(path.name, path.read_bytes().decode(), path))
        except (UsageError, UnicodeDecodeError) as bad:
            faults.append(f"  {path.name}: {bad.what if isinstance(bad, UsageError) else 'not UTF-8'}")
    if faults:
        raise UsageError(
            "these news fragments are not understood:\n" + "\n".join(faults),
            where=str(folder(project)),
            next="see changelog/README.md",
        )
    return sorted(found, key=lambda one: one.day, reverse=True)


def is_fragment(name: str) -> bool:
    """Whether a file in `changelog/` of that name is one."""
    return bool(_NAME.fullmatch(name))


def write(
    project: Project,
    kind: str,
    name: str,
    text: str,
    *,
    fields: Mapping[str, str | Sequence[str]] | None = None,
    day: date | None = None,
    again: bool = False,
) -> Path:
    """Writes a fragment of today (in UTC), or of another `day`; one of that name that says the same stays alone.

    With `again` it does not: what happened a second time is told a second time.

    `name` says what changed; `fields` are added at the end, a line for each value. Two of one day, kind
    and name are numbered.

    Raises:
        UsageError: an unknown kind, a field that is missing or not of its form, no text.
    """
    said = {key: [value] if isinstance(value, str) else value for key, value in (fields or {}).items()}
    lines = [f"{key}: {value}" for key, values in said.items() for value in values]
    whole = "\n\n".join([text.strip(), "\n".join(lines)]).rstrip() + "\n"
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    stem = f"{day.isoformat() if day else time.strftime('%Y-%m-%d', time.gmtime())}-{slug}.{kind}"
    made = _fragment(f"{stem}.md", whole, folder(project) / f"{stem}.md")
    for path in sorted(folder(project).glob(f"????-??-??-{slug}.{kind}*.md")):
        if not again and path.read_bytes() == whole.encode():
            return path
    number, path = 0, made.path
    while path.exists():
        number += 1
        path = folder(project) / f"{stem}.{number}.md"
    write_whole(path, whole.encode())
    return path


def _fragment(name: str, whole: str, path: Path) -> Fragment:
    match = _NAME.fullmatch(name)
    if not match:
        raise UsageError(f"its name is not of the form {_FORM}")
    day, kind = match["day"], match["kind"]
    if kind not in KINDS:
        raise UsageError(f"there is no kind {kind!r}: {hint(kind, KINDS)}")
    if not _is_day(day):
        raise UsageError(f"there is no day {day}")
    if _CONFLICT.search(whole):
        raise UsageError("it has the marks of a merge's conflict")
    text, fields = _split(whole)
    if faults := list(_faults(kind, text, fields)):
        raise UsageError("; ".join(faults))
    named, was = (tuple(Named(*value.split("/")) for value in fields.get(key, [])) for key in ("patch", "was"))
    upstream, release = ("".join(fields.get(key, [])) for key in ("upstream", "release"))
    return Fragment(path, day, match["what"], kind, text, named, upstream, release, was)


def _is_day(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _split(whole: str) -> tuple[str, dict[str, list[str]]]:
    """The text, and the fields of the last paragraph, by lower-case name; prose with a colon is no field."""
    whole = whole.replace("\r\n", "\n").strip()
    fields = Header(body=whole).trailers
    if not fields.keys() & {key.lower() for key in FIELDS}:
        return whole, {}
    return whole.rpartition("\n\n")[0].strip(), fields


def _faults(kind: str, text: str, fields: Mapping[str, list[str]]) -> Iterator[str]:
    known = {key.lower(): key for key in FIELDS}
    if not text:
        yield "it has no text"
    yield from (f"there is no field {key!r}: {hint(key, known)}" for key in fields if key not in known)
    yield from (f"a {kind} fragment has a field {key}:" for key in KINDS[kind] if key.lower() not in fields)
    yield from (
        f"{key}: {value!r} is not UPSTREAM/VERSION/FILE"
        for key in ("Patch", "Was")
        for value in fields.get(key.lower(), [])
        if not _PATCH.fullmatch(value)
    )
    if "was" in fields and len(fields.get("patch", [])) != 1:
        yield "Was: goes with one field Patch:"
    upstream = fields.get("upstream", [])
    yield from (f"Upstream: {value!r} is not NAME==VERSION" for value in upstream if not _PIN.fullmatch(value))
    releases = fields.get("release", [])
    yield from (f"Release: {value!r} is no tag of ours" for value in releases if not any(tags.ours([value])))
    yield from (f"{key}: is there twice" for key in ("Upstream", "Release") if len(fields.get(key.lower(), [])) > 1)
