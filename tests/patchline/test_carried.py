"""A carried series from end to end: apply, export, new, refresh, reorder, each through its verb."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from carrying import commit, core, git, head, project, write
from repos import QUIET, files_of
from verbs import Ended, patchline

from patchline.project import Project

ONE = ("[Demo] Three heads", core(l3="three"))
TWO = ("[Demo] Nine heads", core(l3="three", l9="nine"))
NAMES = ["0001-three-heads.patch", "0002-nine-heads.patch"]


@pytest.fixture
def carried(tmp_path: Path) -> Project:
    """Two patches on the demo pin, not yet applied."""
    return project(tmp_path / "p", ONE, TWO)


def run(made: Project, *words: object, **env: str) -> Ended:
    return patchline(*words, cwd=made.root, env=env)


def patches(made: Project) -> dict[str, tuple[str, bytes]]:
    return files_of(made.series_dir("demo", "1.0"))


def work(made: Project) -> Path:
    return made.work_dir("demo", "1.0")


def test_apply_twice_gives_the_same_commits_and_a_clean_tree(carried: Project, tmp_path: Path) -> None:
    first = run(carried, "apply", "demo", "--json")
    assert first.exit == 0, first.err
    second = run(carried, "apply", "demo", "--json")
    other = project(tmp_path / "elsewhere", ONE, TWO)
    third = run(other, "apply", "demo", "--json", TZ="Asia/Kathmandu", LANG="de_DE.UTF-8")
    assert [patch["name"] for patch in first.data["patches"]] == NAMES
    assert first.data["patches"] == second.data["patches"] == third.data["patches"]
    assert (first.data["changed"], second.data["changed"]) == (True, False)
    assert git(work(carried), "status", "--porcelain") == ""


ODD = """
[user]
 name = Odd
 email = odd@example.org
[diff]
 noprefix = true
 mnemonicPrefix = true
 renames = copies
 context = 1
 interHunkContext = 9
 algorithm = patience
 external = false
 suppressBlankEmpty = true
 orderFile = /nowhere
 colorMoved = zebra
[core]
 abbrev = 7
 autocrlf = true
 quotePath = false
 pager = false
 fsmonitor = true
 commentChar = "["
[format]
 signature = mine
 subjectPrefix = ODD
 pretty = oneline
 noprefix = true
[commit]
 gpgSign = true
[color]
 ui = always
[i18n]
 commitEncoding = latin1
 logOutputEncoding = latin1
[apply]
 whitespace = fix
[log]
 showSignature = true
 date = relative
