"""Which packages a run has to import: a namespace, such as Dynamo's, says nothing about where its files come from."""

from __future__ import annotations

from pathlib import Path

from repos import write

from patchline.overlay import Change, Overlay
from patchline.proofs.tree import packages, tops
from patchline.series.trees import Entry


def test_the_outermost_packages_around_what_an_overlay_changes(tmp_path: Path) -> None:
    inits = ("demo/__init__.py", "demo/deep/__init__.py", "space/part/__init__.py", "space/part/deep/__init__.py")
    write(tmp_path, dict.fromkeys(inits, ""))
    paths = ("demo/deep/a.py", "demo/b.py", "space/part/deep/c.py", "space/part/d.py", "space/loose.py")
    new = Entry(0o100644, b"")
    made = Overlay("demo==1", "b", "h", tuple(Change(path, None, new) for path in paths), ())
    assert tops(made) == ["demo", "space"]
    assert packages(made, tmp_path) == ("demo", "space.part")
