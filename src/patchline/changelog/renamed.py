"""News of a patch that got another name: they go on under it, and keep the name that it had."""

from __future__ import annotations

from patchline.changelog import generate, news, taken
from patchline.changelog.news import Fragment, Named
from patchline.files import write_whole
from patchline.series import quilt
from patchline.series.carried import Carried
from patchline.series.export import Exported
from patchline.series.patch import Patch


def tell(series: Carried, done: Exported) -> list[str]:
    """Puts the new name into the news of every patch that an export renamed; their paths from the project's root.

    News that tell of several patches stay as they are.

    Raises:
        UsageError: a fragment is not understood.
    """
    pairs = [(old, new) for old, new in done.renamed if quilt.bare(new) != quilt.bare(old)]
    if not pairs:
        return []
    now = {patch.name: patch for patch in quilt.patches(quilt.files(series.series, own=True))}
    paths = [path for old, new in pairs for path in _renamed(series, old, now[new])]
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
