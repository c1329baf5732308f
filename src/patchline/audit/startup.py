"""Code that each start of Python runs before any package is looked for: lines of `.pth` files, and `sitecustomize`."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence

from patchline.audit.finding import Finding
from patchline.audit.view import View
from patchline.audit.wanted import Installed
from patchline.image import record

_CUSTOM = re.compile(r"(?:site|user)customize(?:/__init__)?(?:\.[^/]+)?\.(?:py|pyc|so)")
_VIRTUALENV = ("_virtualenv.pth", "import _virtualenv")
"""What virtualenv and uv put into each environment, and list nowhere."""


def findings(
    view: View, place: Installed, sites: Sequence[str], folders: Sequence[str], *, listed: bool
) -> Iterator[Finding]:
    """What runs at each start: by the `.pth` files of the folders `sites`, and by its name in all `folders`.

    With `listed` some RECORD has to list those `.pth` files of the package's own place that run code.
    """
    for site in sites:
        known = _listed(view, site) if listed and site == place.site else None  # Debian's own packages have no RECORD
        yield from _run_by_pth(view, place, site, known)
    for folder in folders:
        for path in view.below(folder):
            if _CUSTOM.fullmatch(path.removeprefix(f"{folder}/" if folder else "")) and view.at(path) is not None:
                yield Finding("shadowed", path, "each start of Python runs it", found=view.files[path].digest)


def rows(view: View, site: str) -> Iterator[tuple[str, str]]:
    """The `.pth` files of a folder, by line."""
    for path in _files(view, site):
        for row in view.read(path).decode("utf-8-sig", errors="replace").splitlines():
            if row.strip():
                yield path, row.strip()


def runs(row: str) -> bool:
    """Whether Python runs such a line; it takes any other one for a folder's name."""
    return row.startswith(("import ", "import\t"))


def _files(view: View, site: str) -> list[str]:
    return sorted(path for path in view.files if path.endswith(".pth") and posixpath.dirname(path) == site)


def _run_by_pth(view: View, place: Installed, site: str, listed: set[str] | None) -> Iterator[Finding]:
    """Lines that run code: of files that nothing lists; others if they speak of the package, or of `sys.path`."""
    for path in _files(view, site):
        if view.files[path].kind == "symlink":
            what = (
                f"a symbolic link to {view.links.get(path, '?')}: Python reads it at each start, and this audit did not"
            )
            yield Finding("shadowed", path, what)
    speaks = re.compile(rf"\b{re.escape(place.top)}\b|sys\.path|meta_path")
    for path, row in rows(view, site):
        strange = listed is not None and path not in listed and (posixpath.basename(path), row) != _VIRTUALENV
        if runs(row) and (strange or speaks.search(row)):
            alone = ", and no RECORD lists the file" if strange else ""
            what = f"each start of Python runs this line of it: {row[:120]}{alone}"
            yield Finding("shadowed", path, what, found=view.files[path].digest)


def _listed(view: View, site: str) -> set[str]:
    """The `.pth` files that any RECORD of the folder lists."""
    found = set[str]()
    for path in view.below(site):
        if path.endswith(".dist-info/RECORD") and b".pth" in (data := view.read(path)):
            found |= {posixpath.normpath(posixpath.join(site, row)) for row in record.rows(data, path)}
    return found
