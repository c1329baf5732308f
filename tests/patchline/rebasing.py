"""Two versions of a small upstream in real git repositories, and a series on the older one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import carrying
from making import pin_of, sdist
from repos import commit, git, head, patch_of, repository, write

from patchline.download import cached
from patchline.pins import Upstream
from patchline.pins import load as load_pins
from patchline.pins import write as write_pins
from patchline.project import Project
from patchline.rebase.judge import Behaves, Judge, Rebased
from patchline.series.patch import Patch, parsed
from patchline.series.trees import CommitTree

Files = Mapping[str, bytes | str]


def patches_on(repo: Path, changes: Sequence[Files | None]) -> list[Patch]:
    """One patch a change, on top of one another; the repository goes back to where it was.

    A file of `changes` whose text is empty is removed.
    """
    was, made = head(repo), []
    for number, change in enumerate(changes, 1):
        for name, data in (change or {}).items():
            (repo / name).unlink() if data == "" else write(repo, {name: data})
        commit(repo, f"change {number}")
        name = f"{number:04d}-change.patch"
        made.append(parsed(patch_of(repo, "-M").encode("utf-8", "surrogateescape"), Path(name), name))
    git(repo, "reset", "-q", "--hard", was)
    return made


def judged(
    root: Path, old: Files, changes: Sequence[Files], new: Files, behaves: Behaves | None = None
) -> list[Rebased]:
    """What becomes of `changes`, a series on the version `old`, on the version `new`."""
    one, other = repository(root / "old", old), repository(root / "new", new)
    judge = Judge(CommitTree(one, head(one)), patches_on(one, changes), "demo==1.0")
    return judge.onto(CommitTree(other, head(other)), "demo==2.0", behaves)


def verdicts(done: Sequence[Rebased]) -> list[str]:
    """The verdicts, as people read them."""
    return [one.judged.verdict.value for one in done]


def result(done: Sequence[Rebased], path: str) -> str | None:
    """What the last patch that changes `path` leaves there; None where it is removed or untouched."""
    found = [one.changes[path] for one in done if path in one.changes]
    return found[-1].data.decode() if found and found[-1] else None


def two_versions(root: Path, new: Files, *changes: tuple[str, dict[str, str]]) -> Project:
    """A project that carries `changes` on the demo's version 1.0; its version 2.0, pinned too, is `new`."""
    made = carrying.project(root, *changes)
    add_version(made, "2.0", new)
    return made


def add_version(made: Project, version: str, new: Files) -> None:
    """Pins one more version of the demo, whose files are those of 1.0 with `new` in their places."""
    files = {
        **carrying.SOURCE,
        **{name: data.encode() if isinstance(data, str) else data for name, data in new.items()},
    }
    data = sdist({name: text for name, text in files.items() if text != b""}, f"demo-{version}")
    pin = pin_of(data, f"demo-{version}.tar.gz", version)
    file = cached(pin.files[0].name, pin.files[0].sha256)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    upstream = load_pins(made.upstreams)["demo"]
    write_pins(made.upstreams, {"demo": Upstream(name="demo", carried="1.0", pins=(*upstream.pins, pin))})
