"""The release records of a project: complete ones in the changelog, and those of tags that are not set yet beside it.

A record is pending from before its tag is set until the tag stands; then it is renamed, unchanged. So a record in the
changelog never claims a tag that means another image, and whoever dies in between finds it when he runs again.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from patchline.errors import SourceMismatch, UsageError
from patchline.files import write_whole
from patchline.image import tags
from patchline.image.tags import Tag
from patchline.project import Project
from patchline.release import record
from patchline.release.record import Record
from patchline.seal import sealed


class Records(NamedTuple):
    """Where they lie."""

    folder: Path
    pending: Path
    """Not in version control."""

    def names(self) -> list[str]:
        """The tags that have a record; their files are not read."""
        return sorted(path.name.removesuffix(".json") for path in self.folder.glob("v*.json"))

    def get(self, tag: str) -> Record | None:
        """The record of a tag; None where there is none.

        Raises:
            SourceMismatch: it is damaged, was edited, or is another tag's.
        """
        path = self.path(tag)
        try:
            found = record.read(path)
        except FileNotFoundError:
            return None
        if found.tag != tag:
            raise SourceMismatch(f"this is the record of {found.tag}, under another name", where=str(path))
        return found

    def like(self, wanted: Tag) -> list[Record]:
        """The records of the same line, version of Dynamo and day, the lowest number first."""
        known = [tag for tag in tags.ours(self.names()) if tag._replace(number=1) == wanted._replace(number=1)]
        return [found for tag in known if (found := self.get(str(tag)))]

    def waiting(self, wanted: Tag, image: str) -> Record | None:
        """The pending record of an image for a tag like `wanted`; one that was cut short is none.

        Raises:
            SourceMismatch: it was edited.
        """
        for path in sorted(self.pending.glob(f"v*{_ending(image)}")):
            found = record.read(path)
            if tags.parse(found.tag)._replace(number=1) == wanted._replace(number=1) and found.image == image:
                return found
        return None

    def wait(self, one: Record) -> Record:
        """Writes a pending record, and gives it as it reads."""
        write_whole(self._waiting(one), record.text(one))
        return sealed(one)

    def drop(self, one: Record) -> None:
        """Removes a pending record: its tag went to another image."""
        self._waiting(one).unlink(missing_ok=True)

    def complete(self, one: Record) -> Path:
        """Makes a pending record one of the changelog; what is there already is left as it is, and nothing pends.

        Raises:
            SourceMismatch: the changelog says of this tag that it means another image.
        """
        path, waiting = self.path(one.tag), self._waiting(one)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(waiting, path)
        except (FileExistsError, FileNotFoundError):
            pass  # it was complete; looked at below
        except OSError:  # a file system without links, or another one
            write_whole(path, waiting.read_bytes())
        there = record.read(path)
        if (there.tag, there.image) != (one.tag, one.image):
            raise SourceMismatch(
                f"the record of {one.tag} is of another image\n  record: {there.image}\n  tag:    {one.image}",
                where=str(path),
            )
        waiting.unlink(missing_ok=True)
        return path

    def path(self, tag: str) -> Path:
        """Where the record of a tag lies.

        Raises:
            UsageError: it is no tag of ours.
        """
        return self.folder / f"{tags.parse(tag)}.json"

    def _waiting(self, one: Record) -> Path:
        return self.pending / f"{tags.parse(one.tag)}{_ending(one.image)}"


def of(project: Project) -> Records:
    """Those of a project."""
    return Records(project.root / "changelog" / "releases", project.root / "build" / "releases")


def find(records: Records, name: str) -> list[Record]:
    """The records of a tag, or of an image's digest: of a digest all of them, in the order of their tags.

    Raises:
        UsageError: there is none.
    """
    if name.startswith("sha256:"):
        known = [records.get(str(tag)) for tag in tags.ours(records.names())]
        found = [one for one in known if one and one.image == name]
    else:
        one = records.get(name)
        found = [one] if one else []
    if not found:
        raise UsageError(f"there is no release record of {name}", where=str(records.folder), next="nox -s publish")
    return found


def _ending(image: str) -> str:
    return f"-{image.removeprefix('sha256:')[:16]}.json"
