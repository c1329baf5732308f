"""What the changelog tells of patches that a series has now: taken in, or brought there from another version."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from datetime import date

from patchline.changelog import generate, news, untold
from patchline.changelog.entries import day_of, spelled
from patchline.changelog.news import Fragment
from patchline.changelog.words import listed
from patchline.rebase.course import Progress
from patchline.rebase.words import Verdict
from patchline.series import quilt
from patchline.series.carried import Carried
from patchline.series.patch import Patch


def tell(series: Carried, names: Collection[str], text: str = "", *, older: Collection[str] = ()) -> list[str]:
    """Writes news of those of the patches `names` that no news names on this version; paths from the project's root.

    A patch that was carried on another version is `rebased`, any other one, or one that was dropped, `carried`.
    `text` is what readers are told; without it that is the subject. One of the `older`, whose news a run before this
    did not write, was taken in on its own day.

    Raises:
        UsageError: a fragment or the series is not understood.
    """
    told, paths = news.read(series.project), []
    for patch in _untold(series, told):
        if patch.name in names:
            bare = quilt.bare(patch.name)
            kind = _kind(series, told, bare)
            said = text or words(series, patch)
            name = bare if kind == "carried" else f"{bare} {series.name}"
            first = not any(named.key == (series.upstream.name, bare) for one in told for named in one.patches)
            day = day_of(patch) if first and patch.name in older else None
            paths.append(_write(series, kind, name, said, [patch], day))
    return _done(series, paths)


def tell_rebased(done: Progress) -> list[str]:
    """Writes the news of a rebased series that stands in `patches/`, where none names its patches on that version.

    Raises:
        UsageError: a fragment or the series is not understood.
    """
    new = done.new
    if not done.folder or done.folder.absolute() != new.folder.absolute():
        return []
    fresh = _untold(new, news.read(new.project))
    return _done(new, [_write(new, "rebased", new.name, _rebased(done, fresh), fresh)] if fresh else [])


def _untold(series: Carried, told: Sequence[Fragment]) -> list[Patch]:
    """The patches of a series that no news names as carried on its version, in their order."""
    fresh = untold.names(series, told)
    patches = quilt.patches(quilt.files(series.series, own=True)) if fresh else []
    return [patch for patch in patches if patch.name in fresh]


def _kind(series: Carried, told: Sequence[Fragment], bare: str) -> str:
    said = {one.kind for one in told for patch in one.patches if patch.key == (series.upstream.name, bare)}
    others = [path for path in series.folder.parent.glob("*/*.patch") if path.parent != series.folder]
    elsewhere = any(quilt.bare(path.name) == bare for path in others)
    return "rebased" if "carried" in said and (elsewhere or "dropped" not in said) else "carried"


def words(series: Carried, patch: Patch) -> str:
    """What readers are told of a patch where nobody says more."""
    return f"`{quilt.bare(patch.name)}` is carried on {spelled(series.name)}: {_subject(patch)}."


def _subject(patch: Patch) -> str:
    """Without its tags in brackets, as a sentence has it."""
    subject = patch.header.subject
    return (re.sub(r"^(\[[^\]]*\]\s*)+", "", subject) or subject).strip().rstrip(".")


def _rebased(done: Progress, fresh: Sequence[Patch]) -> str:
    """From where to where, and what each patch was there."""
    verdicts = {one.name: one.verdict for one in done.judged}
    said = {Verdict.APPLIES: " (as it is)", Verdict.MOVED: " (moved)", Verdict.CONFLICTS: " (by hand)"}
    names = [
        f"`{quilt.bare(patch.name)}`{said.get(verdicts[patch.name], '') if patch.name in verdicts else ''}"
        for patch in fresh
    ]
    text = f"Rebased from {spelled(done.old.name)} to {spelled(done.new.name)}: {listed(names)}."
    there = {quilt.bare(item.name) for item in quilt.items(done.new.series)}
    gone = [item.name for item in quilt.items(done.old.series) if quilt.bare(item.name) not in there]
    left = [f"`{quilt.bare(name)}`{f' ({verdicts[name].value})' if name in verdicts else ''}" for name in gone]
    return f"{text} Not carried there: {listed(left)}." if left else text


def _write(series: Carried, kind: str, name: str, text: str, patches: Sequence[Patch], day: date | None = None) -> str:
    paths = [f"{series.upstream.name}/{series.pin.version}/{patch.name}" for patch in patches]
    written = news.write(series.project, kind, name, text, fields={"Patch": paths}, day=day, again=True)
    return written.relative_to(series.project.root).as_posix()


def _done(series: Carried, paths: list[str]) -> list[str]:
    if paths:
        generate.anew(series.project)
    return paths
