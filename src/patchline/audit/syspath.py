"""Where else Python would look for a package: everything on `sys.path` of the image that bears its name.

No Python is run. The order is that of the interpreter: the working directory (`python -m` puts it first), PYTHONPATH,
the standard library, the user's site-packages, those of the installation or the virtual environment, and at each of
them what its `.pth` files add. A folder with `__init__` anywhere on the path takes the place of a namespace package;
for any other package only what comes before it counts.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from patchline.audit import startup
from patchline.audit.finding import Finding
from patchline.audit.view import View
from patchline.audit.wanted import Installed

_SITE = re.compile(r"(?:(?P<prefix>.+)/)?lib(?:64)?/python(?P<version>3(?:\.\d+)?)/(?:site|dist)-packages")
USER = re.compile(r"(?:root|home/[^/]+)/\.local/lib/python3\.\d+/site-packages")
"""The places of users' own packages, from the image's root."""


class Setting(NamedTuple):
    """What a configuration says of how programs start."""

    env: Mapping[str, str]
    workdir: str
    """From the image's root."""

    @property
    def path(self) -> list[str]:
        """What PYTHONPATH names, from the image's root."""
        parts = [one for one in self.env.get("PYTHONPATH", "").split(":") if one]
        return [posixpath.join("/", self.workdir, one).strip("/") for one in parts]


class Entry(NamedTuple):
    """One place that may be on `sys.path`."""

    folder: str
    why: str
    first: bool
    """Whether it comes before the place of the package."""
    interpreters: bool = False
    """Whether the interpreter's own modules lie there: a `sitecustomize` of a distribution's is nothing odd."""
    site: bool = False
    """Whether Python reads the `.pth` files there."""


def setting(fields: Mapping[str, object]) -> Setting:
    """Of the `config` of an image's configuration."""
    env, workdir = fields.get("Env"), fields.get("WorkingDir")
    pairs = [str(one).partition("=") for one in env] if isinstance(env, list) else []
    return Setting({name: value for name, _, value in pairs}, str(workdir or "/").strip("/"))


def findings(view: View, place: Installed, start: Setting | None) -> Iterator[Finding]:
    """Every other place of the package that Python would look at, and code that `.pth` files run for it."""
    if place.root in view.links:
        what = f"the package's folder is a symbolic link to {view.links[place.root]}"
        yield Finding("shadowed", place.root, what)
    namespace = not _is_regular(view, place.root)
    told, sites = {place.site}, [place.site]
    for entry in entries(view, place, start):
        folder = view.real(entry.folder)
        if folder is None:
            yield Finding("shadowed", entry.folder, f"{entry.why}: symbolic links without an end")
        elif folder not in told:
            if not entry.interpreters:
                told.add(folder)
            sites += [folder] if entry.site else []
            yield from _in(view, place, entry._replace(folder=folder), namespace)
    yield from startup.findings(view, place, sites, sorted(told), listed=start is not None)
    yield from _elsewhere(place, start.env) if start is not None else ()


def _elsewhere(place: Installed, env: Mapping[str, str]) -> Iterator[Finding]:
    """Settings that lead Python away from all that is compared."""
    if "PYTHONPYCACHEPREFIX" in env:
        what = f"{env['PYTHONPYCACHEPREFIX']}: byte-code lies outside of the packages, where nothing is compared"
        yield Finding("shadowed", "PYTHONPYCACHEPREFIX", what)
    home, found = env.get("PYTHONHOME", "").split(":")[0].strip("/"), _SITE.fullmatch(place.site)
    prefix = str(found["prefix"] or "") if found else home
    if home not in ("", prefix, prefix.removesuffix("/local")):  # Debian's Python looks below /usr/local as well
        what = f"/{home}: Python takes its site-packages from there, and not from /{place.site}"
        yield Finding("shadowed", "PYTHONHOME", what)


