"""Checks every carried series as text: form, trailers, tests, agreement of folder and series file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from patchline.errors import PatchlineError, UsageError
from patchline.project import Project
from patchline.series import quilt
from patchline.series.mail import written
from patchline.series.patch import Patch, parsed
from patchline.series.plan import check_targets

REQUIRED = ("origin", "forwarded", "drop-when", "tests")
"""Trailers that every patch has (DEP-3's words where DEP-3 has one)."""

_SPELLED = {"origin": "Origin", "forwarded": "Forwarded", "drop-when": "Drop-When", "tests": "Tests"}
_FORWARDED = re.compile(r"no|not-needed|(https?|mailto):\S+")
_DROP_VERSION = re.compile(r"upstream-version\s*(\S+)\s*(\S+)?$")


class Finding(NamedTuple):
    """One thing to mend."""

    where: str
    what: str


class Report(NamedTuple):
    """What was checked, and what was found."""

    series: int
    patches: int
    hunks: int
    findings: list[Finding]


def lint(project: Project) -> Report:
    """Checks all series of the project.

    Raises:
        UsageError: there is nothing to check.
    """
    folders = sorted(path for path in (project.root / "patches").glob("*/*") if path.is_dir())
    if not folders:
        raise UsageError(
            "there is no series to check", where=str(project.root / "patches"), next="python -m patchline new UPSTREAM"
        )
    findings: list[Finding] = []
    patches: list[Patch] = []
    for folder in folders:
        found, faults = _folder(folder)
        patches += found
        findings += faults
    findings += [finding for patch in patches for finding in _patch(project, patch)]
    findings += _orphans(project, patches)
    hunks = sum(len(diff.hunks) or 1 for patch in patches for diff in patch.files)
    return Report(len(folders), len(patches), hunks, [_short(project, finding) for finding in findings])


def _short(project: Project, finding: Finding) -> Finding:
    return finding._replace(where=finding.where.removeprefix(f"{project.root}/"))


def _folder(folder: Path) -> tuple[list[Patch], list[Finding]]:
    series = folder / "series"
    try:
        listed = quilt.items(series)
        faults = quilt.disagreements(series, listed, own=True)
    except PatchlineError as wrong:
        return [], [Finding(wrong.where or str(series), wrong.what)]
    findings = [Finding(str(series), fault.strip()) for fault in faults]
    patches: list[Patch] = []
    for item in {item.name: item for item in listed}.values():
        path = folder / item.name
        if not path.is_file():
            continue
        try:
            patches.append(parsed(path.read_bytes(), path, item.name, item.strip))
        except PatchlineError as bad:
            findings.append(Finding(str(path), bad.what))
    return patches, findings


def _patch(project: Project, patch: Patch) -> Iterator[Finding]:
    checks: tuple[Callable[[Project, Patch], Iterator[str]], ...] = (_targets, _form, _trailers, _tests)
    for check in checks:
        yield from (Finding(str(patch.path), what) for what in check(project, patch))


def _targets(_: Project, patch: Patch) -> Iterator[str]:
    try:
        check_targets(patch)
    except PatchlineError as refused:
        yield refused.what


def _form(_: Project, patch: Patch) -> Iterator[str]:
    header = patch.header
    if not (header.name and header.email and header.seconds is not None):
        yield "no author or no date: the mail form of git format-patch is expected"
    elif not patch.raw.startswith(written(header._replace(fields=()))):
        yield "its header is not in the one form that is written here; run: python -m patchline refresh"
    if patch.strip != 1:
        yield f"it is stripped by -p{patch.strip}; a carried patch has a/ and b/"


def _trailers(_: Project, patch: Patch) -> Iterator[str]:
    trailers = patch.header.trailers
    for key in REQUIRED:
        if not any(trailers.get(key, [])):
            yield f"no trailer {_SPELLED[key]}:"
    for value in trailers.get("forwarded", []):
        if not _FORWARDED.fullmatch(value):
            yield f"Forwarded: {value!r} is none of a link, no and not-needed"
    for value in trailers.get("drop-when", []):
        if value.startswith("upstream-version") and (why := _bad_version(value)):
            yield f"Drop-When: {value!r}: {why}"


def _bad_version(value: str) -> str | None:
    from packaging.version import InvalidVersion, Version

    match = _DROP_VERSION.match(value)
    if not match or match[1] != ">=" or not match[2]:
        return "write it as: upstream-version >= X"
    try:
        Version(match[2])
    except InvalidVersion:
        return f"{match[2]} is not a version"
    return None


def tests_of(patch: Patch) -> list[str]:
    """The paths that a patch's `Tests:` trailers name, from the project's root."""
    return [path for value in patch.header.trailers.get("tests", []) for path in re.split(r"[,\s]+", value) if path]


def _tests(project: Project, patch: Patch) -> Iterator[str]:
    for path in tests_of(patch):
        if not path.startswith("tests/patches/") or ".." in path.split("/"):
            yield f"Tests: {path} does not lie in tests/patches/"
        elif not (project.root / path).is_file():
            yield f"Tests: there is no {path}"


def _orphans(project: Project, patches: list[Patch]) -> Iterator[Finding]:
    named = {path for patch in patches for path in tests_of(patch)}
    for file in sorted((project.root / "tests" / "patches").rglob("test_*.py")):
        path = file.relative_to(project.root).as_posix()
        if path not in named:
            yield Finding(path, "no patch names these tests in its Tests: trailer")
