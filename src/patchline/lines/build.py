"""From a line to its image: pins, series, overlays, base and base lock, and one layer more."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from patchline.errors import SourceMismatch, UsageError
from patchline.image import append, lock
from patchline.image.append import Image
from patchline.image.base import Base, find
from patchline.image.identity import Identity
from patchline.image.lock import Lock
from patchline.image.opening import opened
from patchline.lines import carries, pinned
from patchline.lines.carries import Carries
from patchline.lines.line import Line, line
from patchline.overlay import Overlay
from patchline.progress import say
from patchline.project import Project, cache_dir
from patchline.series.carried import Carried


class Built(NamedTuple):
    """A line's image, and all that it was made from."""

    line: Line
    image: Image
    overlays: tuple[Overlay, ...]
    """One for each carried series."""
    carried: tuple[Carried, ...]
    who: Identity
    lock: Lock


@contextmanager
def building(project: Project, name: str, *, moved: bool = False) -> Iterator[Built]:
    """The image of the line `name`; its base stays open for as long as the block runs, and may be asked for layers.

    A base that is made here is made and locked first, where it is not in the cache (minutes). With `moved` the tag of
    a pinned base may mean another image by now: the pinned one is taken by its digest.

    Raises:
        UsageError: there is no such line, its base is not pinned, or it names what is not there.
        SourceMismatch: the base is another one than was pinned, or holds other bytes than the pins.
        DoesNotApply, Refused, Unreachable: as `overlay.overlay`, `base.find` and `append.cut`.
    """
    wanted = line(project, name)
    with _base(project, wanted, moved=moved) as (base, held, has):
        who = has.who
        image = append.cut(base, held, has.overlays, who)
        yield Built(wanted, image, has.overlays, has.carried, who, held)


@contextmanager
def _base(project: Project, wanted: Line, *, moved: bool) -> Iterator[tuple[Base, Lock, Carries]]:
    named = wanted.base.named
    if named is not None:
        at = pinned.needed(wanted, named.name)
        has = carries.of(project, wanted, named.name)
        tagged = named.reference()
        with opened(str(tagged._replace(tag="", digest=at.digest) if moved else tagged)) as source:
            yield _held(find(source, at.digest, named.platform), lock.read(wanted.lock), has)
        return
    from patchline.lines.rootfs import base as rootfs

    has = carries.of(project, wanted, f"made/{wanted.name}")
    with opened(rootfs.base(wanted, requirements(has.who, has.carried))) as source:
        base = find(source)
        yield _held(base, _made_lock(base, has.overlays), has)


def _held(base: Base, held: Lock, has: Carries) -> tuple[Base, Lock, Carries]:
    lock.check_base(held, base)
    check_unchanged(held, has)
    return base, held, has


def check_unchanged(held: Lock, has: Carries) -> None:
    """What is pinned without a series has to be in the base, in that version.

    Raises:
        SourceMismatch: it is not.
    """
    there = held.contents.distributions
    wrong = [
        f"{name} {version} is pinned, and the base has {there.get(name, 'none')}"
        for name, version in has.unchanged.items()
        if there.get(name, "").partition("+")[0] != version
    ]
    if wrong:
        raise SourceMismatch("this base is not what the line pins\n" + "\n".join(f"  {one}" for one in wrong))


def requirements(who: Identity, series: Sequence[Carried]) -> tuple[str, ...]:
    """The Python packages of a base that is made here, as `env.environment` takes them.

    Raises:
        UsageError: the line has no vLLM.
    """
    from patchline.proofs import env

    versions = [one.pin.version for one in series if one.upstream.name == "vllm"]
    if not versions:
        raise UsageError(f"the line {who.line} carries no series on vllm: nothing says which vLLM its base has")
    return env.for_dynamo(who.version, versions[0])


def _made_lock(base: Base, overlays: tuple[Overlay, ...]) -> Lock:
    """The lock of a base that was made here: its digest changes with Debian's packages, so the cache keeps it."""
    from patchline.image import locking  # reads layers, which a cut on a pinned base does not

    tops = locking.tops_of(overlays)
    key = hashlib.sha256(" ".join((str(lock.SCHEMA), base.digest, *tops)).encode()).hexdigest()[:32]
    folder: Path = cache_dir() / "base-locks" / key
    if not (folder / "lock.json").is_file():
        say(f"reading the base {base.digest[:19]} once, for its lock")
        lock.write(folder, locking.make(base, overlays))
    return lock.read(folder)
