"""What the changelog tells of a nightly that became a release."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import NamedTuple

from patchline.changelog import generate, news, released
from patchline.changelog.entries import spelled
from patchline.changelog.words import listed, number, short, tagged
from patchline.project import Project
from patchline.release.record import Record
from patchline.series.quilt import bare

KIND = "image"


def tell(project: Project, tag: str) -> str:
    """Writes the news of a release that has its record; its path from the project's root, empty where it was told.

    Raises:
        UsageError: a fragment is not understood.
        SourceMismatch: a release record is damaged or was edited.
    """
    if any(one.release == tag for one in news.read(project)):
        return ""
    records = released.releases(project)
    one = next(found for found in records if found.tag == tag)
    day = date.fromisoformat(one.made[:10])
    path = news.write(project, KIND, tag, text(one, _before(one, records)), fields={"Release": tag}, day=day)
    generate.anew(project)
    return path.relative_to(project.root).as_posix()


def text(one: Record, before: Record | None) -> str:
    """The news, in Markdown: whole sentences; `before` is the line's last release."""
    return f"{tagged(one)} {_differs(one, before)}" if before else tagged(one)


def _before(one: Record, records: list[Record]) -> Record | None:
    older = [found for found in records if found.line == one.line and found.nightly and found.tag != one.tag]
    return next((found for found in reversed(older) if found.made <= one.made), None)


def _differs(one: Record, before: Record) -> str:
    now, then = _patches(one), _patches(before)
    both = [key for key in now if key in then]
    found = {
        "new": [f"`{name}` on {spelled(now[upstream, name].pin)}" for upstream, name in now.keys() - then.keys()],
        "gone": [f"`{name}` on {spelled(then[upstream, name].pin)}" for upstream, name in then.keys() - now.keys()],
        "rebased": [f"`{key[1]}` to {spelled(now[key].pin)}" for key in both if now[key].pin != then[key].pin],
        "changed": [f"`{key[1]}`" for key in both if now[key].pin == then[key].pin and now[key] != then[key]],
    }
    parts = [f"{word} {listed(sorted(names))}" for word, names in found.items() if names]
    if kept := sum(now[key] == then[key] for key in both):
        parts.append(f"{number(kept, 'patch', 'patches')} as before")
    return f"Since `{before.tag}`: {'; '.join([*_beside(one, before), *parts])}."


def _beside(one: Record, before: Record) -> Iterator[str]:
    """What differs beside the patches."""
    if one.dynamo != before.dynamo:
        yield f"Dynamo {one.dynamo} and no longer {before.dynamo}"
    if one.base.digest != before.base.digest:
        yield f"another base, `{short(one.base.digest)}` and no longer `{short(before.base.digest)}`"


class _Patch(NamedTuple):
    pin: str
    file: str
    """sha256."""


def _patches(one: Record) -> dict[tuple[str, str], _Patch]:
    """By upstream and bare name, which stay when a patch is rebased."""
    return {
        (series.pin.partition("==")[0], bare(patch.name)): _Patch(series.pin, patch.file)
        for series in one.series
        for patch in series.patches
    }