def entries(view: View, place: Installed, start: Setting | None) -> Iterator[Entry]:
    """The places, those before the package's own first."""
    found = _SITE.fullmatch(place.site)
    prefix, version = (str(found["prefix"] or ""), str(found["version"])) if found else ("", "")
    settings = _settings(view, prefix)
    if start is not None:
        yield Entry(start.workdir, "the working directory, which python -m puts first", True)
        yield from (Entry(folder, "PYTHONPATH", True) for folder in start.path)
    yield from _library(view, prefix, version, settings)
    alone = bool(settings) and settings.get("include-system-site-packages", "false").lower() != "true"
    if not alone and not (start and start.env.get("PYTHONNOUSERSITE")):
        for one in _users(view, version, start):
            yield Entry(one, "a user's site-packages", True, site=True)
            yield from _added(view, one, True)
    yield from _added(view, place.site, False)
    for other in _others(prefix, version, settings, alone):
        first = other.startswith("usr/local/")
        yield Entry(other, "site-packages of the same Python", first, site=True)
        yield from _added(view, other, first)


def _users(view: View, version: str, start: Setting | None) -> list[str]:
    """The places of users' own packages: those that are there, and those that the environment names."""
    env, found = start.env if start else {}, {user[0] for path in view.files if (user := USER.match(path))}
    for base in (env.get("PYTHONUSERBASE", ""), f"{env['HOME']}/.local" if env.get("HOME") else ""):
        if base:
            found.add(f"{base.strip('/')}/lib/python{version}/site-packages")
    return sorted(found)


def _settings(view: View, prefix: str) -> dict[str, str]:
    """What `pyvenv.cfg` says; nothing where the place is no virtual environment."""
    path = posixpath.join(prefix, "pyvenv.cfg")
    text = view.read(path).decode(errors="replace") if path in view.files else ""
    rows = (row.partition("=") for row in text.splitlines() if "=" in row)
    return {name.strip().lower(): value.strip() for name, _, value in rows}


def _library(view: View, prefix: str, version: str, settings: Mapping[str, str]) -> Iterator[Entry]:
    if settings.get("home"):
        prefix = posixpath.dirname((view.real(settings["home"]) or "").strip("/"))
    for name in (f"python{version.replace('.', '')}.zip", f"python{version}", f"python{version}/lib-dynload"):
        yield Entry(posixpath.join(prefix, "lib", name), "the standard library's folder", True, True)


def _added(view: View, site: str, first: bool) -> Iterator[Entry]:
    """What the `.pth` files of a place add, after it."""
    for path, row in startup.rows(view, site):
        if not startup.runs(row) and not row.startswith("#"):
            folder = row.strip("/") if row.startswith("/") else posixpath.normpath(posixpath.join(site, row))
            yield Entry(folder, f"/{path}", first)


def _others(prefix: str, version: str, settings: Mapping[str, str], alone: bool) -> list[str]:
    """Debian's two places of a system Python; a virtual environment sees them where it was made so."""
    if (settings and alone) or (not settings and prefix not in ("usr", "usr/local")):
        return []
    return [f"usr/local/lib/python{version}/dist-packages", "usr/lib/python3/dist-packages"]


def _in(view: View, place: Installed, entry: Entry, namespace: bool) -> Iterator[Finding]:
    if entry.first and (whole := view.files.get(entry.folder)) is not None and whole.kind == "file":
        what = f"a file on sys.path ({entry.why}), before the package's own place: what is packed in it was not read"
        yield Finding("shadowed", entry.folder, what, found=whole.digest)
    root = posixpath.join(entry.folder, place.top)
    modules = [f"{root}.py", f"{root}.pyc", *_compiled(view, root)]
    there = [path for path in modules if view.at(path) is not None]
    here = [root] if _is_regular(view, root) else []
    taken = entry.first or namespace
    for path in (*here, *there):
        said = "Python takes it first" if taken else "a second one, after the package's own place"
        yield Finding("shadowed", path, f"{place.top} lies here, too ({entry.why}): {said}")
    portion = namespace and not (here or there) and any(_modules(view, root))
    if portion:
        said = "first" if entry.first else "after the package's own place"
        yield Finding("shadowed", root, f"a part of the namespace {place.top} ({entry.why}), looked at {said}")


def _modules(view: View, root: str) -> list[str]:
    return [path for path in view.below(root) if path.endswith((".py", ".pyc", ".so"))]


def _compiled(view: View, root: str) -> list[str]:
    name = re.compile(rf"{re.escape(root)}(?:\.[^/]+)?\.so")
    return [path for path in view.files if name.fullmatch(path)]


def _is_regular(view: View, root: str) -> bool:
    folder = view.real(root)
    inside = re.compile(rf"{re.escape(folder or root)}/__init__(?:\.[^/]+)?\.(?:py|pyc|so)")
    return any(inside.fullmatch(path) for path in view.files)
