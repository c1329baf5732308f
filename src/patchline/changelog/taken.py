"""What the changelog tells of patches that a series has now: taken in, or brought there from another version."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from patchline.changelog import generate, news
from patchline.changelog.entries import spelled
from patchline.changelog.news import Fragment
from patchline.changelog.words import listed
from patchline.rebase.course import Progress
from patchline.rebase.words import Verdict
from patchline.series import quilt
from patchline.series.carried import Carried
from patchline.series.patch import Patch


def tell(series: Carried, names: Collection[str], text: str = "") -> list[str]:
    """Writes news of those of the patches `names` that no news names on this version; paths from the project's root.

    A patch that is carried on another version is `rebased`, any other one `carried`. `text` is what readers are told;
    without it that is the subject.

    Raises:
        UsageError: a fragment or the series is not understood.
    """
    told, paths = news.read(series.project), []
    carried = {patch.key for one in told if one.kind == "carried" for patch in one.patches}
    for patch in _untold(series, told):
        if patch.name in names:
            bare = quilt.bare(patch.name)
            kind = "rebased" if (series.upstream.name, bare) in carried else "carried"
            said = text or f"`{bare}` is carried on {spelled(series.name)}: {_subject(patch)}."
            paths.append(_write(series, kind, bare if kind == "carried" else f"{bare} {series.name}", said, [patch]))
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
    where = (series.upstream.name, series.pin.version)
    taken = {
        named.key
        for one in told
        if one.kind in ("carried", "rebased")
        for named in one.patches
        if (named.upstream, named.version) == where
    }
    patches = quilt.patches(quilt.files(series.series, own=True))
    return [patch for patch in patches if (where[0], quilt.bare(patch.name)) not in taken]


def _subject(patch: Patch) -> str:
    """Without its tags in brackets, as a sentence has it."""
    return patch.header.subject.rpartition("] ")[2].strip().rstrip(".")


def _rebased(done: Progress, fresh: Sequence[Patch]) -> str:
    """From where to where, and what each patch was there."""
    verdicts = {one.name: one.verdict for one in done.judged}
    words = {Verdict.APPLIES: " (as it is)", Verdict.MOVED: " (moved)", Verdict.CONFLICTS: " (by hand)"}
    names = [
        f"`{quilt.bare(patch.name)}`{words.get(verdicts[patch.name], '') if patch.name in verdicts else ''}"
        for patch in fresh
    ]
    text = f"Rebased from {spelled(done.old.name)} to {spelled(done.new.name)}: {listed(names)}."
    there = {quilt.bare(item.name) for item in quilt.items(done.new.series)}
    gone = [item.name for item in quilt.items(done.old.series) if quilt.bare(item.name) not in there]
    left = [f"`{quilt.bare(name)}`{f' ({verdicts[name].value})' if name in verdicts else ''}" for name in gone]
    return f"{text} Not carried there: {listed(left)}." if left else text


def _write(series: Carried, kind: str, name: str, text: str, patches: Sequence[Patch]) -> str:
    paths = [f"{series.upstream.name}/{series.pin.version}/{patch.name}" for patch in patches]
    written = news.write(series.project, kind, name, text, fields={"Patch": paths})
    return written.relative_to(series.project.root).as_posix()


def _done(series: Carried, paths: list[str]) -> list[str]:
    if paths:
        generate.anew(series.project)
    return paths
