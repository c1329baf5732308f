"""The times that we tell git's index are the ones that git would find itself."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from repos import QUIET, commit, git, head, lines, patch_of, repository, series, write
from verbs import patchline

FILES = {name: lines(20) for name in ("a", "b/c", "b/d", "ü", "z z", "e/" + "long" * 60)}


def prepared(tmp_path: Path) -> tuple[Path, Path]:
    """A repository on its base, and a series that changes, adds and removes."""
    repo = repository(tmp_path / "r", FILES | {"gone": "x\n"})
    base = head(repo)
    write(
        repo, {name: text.replace("line 9\n", "nine\n") for name, text in FILES.items()} | {"new": "n\n", "empty": ""}
    )
    (repo / "gone").unlink()
    commit(repo, "change")
    file = series(tmp_path / "s", {"p.patch": patch_of(repo)})
    git(repo, "reset", "-q", "--hard", base)
    return repo, file


def entries(repo: Path) -> str:
    return git(repo, "ls-files", "--debug", "--stage")


@pytest.mark.parametrize("version", ["2", "3", "4"])
def test_what_git_would_find(tmp_path: Path, version: str) -> None:
    repo, file = prepared(tmp_path)
    git(repo, "update-index", "--index-version", version)
    if version == "3":  # what makes git write that version
        write(repo, {"later": "x\n"})
        git(repo, "add", "--intent-to-add", "later")
        git(repo, "rm", "-q", "-f", "--cached", "later")
        (repo / "later").unlink()
    ended = patchline("apply", "--repo", repo, "--series", file)
    assert ended.exit == 0, ended.err
    ours = entries(repo)
    assert "size: 0" in ours
    env = os.environ | QUIET | {"GIT_OPTIONAL_LOCKS": "0"}
    plumbing = subprocess.run(["git", "diff-index", "--quiet", "HEAD"], cwd=repo, env=env)
    assert plumbing.returncode == 0
    for path in repo.rglob("*"):
        if path.is_file() and ".git" not in path.parts:
            status = path.stat()
            assert f"mtime: {status.st_mtime_ns // 10**9}:{status.st_mtime_ns % 10**9}" in ours
    git(repo, "update-index", "-q", "--really-refresh")
    assert entries(repo) == ours
    assert git(repo, "fsck") == ""
    assert git(repo, "status", "--porcelain", "--untracked-files=no") == ""


def test_a_file_that_somebody_touched_meanwhile_is_looked_at(tmp_path: Path) -> None:
    from patchline.series.index_entries import Placed, freshen

    repo, _ = prepared(tmp_path)
    blob = git(repo, "rev-parse", "HEAD:a").strip()
    status = (repo / "a").stat()
    git(repo, "update-index", "--cacheinfo", f"100644,{blob},a")
    (repo / "a").write_text("mine\n")
    assert freshen(
        repo / ".git" / "index",
        repo,
        [Placed("a", blob, status.st_mtime_ns, status.st_size, status.st_ino)],
        tmp_path / "draft",
    )
    assert git(repo, "status", "--porcelain") == " M a\n"


def test_an_index_that_git_holds_or_that_has_another_form_is_left_to_git(tmp_path: Path) -> None:
    from patchline.series.index_entries import Placed, freshen

    repo, _ = prepared(tmp_path)
    index = repo / ".git" / "index"
    before = index.read_bytes()
    assert not freshen(index, repo, [Placed("nowhere", "00" * 20, 0, 0, 0)], tmp_path / "draft")
    lock = index.with_name("index.lock")
    lock.touch()
    assert not freshen(index, repo, [], tmp_path / "draft")
    assert lock.exists()
    assert index.read_bytes() == before


@pytest.mark.parametrize(
    ("attributes", "config"),
    [
        ("* text eol=crlf\n", ""),
        ("*.md ident\n", ""),
        ("b/* filter=upper\n", '[filter "upper"]\n clean = tr A-Z a-z\n smudge = tr a-z A-Z\n'),
        ("", "[core]\n autocrlf = true\n"),
        ("* -text\n", "[core]\n autocrlf = false\n"),
    ],
)
def test_files_are_what_git_would_check_out(tmp_path: Path, attributes: str, config: str) -> None:
    repo = repository(tmp_path / "r", {"b/c": lines(5), "d.md": "$Id$\n" + lines(5), "e": lines(5)})
    base = head(repo)
    write(repo, {name: (repo / name).read_text().replace("line 3", "three") for name in ("b/c", "d.md", "e")})
    commit(repo, "change")
    file = series(tmp_path / "s", {"p.patch": patch_of(repo)})
    git(repo, "reset", "-q", "--hard", base)
    if attributes:
        (repo / ".git" / "info").mkdir(exist_ok=True)
        (repo / ".git" / "info" / "attributes").write_text(attributes)
    with (repo / ".git" / "config").open("a") as out:
        out.write(config)
    git(repo, "rm", "-q", "--cached", "-r", ".")
    git(repo, "reset", "-q", "--hard", base)
    ended = patchline("apply", "--repo", repo, "--series", file)
    assert ended.exit == 0, ended.err
    ours = {name: (repo / name).read_bytes() for name in ("b/c", "d.md", "e")}
    for name in ours:
        (repo / name).unlink()
    git(repo, "checkout", "-q", "--", ".")
    assert {name: (repo / name).read_bytes() for name in ours} == ours
    assert git(repo, "status", "--porcelain") == ""


def test_planned_changes_are_what_git_says_afterwards(tmp_path: Path) -> None:
    from patchline.series import quilt
    from patchline.series.plan import plan
    from patchline.series.staging import changes_between, changes_planned
    from patchline.series.trees import CommitTree

    repo, file = prepared(tmp_path)
    (repo / "a").chmod(0o755)
    commit(repo, "mode")
    tree = CommitTree(repo, head(repo))
    planned = changes_planned(tree, plan(tree, quilt.patches(quilt.files(file))).total)
    was = head(repo)
    assert patchline("apply", "--repo", repo, "--series", file).exit == 0
    assert planned == changes_between(repo, was, head(repo))
    assert {change.status for change in planned} == {"A", "D", "M"}
