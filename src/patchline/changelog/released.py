"""Releases, as their records say: what the tags mean, and the first one that has a patch."""

from __future__ import annotations

from patchline.project import Project
from patchline.release import records
from patchline.release.record import Record
from patchline.series.quilt import bare


def releases(project: Project) -> list[Record]:
    """The records of a project, oldest first; none where there is no release yet.

    Raises:
        SourceMismatch: one is damaged, was edited, or is another tag's.
        UsageError: a file's name is no tag.
    """
    known = records.of(project)
    found = [one for name in known.names() if (one := known.get(name))]
    return sorted(found, key=lambda one: (one.made, one.tag))


def first_with(found: list[Record]) -> dict[tuple[str, str], Record]:
    """The first release that has each patch, by upstream and bare name; `found` are in order."""
    first: dict[tuple[str, str], Record] = {}
    for one in found:
        for series in one.series:
            upstream = series.pin.partition("==")[0]
            for patch in series.patches:
                first.setdefault((upstream, bare(patch.name)), one)
    return first
