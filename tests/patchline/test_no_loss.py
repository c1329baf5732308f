"""Nobody's work is lost: not by apply, export, new, refresh, reorder, nor by a run that died."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from carrying import commit, core, git, head, project, write
from repos import files_of, lines, mail, repository, series
from test_killed import KILLED
from verbs import Ended, patchline

from patchline.project import Project

NAMES = ["0001-three-heads.patch", "0002-nine-heads.patch"]
NEW = [
    "new",
    "demo",
    "--author",
    "Ann <ann@example.org>",
    "--drop-when",
    "prose",
    "--tests",
    "tests/patches/demo/test_three.py",
]
ONE = "--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n line 1\n-line 2\n+line two\n line 3\n"


@pytest.fixture
def applied(tmp_path: Path) -> Project:
    """Two patches on the demo pin, applied."""
    made = project(
        tmp_path / "p", ("[Demo] Three heads", core(l3="three")), ("[Demo] Nine heads", core(l3="three", l9="nine"))
    )
    assert run(made, "apply", "demo").exit == 0
    return made


def run(made: Project, *words: object) -> Ended:
    return patchline(*words, cwd=made.root)


def work(made: Project) -> Path:
    return made.work_dir("demo", "1.0")


def folder(made: Project) -> Path:
    return made.series_dir("demo", "1.0")


def test_new_that_cannot_be_exported_changes_nothing(applied: Project) -> None:
    write(work(applied), core(l3="three", l9="nine", l20="mine"))
    was, files = head(work(applied)), files_of(work(applied))
    ended = run(applied, *NEW, "--subject", "[PATCH] thing")
    assert ended.exit == 5, ended.err
    assert (head(work(applied)), files_of(work(applied))) == (was, files)


def test_new_killed_at_any_write_loses_nothing(applied: Project, tmp_path: Path) -> None:
    write(work(applied), core(l3="three", l9="nine", l20="mine"))
    outcomes = set()
    for moment in range(1, 300):
        copy = Project(tmp_path / "copy")
        shutil.rmtree(copy.root, ignore_errors=True)
        shutil.copytree(applied.root, copy.root, symlinks=True)
        git(work(copy), "update-index", "-q", "--refresh", ok=False)
        words = [sys.executable, "-c", KILLED, str(moment), *NEW, "--subject", "[Demo] Mine"]
        done = subprocess.run(words, cwd=copy.root, capture_output=True)
        assert "mine" in (work(copy) / "demo" / "core.py").read_text()
        if done.returncode != -signal.SIGKILL:
            assert done.returncode == 0, done.stderr
            break
        after = run(copy, "apply", "demo")
        outcomes.add(after.exit)
        assert after.exit in (0, 5), after.err
        if after.exit == 5 and "is to be written" not in after.err and "not in the series" in after.err:
            exported = run(copy, "export", "demo")
            assert exported.exit == 0, exported.err
            assert run(copy, "apply", "demo").exit == 0
        assert "mine" in (work(copy) / "demo" / "core.py").read_text(), moment
    assert 5 in outcomes


def test_patches_that_changed_since_they_were_applied_are_not_written_over(applied: Project) -> None:
    path = folder(applied) / NAMES[0]
    theirs = path.read_text().replace("+three", "+THREE").replace("Why it is so.", "Another reason.")
    path.write_text(theirs)
    write(work(applied), core(l3="three", l9="nine", l20="mine"))
    for words in (["refresh", "demo"], [*NEW, "--subject", "[Demo] Mine"]):
        ended = run(applied, *words)
        assert ended.exit == 5
        assert "changed since they were applied" in ended.err
    git(work(applied), "stash", "-q")
    assert run(applied, "export", "demo").exit == 5
    assert path.read_text() == theirs
    assert run(applied, "export", "demo", "--force").exit == 0
    assert "+three" in path.read_text()


@pytest.mark.parametrize("what", ["empty folder", "folder with a folder", "link to a folder"])
def test_folders_and_links_in_the_way(tmp_path: Path, what: str) -> None:
    repo = repository(tmp_path / "r", {"f": lines(3), "a/x": "x\n"})
    add = "--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+x\n"
    turn = "diff --git a/a/x b/a/x\ndeleted file mode 100644\n--- a/a/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
    turn += "diff --git a/a b/a\nnew file mode 100644\n--- /dev/null\n+++ b/a\n@@ -0,0 +1 @@\n+x\n"
    if what == "empty folder":
        (repo / "n").mkdir()
    elif what == "folder with a folder":
        (repo / "a" / "empty").mkdir()
    else:
        (repo / "a" / "link").symlink_to("..")
    was = head(repo)
    file = series(tmp_path / "s", {"p.patch": add if what == "empty folder" else turn})
    ended = patchline("apply", "--repo", repo, "--series", file)
    assert ended.exit == 5, ended.err
    assert "in the way; nothing was changed" in ended.err
    assert head(repo) == was
    assert not (repo / ".git" / "index.lock").exists()


@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
def test_edits_that_the_index_hides(tmp_path: Path, flag: str) -> None:
    repo = repository(tmp_path / "r", {"f": lines(3)})
    was, file = head(repo), series(tmp_path / "s", {"p.patch": mail(ONE)})
    git(repo, "update-index", flag, "f")
    write(repo, {"f": lines(3) + "mine\n"})
    ended = patchline("apply", "--repo", repo, "--series", file)
    assert ended.exit == 5, ended.err
    assert "files of" in ended.err
    assert ((repo / "f").read_text(), head(repo)) == (lines(3) + "mine\n", was)
    write(repo, {"f": lines(3)})  # the flag alone is no reason
    assert patchline("apply", "--repo", repo, "--series", file).exit == 0


def test_a_line_saved_while_we_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from patchline.errors import Refused
    from patchline.series import apply, commits
    from patchline.series.placement import Rule

    repo = repository(tmp_path / "r", {"f": lines(3)})
    was, file = head(repo), series(tmp_path / "s", {"p.patch": mail(ONE)})
    ids = commits.Writing.ids

    def meanwhile(self: commits.Writing) -> list[str]:
        write(repo, {"f": lines(3) + "mine\n"})
        return ids(self)

    monkeypatch.setattr(commits.Writing, "ids", meanwhile)
    with pytest.raises(Refused, match="not what HEAD says"):
        apply.to_repo(repo, file, Rule.UNIQUE)
    assert ((repo / "f").read_text(), head(repo)) == (lines(3) + "mine\n", was)
    assert not (repo / ".git" / "index.lock").exists()


def test_an_edit_after_a_run_died(tmp_path: Path) -> None:
    repo = repository(tmp_path / "r", {"f": lines(3)})
    file = series(tmp_path / "s", {"p.patch": mail(ONE)})
    words = ["apply", "--repo", str(repo), "--series", str(file)]
    for moment in range(1, 200):
        subprocess.run([sys.executable, "-c", KILLED, str(moment), *words], capture_output=True)
        if (repo / ".git" / "patchline" / "journal.json").exists() and (repo / "f").read_text() == lines(3):
            break
    write(repo, {"f": lines(3) + "mine\n"})
    ended = patchline(*words)
    assert ended.exit == 5, ended.err
    assert "these files were changed since" in ended.err
    assert (repo / "f").read_text() == lines(3) + "mine\n"
    (repo / "f").rename(tmp_path / "mine")
    assert patchline(*words).exit == 0
    assert (repo / "f").read_text() == "line 1\nline two\nline 3\n"
    assert git(repo, "status", "--porcelain") == ""


def test_discard_plans_first_and_keeps_what_it_drops(applied: Project) -> None:
    write(work(applied), core(l3="three", l9="nine", l20="mine"))
    path = folder(applied) / NAMES[1]
    good = path.read_text()
    path.write_text(good.replace(" # line 8\n", " # line eight\n"))
    ended = run(applied, "apply", "demo", "--discard")
    assert ended.exit == 3, ended.err
    assert "mine" in (work(applied) / "demo" / "core.py").read_text()
    path.write_text(good)
    ended = run(applied, "apply", "demo", "--discard")
    assert ended.exit == 0, ended.err
    assert "mine" not in (work(applied) / "demo" / "core.py").read_text()
    assert "stash apply refs/patchline/discarded" in ended.err
    git(work(applied), "stash", "apply", "-q", "refs/patchline/discarded")
    assert "mine" in (work(applied) / "demo" / "core.py").read_text()


def test_export_then_apply_goes_on(applied: Project) -> None:
    git(work(applied), "commit", "-q", "--amend", "-m", "[Demo] Nine heads\n\nBetter words.")
    assert run(applied, "export", "demo").exit == 0
    ended = run(applied, "apply", "demo", "--json")
    assert ended.exit == 0, ended.err
    assert ended.data["changed"] is False


def test_another_branch_is_not_moved(applied: Project) -> None:
    git(work(applied), "checkout", "-q", "-b", "mine", "refs/patchline/base")
    was = head(work(applied))
    for verb in ("apply", "overlay"):
        ended = run(applied, verb, "demo")
        assert ended.exit == 5
        assert "is on branch mine, not on patchline" in ended.err
    assert git(work(applied), "rev-parse", "mine").strip() == was


def test_a_copied_project_works_on_its_own_tree(applied: Project, tmp_path: Path) -> None:
    copy = Project(tmp_path / "copy")
    shutil.copytree(applied.root, copy.root, symlinks=True)
    ended = run(copy, "apply", "demo", "--json")
    assert ended.exit == 0, ended.err
    assert Path(ended.data["tree"]) == work(copy)


def test_conflict_markers_are_no_patch(applied: Project) -> None:
    repo = work(applied)
    git(repo, "checkout", "-q", "--detach", "HEAD~1")
    write(repo, core(l3="three", l9="other"))
    other = commit(repo, "other")
    git(repo, "checkout", "-q", "patchline")
    git(repo, "cherry-pick", other, ok=False)
    ended = run(applied, "refresh", "demo")
    assert ended.exit == 5
    assert "in the middle of a cherry-pick" in ended.err


def test_swapped_commits_keep_their_names(tmp_path: Path) -> None:
    made = project(
        tmp_path / "p", ("[Demo] Three heads", core(l3="three")), ("[Demo] Notes", {"demo/notes.py": "x = 1\n"})
    )
    assert run(made, "apply", "demo").exit == 0
    repo = work(made)
    first, second = git(repo, "rev-list", "--reverse", "refs/patchline/base..HEAD").split()
    git(repo, "reset", "-q", "--hard", "refs/patchline/base")
    git(repo, "cherry-pick", second, first)
    check = run(made, "export", "demo", "--check")
    assert check.exit == 8
    assert "the order differs" in check.out
    write(repo, {"demo/more.py": "x = 1\n"})
    ended = run(made, *NEW, "--subject", "[Demo] More")
    assert ended.exit == 0, ended.err
    assert "taken    demo/more.py" in ended.out
    for name, subject in (("0001-three-heads.patch", "Three heads"), ("0002-notes.patch", "Notes")):
        assert f"Subject: [Demo] {subject}\n" in (folder(made) / name).read_text()


def test_a_strip_level_goes_with_the_form_it_was_for(applied: Project) -> None:
    path, file = folder(applied) / NAMES[0], folder(applied) / "series"
    path.write_text(path.read_text().replace("a/demo/", "demo/").replace("b/demo/", "demo/"))
    file.write_text(f"{NAMES[0]} -p0  # bare\n{NAMES[1]}\n")
    assert run(applied, "apply", "demo").exit == 0
    assert run(applied, "refresh", "demo").exit == 0
    assert file.read_text() == f"{NAMES[0]}  # bare\n{NAMES[1]}\n"
    assert run(applied, "apply", "demo").exit == 0
    assert run(applied, "lint").exit == 0


def test_what_else_lies_in_the_folder_stays(applied: Project) -> None:
    home = folder(applied)
    (home / "README").write_text("kept\n")
    (home / "dangling").symlink_to("nowhere")
    (home / "link").symlink_to("README")
    (home / ".part-1.0-deadbeef").mkdir()
    (home.parent / ".part-1.0-abcdefgh").mkdir()
    (home / "series").write_bytes(b"# caf\xe9\n" + (home / "series").read_bytes())
    assert run(applied, "apply", "demo").exit == 0
    git(work(applied), "commit", "-q", "--amend", "-m", "[Demo] Nine heads\n\nBetter words.")
    ended = run(applied, "export", "demo")
    assert ended.exit == 0, ended.err
    assert os.readlink(home / "dangling") == "nowhere"
    assert os.readlink(home / "link") == "README"
    assert (home / "series").read_bytes().startswith(b"# caf\xe9\n")
    assert not (home.parent / ".part-1.0-abcdefgh").exists()


def test_refresh_names_an_unknown_patch_also_without_changes(applied: Project) -> None:
    assert run(applied, "refresh", "demo", "0009-x.patch").exit == 2
