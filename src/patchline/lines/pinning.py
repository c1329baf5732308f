"""Pins a line's base: what its tag means now, and the base lock of that."""

from __future__ import annotations

from patchline import files
from patchline.errors import Refused, UsageError
from patchline.image import lock, locking
from patchline.image.base import find
from patchline.image.opening import opened
from patchline.lines import carries, pinned
from patchline.lines.build import check_unchanged
from patchline.lines.line import Line, line
from patchline.lines.pinned import Pinned
from patchline.project import Project


def pin(project: Project, name: str) -> Pinned:
    """Asks the registry what the base's tag means, reads the base's layers once, and writes pin and base lock.

    The pin is written last: without it the lock counts for nothing.

    Raises:
        UsageError: the line's base is made here and has no pin, or the registry is not named.
        Refused: it is pinned already, and the tag means something else now.
        SourceMismatch, Unreachable: as `base.find` and `locking.make`.
    """
    wanted = line(project, name)
    named = wanted.base.named
    if named is None:
        raise UsageError(f"the base of {name} is made here, from packages: there is nothing to pin")
    with files.locked(project.root / "work" / f".{name}.lock", f"the base of {name}"):
        before = pinned.read(wanted)
        has = carries.of(project, wanted, named.name)
        with opened(str(named.reference())) as source:
            root = source.root()
            base = find(source, root.digest, named.platform)
            made = Pinned(named.name, root.digest, base.digest)
            _refuse_moved(wanted, before, made)
            held = locking.make(base, has.overlays)
            check_unchanged(held, has)
        lock.write(wanted.lock, held)
        pinned.write(wanted, made)
    return made


def _refuse_moved(wanted: Line, before: Pinned | None, now: Pinned) -> None:
    if before is not None and before != now:
        raise Refused(
            f"the base of {wanted.name} is pinned already, to something else"
            f"\n  pinned: {before.name} {before.digest}\n  now:    {now.name} {now.digest}",
            where=str(pinned.path(wanted)),
            next=f"see what moved it; to take it, remove {pinned.path(wanted)} and pin again",
        )
