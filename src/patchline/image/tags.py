"""Tags of releases: `v<dynamo>-nightly-<YYYYMMDD>-<line>.<n>` and `v<dynamo>-<line>.<n>`.

Read strictly: what is written again is what was read. Ordered by Dynamo's version, nightlies before releases of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from packaging.version import InvalidVersion, Version

from patchline.errors import UsageError
from patchline.image.reference import is_tag

_LINE = re.compile(r"(?!nightly(?:-|$))[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
_TAG = re.compile(
    r"v(?P<dynamo>[0-9][0-9a-z.]*)-(?:nightly-(?P<date>[0-9]{8})-)?(?P<line>[a-z][a-z0-9-]*)\.(?P<number>[1-9][0-9]{0,5})"
)


class Tag(NamedTuple):
    """One release."""

    dynamo: str
    """Dynamo's version, as PEP 440 writes it."""
    date: str
    """`YYYYMMDD` of a nightly; empty for a release."""
    line: str
    number: int
    """From 1, within the day, or within Dynamo's version."""

    def __str__(self) -> str:
        return f"{self._head}{self.number}"

    @property
    def nightly(self) -> bool:
        """Whether it is one."""
        return bool(self.date)

    @property
    def key(self) -> tuple[Version, bool, str, str, int]:
        """What tags are ordered by."""
        return Version(self.dynamo), not self.nightly, self.date, self.line, self.number

    @property
    def _head(self) -> str:
        return f"v{self.dynamo}-{f'nightly-{self.date}-' if self.date else ''}{self.line}."


def parse(text: str) -> Tag:
    """The tag that `text` is.

    Raises:
        UsageError: it is none of ours.
    """
    found = _TAG.fullmatch(text)
    if found is None:
        raise _wrong(text, "it has another form")
    tag = Tag(found["dynamo"], found["date"] or "", found["line"], int(found["number"]))
    _check(tag, text)
    return tag


def first(dynamo: str, line: str, date: str = "") -> Tag:
    """The first tag of a line on a version of Dynamo, or of a nightly's day.

    Raises:
        UsageError: one of them cannot stand in a tag.
    """
    tag = Tag(dynamo, date, line, 1)
    _check(tag, str(tag))
    return tag


def next_free(wanted: Tag, known: Iterable[str]) -> Tag:
    """The tag like `wanted` with the number after the highest that `known` tags have; gaps stay: a tag there was one.

    Raises:
        UsageError: there are no numbers left.
    """
    mine = wanted._replace(number=0).key
    numbers = [tag.number for tag in ours(known) if tag._replace(number=0).key == mine]
    tag = wanted._replace(number=1 + max(numbers, default=0))
    _check(tag, str(tag))
    return tag


def ours(known: Iterable[str]) -> list[Tag]:
    """Those of `known` that are tags of ours, in their order; the others are other people's."""
    found = []
    for text in known:
        try:
            found.append(parse(text))
        except UsageError:
            continue
    return sorted(found, key=lambda tag: tag.key)


def _check(tag: Tag, text: str) -> None:
    try:
        if str(Version(tag.dynamo)) != tag.dynamo or "+" in tag.dynamo or "!" in tag.dynamo:
            raise _wrong(text, f"{tag.dynamo!r} is no version as it stands in a tag")
    except InvalidVersion as bad:
        raise _wrong(text, f"{tag.dynamo!r} is no version") from bad
    if not _LINE.fullmatch(tag.line):
        raise _wrong(text, f"{tag.line!r} is no name of a line")
    if tag.date and not _is_date(tag.date):
        raise _wrong(text, f"{tag.date!r} is no date")
    if not 0 < tag.number < 10**6 or not is_tag(text):
        raise _wrong(text, "registries would not take it")


def _is_date(text: str) -> bool:
    try:
        return datetime.strptime(text, "%Y%m%d").strftime("%Y%m%d") == text
    except ValueError:
        return False


def _wrong(text: str, why: str) -> UsageError:
    return UsageError(
        f"{text!r} is no tag of a release: {why}",
        next="v<dynamo>-nightly-<YYYYMMDD>-<line>.<n>, or v<dynamo>-<line>.<n>",
    )
