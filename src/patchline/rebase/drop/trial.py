"""The project as it is to be, in a folder of its own: everything is tried there before the first real write."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from patchline.errors import Refused
from patchline.files import remove_empty_above
from patchline.pins import GitPin
from patchline.project import Project
from patchline.rebase.drop.journal import ROOMS
from patchline.rebase.drop.leaning import Rest
from patchline.series import lint
from patchline.series.carried import Carried, carried

_BEGINS = ".drop-"


@contextmanager
def trial(of: Carried) -> Iterator[Carried]:
    """The series of a copy of the project, for a while. Only for the holder of the drop's lock."""
    work = of.project.root / "work"
    work.mkdir(exist_ok=True)
    for left in work.glob(f"{_BEGINS}*"):
        shutil.rmtree(left)
    with tempfile.TemporaryDirectory(prefix=_BEGINS, dir=work) as folder:
        made = Project(Path(folder))
        for room in ROOMS:
            if (of.project.root / room).is_dir():
                ignored = shutil.ignore_patterns("__pycache__", ".part-*")
                shutil.copytree(of.project.root / room, made.root / room, symlinks=True, ignore=ignored)
        made.upstreams.parent.mkdir(exist_ok=True)
        shutil.copyfile(of.project.upstreams, made.upstreams)
        yield carried(of.name, made)


def without(of: Carried, rest: Rest, gone: str) -> None:
    """Takes the patch `gone` out of a trial's series; the series goes where nothing is left.

    Raises:
        Refused: nothing is left of the carried series, while other versions have one.
    """
    if not rest.files:
        _check_last(of, gone)
        shutil.rmtree(of.folder)
        remove_empty_above(of.folder, of.project.root / "patches")
        return
    (of.folder / gone).unlink()
    for name, raw in rest.files.items():
        (of.folder / name).write_bytes(raw)
    of.series.write_bytes(rest.series)


def _check_last(of: Carried, gone: str) -> None:
    others = sorted(path.parent.name for path in of.folder.parent.glob("*/series") if path != of.series)
    if of.pin.version == of.upstream.carried and others:
        raise Refused(
            f"{gone} is the last patch on {of.name}, the version that is carried, and there are series on "
            f"{', '.join(others)}; nothing was changed",
            where=str(of.series),
            next=f"drop it on those first: --in {others[-1]}",
        )


def seated(of: Carried, real: Carried) -> None:
    """Checks out a trial's pin. One of git is copied: it is fetched once, from wherever it was."""
    if isinstance(of.pin, GitPin):
        real.base()
        shutil.copytree(real.repo, of.repo, symlinks=True)
        of.apply(discard=True)


def check_lint(before: Project, after: Project) -> None:
    """Refuses what `lint` would find only afterwards.

    Raises:
        Refused: with all that is new.
    """
    if not any((after.root / "patches").glob("*/*")):
        return
    known = {one.what for one in lint.lint(before).findings}
    if new := [one for one in lint.lint(after).findings if one.what not in known]:
        raise Refused(
            "afterwards lint would find:\n" + "\n".join(f"  {one.where}: {one.what}" for one in new),
            next="python -m patchline lint",
        )
