"""What the page shows, as its template reads it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from patchline.changelog import entries as changelog
from patchline.changelog.entries import Entry, Known
from patchline.changelog.marks import Counts
from patchline.changelog.news import Fragment
from patchline.page.code import Code, codes
from patchline.page.given import UNKNOWN, VERDICTS, Verdict
from patchline.page.gone import Cell, Gone, drops, order, row, versions_of
from patchline.pins import Upstream
from patchline.project import Project
from patchline.series.quilt import bare


class Paragraph(NamedTuple):
    """A part of a message: `text`, or `lines` whose line ends count, or `code`."""

    form: str
    text: str


class View(NamedTuple):
    """One carried patch."""

    id: str
    entry: Entry
    paragraphs: list[Paragraph]
    trailers: list[tuple[str, list[str]]]
    codes: list[Code]
    cells: list[Cell]

    @property
    def tests(self) -> list[tuple[str, list[str]]]:
        """The names of its test files, by their folder."""
        split = [path.rpartition("/") for path in self.entry.tests]
        return [(folder, [one[2] for one in split if one[0] == folder]) for folder in sorted({one[0] for one in split})]

    @property
    def pairs(self) -> list[tuple[Code, Counts]]:
        """Every file's diff with its numbers."""
        return list(zip(self.codes, self.entry.files, strict=True))


class Column(NamedTuple):
    """One upstream: its carried patches over its versions."""

    name: str
    spelled: str
    carried: str
    versions: list[str]
    """Oldest first."""
    views: list[View]
    gone: list[Gone]
    """The patches that were dropped, the newest drop first."""

    @property
    def files(self) -> int:
        """How many files its patches change."""
        return len({one.path for view in self.views for one in view.entry.files})

    @property
    def added(self) -> int:
        """Lines."""
        return sum(view.entry.added for view in self.views)

    @property
    def removed(self) -> int:
        """Lines."""
        return sum(view.entry.removed for view in self.views)

    @property
    def since(self) -> str:
        """Day of its oldest patch."""
        return min(view.entry.since for view in self.views)


def columns(
    project: Project, known: Known, upstreams: Mapping[str, Upstream], verdicts: Sequence[Verdict]
) -> list[Column]:
    """Every upstream that patches are carried on, in the pins' order."""
    found = [
        _column(project, upstream, [one for one in known.entries if one.upstream == name], verdicts, known.news)
        for name, upstream in upstreams.items()
    ]
    return [column for column in found if column.views]


def _column(
    project: Project, upstream: Upstream, entries: list[Entry], verdicts: Sequence[Verdict], told: Sequence[Fragment]
) -> Column:
    ours = [drop for drop in drops(upstream.name, told) if drop[1].key not in {one.key for one in entries}]
    ported = [path.name for path in (project.root / "patches" / upstream.name).glob("*") if (path / "series").is_file()]
    judged = [one.version for one in verdicts if one.upstream == upstream.name]
    dropped = [version for drop in ours for version in versions_of(*drop)]
    versions = sorted({*(pin.version for pin in upstream.pins), *ported, *judged, *dropped}, key=order)
    said = {(one.version, one.patch): one for one in verdicts if one.upstream == upstream.name}
    views = [_view(entry, [_cell(project, entry, version, said) for version in versions]) for entry in entries]
    spelled, gone = (
        changelog.SPELLED.get(upstream.name, upstream.name),
        [row(*drop, versions, told) for drop in ours],
    )
    return Column(upstream.name, spelled, upstream.carried, versions, views, gone)


def _view(entry: Entry, cells: list[Cell]) -> View:
    named = re.sub(r"[^A-Za-z0-9]+", "-", bare(entry.patch.name)).strip("-")
    id = f"{entry.upstream}{entry.number}"
    trailers = [(key.title(), values) for key, values in entry.patch.header.trailers.items()]
    return View(f"{id}-{named}", entry, paragraphs(entry.why), trailers, codes(entry.patch, id), cells)


def _cell(project: Project, entry: Entry, version: str, said: Mapping[tuple[str, str], Verdict]) -> Cell:
    if version == entry.version or _ported(project, entry, version):
        return Cell(version, "carried", VERDICTS["carried"])
    one = said.get((version, entry.patch.name))
    word = one.verdict if one else UNKNOWN
    return Cell(version, word, (one.why if one else "") or VERDICTS[word])


def _ported(project: Project, entry: Entry, version: str) -> bool:
    """Whether the series of another version has a patch of that name."""
    folder = project.series_dir(entry.upstream, version)
    return any(bare(path.name) == entry.key[1] for path in folder.glob("*.patch"))


def paragraphs(message: str) -> list[Paragraph]:
    """A message in paragraphs; indented ones and diffs are code, lists keep their lines."""
    blocks = [block.strip("\n") for block in re.split(r"\n\s*\n", message.replace("\r\n", "\n")) if block.strip()]
    return [Paragraph(_form(block.split("\n")), block) for block in blocks]


def _form(lines: list[str]) -> str:
    if all(line.startswith((" ", "\t")) for line in lines) or lines[0].startswith(("diff ", "--- ", "@@ ")):
        return "code"
    return "lines" if any(re.match(r"\s*([-*]|\d+[.)])\s", line) for line in lines) else "text"
