"""The git module: whose repository it takes, what it says where it takes none, and what it does not look at."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from repos import commit, git, head, lines, mail, repository, series, write
from verbs import patchline

from patchline import git as ours
from patchline.errors import UsageError

ODD = ["a\nb", "a\u2028b", "a\x0bb", "\n", "a\n"]


@pytest.mark.parametrize("name", ODD)
def test_a_folder_of_any_name(tmp_path: Path, name: str) -> None:
    repo = repository(tmp_path / name, {"f": "f\n"})
    found = ours.top(repo)
    assert found == (repo.resolve(), repo.resolve() / ".git", repo / ".git" / "objects", head(repo))


def test_a_linked_work_tree(tmp_path: Path) -> None:
    repo = repository(tmp_path / "r", {"f": "f\n"})
    git(repo, "worktree", "add", "-q", "--detach", str(tmp_path / "a\nb"))
    found = ours.top(tmp_path / "a\nb")
    assert found.work_tree.name == "a\nb"
    assert found.git_dir.parent == repo.resolve() / ".git" / "worktrees"
    assert found.objects == repo.resolve() / ".git" / "objects"
    odd = repository(tmp_path / "o\nr", {"f": "f\n"})
    git(odd, "worktree", "add", "-q", "--detach", str(tmp_path / "linked"))
    with pytest.raises(UsageError, match="cannot name on one line"):
        ours.top(tmp_path / "linked")


def said(folder: Path) -> UsageError:
    with pytest.raises(UsageError) as caught:
        ours.top(folder)
    return caught.value


def test_what_is_no_work_tree_with_a_commit(tmp_path: Path) -> None:
    assert said(tmp_path / "gone").what == f"there is no folder {tmp_path / 'gone'}"
    plain = said(tmp_path)
    assert plain.what == f"{tmp_path} is not a git work tree with a commit"
    assert "not a git repository" in plain.where
    git(tmp_path, "init", "-q")
    assert said(tmp_path).what == f"{tmp_path} is not a git work tree with a commit"
    (tmp_path / "sub").mkdir()
    commit(tmp_path, "one")
    assert f"is a subfolder of the git work tree {tmp_path.resolve()}" in said(tmp_path / "sub").what


def test_any_other_failure_is_told_in_gits_words(tmp_path: Path) -> None:
    repo = repository(tmp_path / "r", {"f": "f\n"})
    with (repo / ".git" / "config").open("a") as config:
        config.write("[core\n")
    error = said(repo)
    assert error.what == f"git cannot work in {repo}"
    assert "bad config line" in error.where
    bare = tmp_path / "bare"
    git(tmp_path, "init", "-q", "--bare", str(bare))
    assert "must be run in a work tree" in said(bare).where


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository that another user owns, and a home of our own."""
    if os.geteuid():
        pytest.skip("only root can give a file away")
    repo = repository(tmp_path / "r", {"f": lines(3)})
    for path in (repo, *repo.rglob("*")):
        os.chown(path, 12345, 12345)
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_COUNT", "XDG_CONFIG_HOME", "SUDO_UID"):
        monkeypatch.delenv(name, raising=False)
    return repo


def test_a_repository_of_somebody_else(tmp_path: Path, foreign: Path) -> None:
    change = mail("--- a/f\n+++ b/f\n@@ -1 +1 @@\n-line 1\n+one\n")
    words = ("apply", "--repo", foreign, "--series", series(tmp_path / "s", {"p.patch": change}))
    ended = patchline(*words)
    assert ended.exit == 2
    assert "git: fatal: detected dubious ownership" in ended.err
    advice = f"git config --global --add safe.directory {foreign.resolve()}"
    assert advice in ended.err
    subprocess.run(advice.split(), check=True)
    ended = patchline(*words)
    assert ended.exit == 0, ended.err
    assert (foreign / "f").read_text().startswith("one\n")


def test_root_by_sudo_is_the_owner_as_git_sees_it(foreign: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_UID", "12345")
    assert ours.top(foreign).head == head(foreign)


def test_replaced_objects_and_grafts_are_not_looked_at(tmp_path: Path) -> None:
    repo = repository(tmp_path / "r", {"f": "one\n"})
    first = head(repo)
    write(repo, {"f": "two\n"})
    second = commit(repo, "two")
    git(repo, "replace", second, first)
    (repo / ".git" / "info" / "grafts").write_text(f"{second}\n")
    assert git(repo, "show", f"{second}:f") == "one\n"
    assert ours.git(repo, "show", f"{second}:f") == b"two\n"
    assert ours.work(repo, "show", f"{second}:f") == b"two\n"
    assert ours.line(repo, "rev-list", "--count", second) == "2"
    assert ours.start(repo, "rev-list", "--count", second).end().stderr == b""
