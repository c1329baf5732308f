"""News of a patch that got another name: they go on under it, and keep the name that it had."""

from __future__ import annotations

from collections.abc import Mapping

from patchline.changelog import generate, news, taken
from patchline.changelog.news import Fragment, Named
from patchline.files import write_whole
from patchline.series import quilt
from patchline.series.carried import Carried
from patchline.series.export import Exported
from patchline.series.patch import Patch, changes_digest


def diffs(series: Carried) -> dict[str, str]:
    """A digest of what each patch of a series changes, by its file's name; none where there is no series yet."""
    if not series.series.is_file():
        return {}
    return {patch.name: changes_digest(patch) for patch in quilt.patches(quilt.files(series.series, own=True))}


def tell(series: Carried, before: Mapping[str, str], done: Exported) -> list[str]:
    """Puts the new name into the news of every patch that an export renamed; their paths from the project's root.

    A patch is renamed where one with another name and the same changes came in its place; `before` is `diffs` of the
    series as it was. News that tell of several patches stay as they are.

    Raises:
        UsageError: a fragment is not understood.
    """
    paths = []
    now = {patch.name: patch for patch in quilt.patches(quilt.files(series.series, own=True))}
    for old in done.removed:
        new = next((now[name] for name in done.written if before.get(old) == changes_digest(now[name])), None)
        if new and quilt.bare(new.name) != quilt.bare(old):
            paths += _renamed(series, old, new)
    if paths:
        generate.anew(series.project)
    return paths


def _renamed(series: Carried, old: str, new: Patch) -> list[str]:
    was = Named(series.upstream.name, series.pin.version, old)
    told = [one for one in news.read(series.project) if one.kind == "carried" and len(one.patches) == 1]
    one = next((one for one in told if (one.patches[0].key, one.patches[0].version) == (was.key, was.version)), None)
    if not one:
        return []
    write_whole(one.path, _text(series, one, was, new).encode())
    return [one.path.relative_to(series.project.root).as_posix()]


def _text(series: Carried, one: Fragment, was: Named, new: Patch) -> str:
    ours = one.text.startswith(f"`{quilt.bare(was.file)}` is carried on ")
    names = [one.patches[0], *one.was]
    fields = [f"Patch: {was.upstream}/{was.version}/{new.name}", *(f"Was: {'/'.join(name)}" for name in names)]
    return "\n\n".join([taken.words(series, new) if ours else one.text, "\n".join(fields)]) + "\n"
