"""Whether the changelog tells of what is carried, and of what a change did to it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from patchline import git
from patchline.changelog import news, released
from patchline.changelog.news import Fragment, Named
from patchline.errors import CommandFailed, UsageError
from patchline.project import Project
from patchline.series import quilt
from patchline.series.lint import Finding

TOLD = ("patches", "builds")
"""Folders of the project whose changes need news."""


def untold(project: Project) -> list[Finding]:
    """Patches and promoted releases that no news tells of, and news of patches or releases that are not there.

    Raises:
        UsageError: a fragment is not understood.
        SourceMismatch: a release record is damaged.
    """
    told = news.read(project)
    files = [path for path in sorted(project.root.glob("patches/*/*/*")) if path.name.endswith((".patch", ".diff"))]
    there = {(path.parts[-3], quilt.bare(path.name)): path.relative_to(project.root).as_posix() for path in files}
    carried = {patch.key for one in told if one.kind == "carried" for patch in one.patches}
    gone = {patch.key for one in told for patch in (one.patches if one.kind == "dropped" else one.was)}
    return [
        *(Finding(path, _no_news("carried", path)) for key, path in there.items() if key not in carried),
        *(
            Finding(f"changelog/{one.path.name}", f"there is no such patch, and no field Was: {'/'.join(patch)}")
            for one in told
            for patch in one.patches
            if patch.key not in there and patch.key not in gone
        ),
        *_releases(project, told),
        *_no_fragments(project),
    ]


def _no_fragments(project: Project) -> Iterable[Finding]:
    """Files that were meant as news by their names, and are not read."""
    for path in sorted(news.folder(project).glob("[0-9]*")):
        if path.is_file() and path.suffix != ".md":
            yield Finding(f"changelog/{path.name}", "no news fragment: its name does not end in .md")


def _releases(project: Project, told: list[Fragment]) -> Iterable[Finding]:
    """Promoted releases that no news tells of, and news of releases that have no record."""
    found = {one.tag: one for one in released.releases(project)}
    said = {one.release for one in told if one.release}
    for tag, one in found.items():
        if one.nightly and tag not in said:
            yield Finding(
                f"changelog/releases/{tag}.json", f"no image fragment in changelog/ has a field Release: {tag}"
            )
    for fragment in told:
        if fragment.release and fragment.release not in found:
            yield Finding(f"changelog/{fragment.path.name}", f"there is no record of the release {fragment.release}")


def changed(project: Project, base: str) -> dict[str, str]:
    """What the work tree and its commits did since they left `base`: `A`, `M` or `D` by path from the project's root.

    Raises:
        UsageError: git knows no such commit, or tracks no file of the project.
    """
    root = _tracked(project)
    try:
        ours = git.line(root, "merge-base", "--end-of-options", base, "HEAD")
    except CommandFailed as unknown:
        raise UsageError(
            f"git finds no commit that {base!r} and this branch have in common",
            where=str(root),
            next="git fetch, with enough of the history",
        ) from unknown
    asked = ("diff", "--name-status", "--no-renames", "--relative", "-z", ours, "--")
    words = os.fsdecode(git.git(root, *asked)).split("\0")[:-1]
    new = os.fsdecode(git.git(root, "ls-files", "--others", "--exclude-standard", "-z")).split("\0")[:-1]
    return {path: state[0] for state, path in zip(words[::2], words[1::2], strict=True)} | dict.fromkeys(new, "A")


def _tracked(project: Project) -> Path:
    """The project's folder, a repository's top or a folder of one; what git does not track has not changed either."""
    try:
        if git.git(project.root, "ls-files", "-z"):
            return project.root
    except CommandFailed as no_repository:
        raise UsageError(
            "this project is in no git repository", where=str(project.root), next="git init, add and commit"
        ) from no_repository
    raise UsageError("git tracks no file of this project", where=str(project.root), next="git add, and commit")


def missing(project: Project, changes: Mapping[str, str]) -> list[Finding]:
    """News that a change lacks; `changes` as `changed` gives them.

    Any change below `patches/` or `builds/` wants a fragment that was added or edited; a new patch one of kind
    `carried` or `rebased`, and one that is gone one of kind `dropped`, which name it.

    Raises:
        UsageError: a fragment is not understood.
    """
    touched = sorted(path for path in changes if PurePosixPath(path).parts[0] in TOLD)
    if not touched:
        return []
    names = {path.removeprefix("changelog/") for path, state in changes.items() if state != "D"}
    fresh = [one for one in news.read(project) if one.path.name in names]
    if not fresh:
        more = f" (and {len(touched) - 1} more)" if touched[1:] else ""
        return [Finding(touched[0] + more, "changed, and no news fragment in changelog/ came with it")]
    return list(_of_patches(project, touched, changes, fresh))


def _of_patches(
    project: Project, touched: Iterable[str], changes: Mapping[str, str], fresh: list[Fragment]
) -> Iterable[Finding]:
    told = {(one.kind, patch.key) for one in fresh for patch in one.patches}
    told |= {("dropped", patch.key) for one in fresh for patch in one.was}  # renamed
    left = {(path.parts[-3], quilt.bare(path.name)) for path in project.root.glob("patches/*/*/*.patch")}
    patches = [(path, named) for path in touched if (named := _named(path))]
    gone = {(named.version, named.key) for path, named in patches if changes[path] == "D"}
    for path, named in patches:
        if changes[path] == "D" and named.key not in left and ("dropped", named.key) not in told:
            yield Finding(path, _no_news("dropped", path))
        renumbered = (named.version, named.key) in gone
        if changes[path] == "A" and not renumbered and not {("carried", named.key), ("rebased", named.key)} & told:
            yield Finding(path, _no_news("carried or rebased", path))


def _named(path: str) -> Named | None:
    parts = PurePosixPath(path).parts
    ours = len(parts) == 4 and parts[0] == "patches" and path.endswith(".patch")
    return Named(*parts[1:]) if ours else None


def _no_news(kind: str, path: str) -> str:
    return f"no {kind} fragment in changelog/ has a field Patch: {path.removeprefix('patches/')}"
