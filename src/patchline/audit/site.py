"""Audit of an installed package: a site-packages folder on disk against its RECORD, its pin, and perhaps an overlay."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from patchline.audit import known, syspath
from patchline.audit.compared import compared
from patchline.audit.finding import Audit, Finding, ordered
from patchline.audit.made import Made, made, pin_tree
from patchline.audit.view import Patterns, Seen, View, patterns
from patchline.audit.wanted import installed
from patchline.errors import UsageError
from patchline.lines.line import line
from patchline.series.carried import Carried


def audit(carried: Carried, folder: Path, line_name: str = "", *, patched: bool = False) -> Audit:
    """Compares the package of `carried` in `folder`; with `patched` its overlay has to be in place there.

    Raises:
        UsageError: there is no such folder or line.
        SourceMismatch: no RECORD there lists the package.
    """
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}", next="give a site-packages folder")
    entries = known.read(line(carried.project, line_name).folder) if line_name else ()
    overlays: list[Made] = [made(carried)] if patched else []
    tops = [carried.upstream.name] if not overlays else overlays[0].tops
    found = view(folder, patterns(tops))
    findings, explained, count, unread = list[Finding](), [], 0, 0
    source = pin_tree(carried.project, [carried], tops)
    for place in installed(found, tops):
        one = compared(found, place, None, [each.patched for each in overlays], source)
        findings += [*_without_record(one.findings, patched=patched), *syspath.findings(found, place, None)]
        explained += one.explained
        count, unread = count + one.held, unread + one.unread
    if not count:
        raise UsageError("no file could be compared", where=str(folder))
    findings, accepted = known.split(findings, entries)
    notes = [f"{unread} files that RECORD lists lie outside of what an audit reads"] if unread else []
    facts = {"folder": str(folder), "overlay": overlays[0].overlay.digest if overlays else ""}
    return Audit(
        f"{carried.name} in {folder}",
        count,
        ordered(findings),
        tuple(explained),
        tuple(accepted),
        tuple(notes),
        facts,
    )


def _without_record(findings: Iterable[Finding], *, patched: bool) -> list[Finding]:
    """Who puts an overlay over an installed package, as the proofs do, leaves its RECORD as it was; a cut does not."""
    return [one for one in findings if not (patched and one.kind == "record")]


def view(folder: Path, wanted: Patterns) -> View:
    """The folder, as if it were `site-packages` at the root of an image; only what matters is read."""
    prefix = "site-packages"
    paths = {f"{prefix}/{path.relative_to(folder).as_posix()}": path for path in _walk(folder)}
    asked = {name: path for name, path in paths.items() if wanted.files.fullmatch(name) or wanted.kept.fullmatch(name)}
    with ThreadPoolExecutor() as pool:
        files = dict(zip(asked, pool.map(_seen, asked.values()), strict=True))
    links = {name: os.readlink(path) for name, path in paths.items() if path.is_symlink()}

    def read(name: str) -> bytes:
        return asked[name].read_bytes() if files[name].kind == "file" else b""

    folders = {name.rpartition("/")[0] for name in paths}
    return View(files, folders, links, {}, read)


def _walk(folder: Path) -> Iterator[Path]:
    for at, folders, names in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(at, name))]
        yield from (Path(at, name) for name in (*names, *links))


def _seen(path: Path) -> Seen:
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        return Seen("symlink")
    if not stat.S_ISREG(status.st_mode):
        return Seen("other")
    with path.open("rb") as file:
        head = file.read(16) if path.suffix == ".pyc" else b""
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Seen("file", status.st_size, f"sha256:{digest}", int(status.st_mtime), head)