"""


@pytest.mark.parametrize("where", ["global", "repository"])
def test_12_export_has_the_same_bytes_whatever_the_configuration(carried: Project, tmp_path: Path, where: str) -> None:
    before = patches(carried)
    assert run(carried, "apply", "demo").exit == 0
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / ".gitconfig").write_text(ODD)
    env = {
        "HOME": str(tmp_path / "home"),
        "LANG": "tr_TR.UTF-8",
        "LC_ALL": "C",
        "TZ": "Pacific/Chatham",
        "GIT_PAGER": "false",
    }
    if where == "repository":
        with (work(carried) / ".git" / "config").open("a") as file:
            file.write(ODD.replace("autocrlf = true", "autocrlf = false"))
    ended = run(carried, "export", "demo", "--json", **env)
    assert ended.exit == 0, ended.err
    assert (ended.data["written"], ended.data["removed"]) == ([], [])
    assert patches(carried) == before
    for name in NAMES:  # also where every byte is written anew
        (carried.series_dir("demo", "1.0") / name).write_bytes(
            before[name][1].replace(b"Subject: [Demo]", b"Subject:  [Demo]")
        )
    assert run(carried, "apply", "demo", **env).exit == 0
    ended = run(carried, "refresh", "demo", "--json", **env)
    assert ended.exit == 0, ended.err
    assert ended.data["written"] == NAMES
    assert patches(carried) == before


def test_export_writes_what_git_users_did(carried: Project) -> None:
    before = patches(carried)
    assert run(carried, "apply", "demo").exit == 0
    repo = work(carried)
    write(repo, {"demo/new.py": "x = 1\n"})
    commit(repo, "[Demo] Grow a module\n\nBecause.")
    check = run(carried, "export", "demo", "--check")
    assert check.exit == 8
    assert "differs  0003-grow-a-module.patch" in check.out
    assert patches(carried) == before
    ended = run(carried, "export", "demo")
    assert ended.exit == 0, ended.err
    assert "2 kept, 1 written, 0 removed" in ended.out
    assert (carried.series_dir("demo", "1.0") / "series").read_text().splitlines() == [
        *NAMES,
        "0003-grow-a-module.patch",
    ]
    wanted = head(repo)
    git(repo, "reset", "-q", "--hard", "HEAD~3")
    again = run(carried, "apply", "demo", "--json")
    assert again.exit == 0, again.err
    assert git(repo, "rev-parse", f"{wanted}^{{tree}}") == git(repo, "rev-parse", "HEAD^{tree}")


def test_export_after_an_amended_message_keeps_name_and_comments(carried: Project) -> None:
    series = carried.series_dir("demo", "1.0") / "series"
    series.write_text(f"# the heads\n{NAMES[0]}  # first\n\n# the rest\n{NAMES[1]} -p1\n# end\n")
    assert run(carried, "apply", "demo").exit == 0
    git(work(carried), "commit", "-q", "--amend", "-m", "[Demo] Nine heads\n\nA better reason.")
    ended = run(carried, "export", "demo", "--json")
    assert ended.data["written"] == [NAMES[1]], ended.err
    assert series.read_text() == f"# the heads\n{NAMES[0]}  # first\n\n# the rest\n{NAMES[1]} -p1\n# end\n"
    assert "A better reason." in (series.parent / NAMES[1]).read_text()


def test_export_drops_what_was_dropped(carried: Project) -> None:
    assert run(carried, "apply", "demo").exit == 0
    git(work(carried), "reset", "-q", "--hard", "HEAD~")
    ended = run(carried, "export", "demo", "--json")
    assert (ended.data["kept"], ended.data["removed"]) == ([NAMES[0]], [NAMES[1]]), ended.err
    git(work(carried), "reset", "-q", "--hard", "HEAD~")
    empty = run(carried, "export", "demo")
    assert empty.exit == 5
    assert "there is nothing to export" in empty.err


def test_export_refuses_a_merge(carried: Project) -> None:
    assert run(carried, "apply", "demo").exit == 0
    repo = work(carried)
    git(repo, "checkout", "-q", "-b", "side", "HEAD~")
    write(repo, {"demo/side.py": ""})
    commit(repo, "side")
    git(repo, "merge", "-q", "-m", "merge", "patchline")
    ended = run(carried, "export", "demo")
    assert ended.exit == 5
    assert "a series is one line of commits" in ended.err


def test_apply_refuses_to_lose_work(carried: Project) -> None:
    assert run(carried, "apply", "demo").exit == 0
    repo = work(carried)
    write(repo, {"demo/new.py": "x = 1\n"})
    mine = commit(repo, "[Demo] Mine")
    (carried.series_dir("demo", "1.0") / "series").write_text(f"{NAMES[0]}\n")
    (carried.series_dir("demo", "1.0") / NAMES[1]).unlink()
    ended = run(carried, "apply", "demo")
    assert ended.exit == 5
    assert "has commits that are not in the series" in ended.err
    assert "python -m patchline export demo" in ended.err
    assert head(repo) == mine
    write(repo, {"demo/core.py": "dirty\n"})
    assert run(carried, "apply", "demo", "--discard").exit == 0
    assert git(repo, "rev-list", "--count", "refs/patchline/base..HEAD").strip() == "1"


def test_new_makes_a_patch_of_the_work_trees_changes(carried: Project) -> None:
    assert run(carried, "apply", "demo").exit == 0
    repo = work(carried)
    write(carried.root, {"tests/patches/demo/test_new.py": ""})
    words = ["new", "demo", "--subject", "[Demo] Add a module", "--author", "Ann Author <ann@example.org>"]
    words += ["--drop-when", "upstream-version >= 2.0", "--tests", "tests/patches/demo/test_new.py"]
    nothing = run(carried, *words)
    assert nothing.exit == 5
    assert "has no changes" in nothing.err
    write(repo, {"demo/added.py": "x = 1\n"} | core(l3="three", l9="nine", l20="twenty"))
    files = files_of(repo)
    ended = run(carried, *words, "--json")
    assert ended.exit == 0, ended.err
    assert ended.data["written"] == ["0003-add-a-module.patch"]
    assert files_of(repo) == files
    assert git(repo, "status", "--porcelain") == ""
    assert run(carried, "lint").exit == 0
    assert run(carried, "apply", "demo", "--json").data["changed"] is False


def test_refresh_puts_changes_into_an_earlier_patch(carried: Project) -> None:
    assert run(carried, "apply", "demo").exit == 0
    repo = work(carried)
    write(repo, core(l3="three and a half", l9="nine"))
    files = files_of(repo)
    ended = run(carried, "refresh", "demo", NAMES[0], "--json")
    assert ended.exit == 0, ended.err
    assert NAMES[0] in ended.data["written"]
    assert files_of(repo) == files
    assert git(repo, "show", "HEAD~:demo/core.py").count("three and a half") == 1
    assert run(carried, "apply", "demo", "--json").data["changed"] is False


def test_refresh_that_a_later_patch_does_not_survive(carried: Project) -> None:
    assert run(carried, "apply", "demo").exit == 0
    repo, before = work(carried), patches(carried)
    write(repo, core(l3="three", l9="ninety"))
    ended = run(carried, "refresh", "demo", NAMES[0])
    assert ended.exit == 3
    assert patches(carried) == before
    assert (repo / "demo" / "core.py").read_text() == core(l3="three", l9="ninety")["demo/core.py"]
    unknown = run(carried, "refresh", "demo", "0007-x.patch")
    assert unknown.exit == 2
    assert NAMES[1] in unknown.err


def test_reorder_renumbers_and_keeps_the_tree(carried: Project) -> None:
    assert run(carried, "apply", "demo").exit == 0
    tree = git(work(carried), "rev-parse", "HEAD^{tree}")
    ended = run(carried, "reorder", "demo", NAMES[1], NAMES[0])
    assert ended.exit == 0, ended.err
    assert sorted(patches(carried)) == ["0001-nine-heads.patch", "0002-three-heads.patch", "series"]
    assert git(work(carried), "rev-parse", "HEAD^{tree}") == tree
    assert git(work(carried), "log", "-1", "--format=%s").strip() == "[Demo] Three heads"
    assert run(carried, "reorder", "demo", "0001-nine-heads.patch").exit == 2


def test_reorder_of_patches_that_lean_on_each_other(tmp_path: Path) -> None:
    made = project(tmp_path / "p", ONE, ("[Demo] Third heads", core(l3="third")))
    assert run(made, "apply", "demo").exit == 0
    before = patches(made)
    ended = run(made, "reorder", "demo", "0002-third-heads.patch", "0001-three-heads.patch")
    assert ended.exit == 3
    assert patches(made) == before


def test_11_and_14_for_a_carried_series(tmp_path: Path) -> None:
    made = project(tmp_path / "p")
    missing = run(made, "apply", "demo")
    assert missing.exit == 2
    assert "there is no series file" in missing.err
    made = project(tmp_path / "q", ONE)
    folder = made.series_dir("demo", "1.0")
    (folder / "stray.patch").write_text("x")
    (folder / "series").write_text("0001-three-heads.patch\n0001-three-heads.patch\ngone.patch\n")
    ended = run(made, "apply", "demo")
    assert ended.exit == 2
    for text in (
        "listed 2 times",
        "gone.patch: listed, but there is no such file",
        "stray.patch: there, but not listed",
    ):
        assert text in ended.err


def test_no_project_here(tmp_path: Path) -> None:
    ended = patchline("apply", "demo", cwd=tmp_path)
    assert ended.exit == 2
    assert "no builds/upstreams.toml in this folder or above it" in ended.err


def test_export_killed_leaves_the_old_folder_or_the_new_one(carried: Project) -> None:
    from test_killed import moments

    assert run(carried, "apply", "demo").exit == 0
    repo = work(carried)
    git(repo, "commit", "-q", "--amend", "-m", "[Demo] Nine heads\n\nOther words.")
    old, states = patches(carried), set()
    before = shutil.copytree(carried.root, carried.root.parent / "before", symlinks=True)
    here = Path.cwd()
    os.chdir(carried.root)
    try:
        for _, killed in moments(["export", "demo"]):
            now = patches(carried)
            states.add(now == old)
            assert sorted(now) == [*NAMES, "series"]
            assert run(carried, "export", "demo").exit == 0
            assert run(carried, "apply", "demo").exit == 0
            assert patches(carried) != old
            if killed:
                os.chdir(before)
                shutil.rmtree(carried.root)
                shutil.copytree(before, carried.root, symlinks=True)
                os.chdir(carried.root)
    finally:
        os.chdir(here)
    assert states == {True, False}
    assert subprocess.run(["git", "fsck"], cwd=repo, env=os.environ | QUIET, capture_output=True).returncode == 0


def test_a_link_that_somebody_committed_is_put_right(carried: Project) -> None:
    assert run(carried, "apply", "demo").exit == 0
    repo = work(carried)
    before = files_of(repo)
    (repo / "demo" / "data.txt").unlink()
    (repo / "demo" / "data.txt").symlink_to("core.py")
    (repo / "link").symlink_to("demo")
    commit(repo, "links")
    assert run(carried, "apply", "demo", "--discard").exit == 0
    assert files_of(repo) == before
    assert git(repo, "status", "--porcelain") == ""


def test_a_linked_work_tree(tmp_path: Path) -> None:
    from repos import lines, mail, repository, series

    main = repository(tmp_path / "r", {"f": lines(3)})
    git(main, "worktree", "add", "-q", "-b", "side", str(tmp_path / "linked"))
    diff = "--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n line 1\n-line 2\n+line two\n line 3\n"
    ended = patchline(
        "apply", "--repo", tmp_path / "linked", "--series", series(tmp_path / "s", {"p.patch": mail(diff)})
    )
    assert ended.exit == 0, ended.err
    assert (tmp_path / "linked" / "f").read_text() == "line 1\nline two\nline 3\n"
    assert git(tmp_path / "linked", "status", "--porcelain") == ""
    assert git(main, "status", "--porcelain") == ""
    assert (main / "f").read_text() == lines(3)
