"""Every carried patch with all that the project knows of it: one truth for the changelog and for the page."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import NamedTuple

from patchline.changelog import news, proven, released
from patchline.changelog.marks import Counts, counts
from patchline.changelog.news import Fragment
from patchline.changelog.proven import GatePassed, Held, Tests
from patchline.errors import UsageError
from patchline.project import Project
from patchline.release.record import Record
from patchline.series import quilt
from patchline.series.carried import Carried, every
from patchline.series.lint import tests_of
from patchline.series.patch import Patch

SPELLED = {"vllm": "vLLM", "dynamo": "Dynamo"}
"""How upstreams write their names."""


class Entry(NamedTuple):
    """One carried patch."""

    pin: str
    """`vllm==0.31.0`."""
    number: int
    """Its place in the series, from 1."""
    patch: Patch
    why: str
    """Its message without subject and trailers."""
    news: str
    """What the changelog's readers were told when it was taken in; empty where they were not."""
    since: str
    """Day of that news, or else of the patch."""
    files: list[Counts]
    tests: list[str]
    """Paths of its test files."""
    proof: Tests | None
    held: Held | None
    gates: list[GatePassed]
    overlay: str
    """Digest of the series' overlay, as the tests' evidence has it; empty where there is none."""
    release: Record | None
    """The first one that has it."""

    @property
    def upstream(self) -> str:
        """`vllm`."""
        return self.pin.partition("==")[0]

    @property
    def version(self) -> str:
        """`0.31.0`."""
        return self.pin.partition("==")[2]

    @property
    def key(self) -> tuple[str, str]:
        """Upstream and bare name."""
        return self.upstream, quilt.bare(self.patch.name)

    @property
    def path(self) -> str:
        """Of the patch file, from the project's root."""
        return f"patches/{self.upstream}/{self.version}/{self.patch.name}"

    @property
    def added(self) -> int:
        """Lines."""
        return sum(one.added for one in self.files)

    @property
    def removed(self) -> int:
        """Lines."""
        return sum(one.removed for one in self.files)

    def trailer(self, key: str) -> list[str]:
        """The values of a trailer, by its lower-case name; empty where the patch has none."""
        return self.patch.header.trailers.get(key, [])


class Known(NamedTuple):
    """All that the changelog is made of."""

    entries: list[Entry]
    """In the order of the pins and of their series."""
    news: list[Fragment]
    """Newest first."""
    releases: list[Record]
    """Oldest first."""


def known(project: Project) -> Known:
    """Reads patches, evidence, releases and news of the project.

    Raises:
        UsageError: no series is carried, or series, news, pins or fleets are not as they have to be.
        BadPatch, SourceMismatch: a patch, evidence or a release record is damaged.
    """
    all_series = every(project)
    if not all_series:
        raise UsageError(
            "no series is carried", where=str(project.root / "patches"), next="python -m patchline new UPSTREAM"
        )
    told, records = news.read(project), released.releases(project)
    first = released.first_with(records)
    entries = [entry for one in all_series for entry in _of_series(one, told, first)]
    return Known(entries, told, records)


def _of_series(carried: Carried, told: list[Fragment], first: dict[tuple[str, str], Record]) -> list[Entry]:
    patches = quilt.patches(quilt.files(carried.series, own=True))
    tests = {patch.name: tests_of(patch) for patch in patches}
    shown = proven.known(carried, patches, tests)
    pin = f"{carried.upstream.name}=={carried.pin.version}"
    entries = []
    for number, patch in enumerate(patches, 1):
        key = (carried.upstream.name, quilt.bare(patch.name))
        taken = _taken(told, key)
        entries.append(
            Entry(
                pin=pin,
                number=number,
                patch=patch,
                why=_why(patch),
                news=taken.text if taken else "",
                since=taken.day if taken else _since(patch),
                files=counts(patch),
                tests=tests[patch.name],
                proof=shown.tests.get(patch.name),
                held=shown.held.get(patch.name),
                gates=shown.gates,
                overlay=shown.overlay,
                release=_first(first, [key, *_earlier(told, key)]),
            )
        )
    return entries


def _taken(told: list[Fragment], key: tuple[str, str]) -> Fragment | None:
    """The news that a patch was taken in; of several (it was dropped between them) the newest."""
    return next((one for one in told if one.kind == "carried" and key in [patch.key for patch in one.patches]), None)


def _earlier(told: list[Fragment], key: tuple[str, str]) -> list[tuple[str, str]]:
    """What a patch was called before it was renamed."""
    return [was.key for one in told if key in [patch.key for patch in one.patches] for was in one.was]


def _first(first: dict[tuple[str, str], Record], keys: list[tuple[str, str]]) -> Record | None:
    return min((first[key] for key in keys if key in first), key=lambda one: (one.made, one.tag), default=None)


def _why(patch: Patch) -> str:
    """The message without its trailers, which are told in words."""
    body = patch.header.body.strip()
    head, _, last = body.rpartition("\n\n")
    return head.strip() if patch.header._replace(body=last, fields=()).trailers else body


def _since(patch: Patch) -> str:
    day = day_of(patch)
    return day.isoformat() if day else ""


def day_of(patch: Patch) -> date | None:
    """Of the patch's mail, in UTC; None where it has none."""
    seconds = patch.header.seconds
    return datetime.fromtimestamp(seconds, UTC).date() if seconds is not None else None


def spelled(pin: str) -> str:
    """A pin in words: `vLLM 0.31.0`."""
    name, _, version = pin.partition("==")
    return f"{SPELLED.get(name, name)} {version}".strip()
