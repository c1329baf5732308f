"""Audit of trees: every changed line is a patch's, or is found and named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from carrying import core, project
from repos import commit, git, head, lines, patch_of, repository, series, write

from patchline.audit import tree
from patchline.audit.finding import Audit
from patchline.audit.owners import Owned
from patchline.audit.runs import runs
from patchline.errors import DoesNotApply, UsageError
from patchline.series.carried import carried
from patchline.series.trees import Entry

UPSTREAM: dict[str, bytes | str] = {
    "a.py": lines(40),
    "b.py": lines(20),
    "gone.py": "old\n",
    "run.sh": "#!/bin/sh\n",
    "data.bin": bytes(range(256)),
    "crlf.txt": "one\r\ntwo\r\n",
}
FIRST = lines(40).replace("line 10\n", "line ten\nline ten and a half\n")
SECOND = FIRST.replace("line 30\n", "")


class Fork:
    """A repository with upstream, two patches on it as branch `fork`, and their series."""

    def __init__(self, at: Path) -> None:
        self.repo = repository(at / "repo", UPSTREAM)
        self.base = head(self.repo)
        git(self.repo, "checkout", "-q", "-b", "fork")
        texts = {}
        for number, files in enumerate(({"a.py": FIRST}, {"a.py": SECOND, "new.py": "fresh\n"}), 1):
            write(self.repo, files)
            (self.repo / "gone.py").unlink(missing_ok=True)
            commit(self.repo, f"patch {number}")
            texts[f"{number}.patch"] = patch_of(self.repo)
        self.series = series(at / "series", texts)

    def change(self, files: dict[str, bytes | str], message: str = "by hand") -> None:
        write(self.repo, files)
        commit(self.repo, message)

    def audit(self, upstream: str = "main", fork: str = "fork") -> Audit:
        return tree.fork(self.repo, upstream, fork, self.series)


@pytest.fixture
def fork(tmp_path: Path) -> Fork:
    return Fork(tmp_path)


def kinds(made: Audit) -> list[tuple[str, str, int, str]]:
    return [(one.kind, one.path, one.line, one.patch) for one in made.findings]


def test_a_fork_that_is_its_series(fork: Fork) -> None:
    made = fork.audit()
    assert made.findings == ()
    assert made.compared == 7
    runs_of = {(one.path, one.old, one.new, one.patches) for one in made.explained}
    assert runs_of == {
        ("a.py", (10, 11), (10, 12), ("1.patch",)),
        ("a.py", (30, 31), (31, 31), ("2.patch",)),
        ("gone.py", (1, 2), (1, 1), ("1.patch",)),
        ("new.py", (1, 1), (1, 2), ("2.patch",)),
    }


def test_a_line_by_hand_is_named_with_the_nearest_patch_and_the_commit(fork: Fork) -> None:
    fork.change({"a.py": SECOND.replace("line 28\n", "line 28 by hand\n"), "b.py": lines(20) + "more\n"})
    made = fork.audit()
    assert kinds(made) == [("unexplained", "a.py", 29, "2.patch"), ("unexplained", "b.py", 21, "")]
    assert made.findings[0].detail == ("-line 28", "+line 28 by hand")
    assert made.findings[0].commits == (f"{head(fork.repo)[:12]} by hand",)
    assert [one.new for one in made.explained if one.path == "a.py"] == [(10, 12), (31, 31)]
    assert made.notes == (f"no patch is commit {head(fork.repo)[:12]} by hand",)


def test_a_carried_change_that_is_missing(fork: Fork) -> None:
    fork.change({"a.py": FIRST.replace("line ten\nline ten and a half\n", "line 10\n")})
    made = fork.audit()
    assert kinds(made) == [("carried-missing", "a.py", 10, "1.patch"), ("carried-missing", "a.py", 30, "2.patch")]
    assert made.findings[0].detail == ("-line ten", "-line ten and a half", "+line 10")


def test_what_follows_an_unexplained_run_has_its_own_line(fork: Fork) -> None:
    fork.change({"a.py": "first\nsecond\n" + SECOND})
    made = fork.audit()
    assert kinds(made) == [("unexplained", "a.py", 1, "1.patch")]
    assert [one.new for one in made.explained if one.path == "a.py"] == [(12, 14), (33, 33)]


def test_files_that_no_patch_adds_removes_or_renames(fork: Fork) -> None:
    git(fork.repo, "mv", "b.py", "c.py")
    (fork.repo / "run.sh").unlink()
    fork.change({"stray.py": "x\n", "gone.py": "old\n"})
    said = {one.path: one.what for one in fork.audit().findings}
    assert said == {
        "c.py": "renamed from b.py: no patch does it",
        "run.sh": "the file is gone, and no patch removes it",
        "stray.py": "a file of mode 100644 that no patch adds, 1 lines",
        "gone.py": "1.patch removes this file, and it is there",
    }


def test_an_added_file_that_is_not_there(fork: Fork) -> None:
    (fork.repo / "new.py").unlink()
    commit(fork.repo, "without it")
    assert [(one.kind, one.what) for one in fork.audit().findings] == [
        ("carried-missing", "2.patch adds this file, and it is not there")
    ]


def test_modes_line_ends_links_and_bytes(fork: Fork) -> None:
    (fork.repo / "run.sh").chmod(0o755)
    (fork.repo / "b.py").unlink()
    os.symlink("a.py", fork.repo / "b.py")
    fork.change({"crlf.txt": "one\ntwo\n", "data.bin": bytes(range(255, -1, -1)), "a.py": SECOND.replace("\n", "\r\n")})
    said = {one.path: one.what for one in fork.audit().findings}
    assert said["run.sh"] == "it is a file of mode 100755, and has to be a file of mode 100644"
    assert said["crlf.txt"] == said["a.py"] == "its line ends differ, and nothing else"
    assert said["data.bin"] == "other bytes, 256 before and 256 now, that no patch accounts for"
    assert said["b.py"].startswith(("it is a symbolic link, and has to be", "other bytes"))
    assert len(said) == 5


def test_a_submodule_that_points_elsewhere(fork: Fork) -> None:
    git(fork.repo, "update-index", "--add", "--cacheinfo", f"160000,{fork.base},module")
    git(fork.repo, "commit", "-q", "-m", "a module")
    made = fork.audit()
    assert [(one.path, one.what) for one in made.findings] == [("module", "a submodule that no patch adds, 0 lines")]
    git(fork.repo, "branch", "later")
    git(fork.repo, "update-index", "--cacheinfo", f"160000,{head(fork.repo)},module")
    git(fork.repo, "commit", "-q", "-m", "moved")
    found = tree.fork(fork.repo, "later", "fork", None)
    assert [one.path for one in found.findings] == ["module"]
    assert f"no patch takes it from {fork.base}" in found.findings[0].what


def test_a_fork_that_merged_upstream_instead_of_rebasing(fork: Fork) -> None:
    git(fork.repo, "checkout", "-q", "main")
    fork.change({"b.py": lines(21)}, "upstream goes on")
    git(fork.repo, "checkout", "-q", "fork")
    git(fork.repo, "merge", "-q", "--no-edit", "main")
    made = fork.audit()
    assert made.findings == ()
    assert [note for note in made.notes if "merge commits" in note] == [
        f"1 merge commits ({head(fork.repo)[:12]}): upstream was merged, not rebased on"
    ]
    fork.change({"b.py": lines(22)}, "sneaked in")
    again = fork.audit()
    assert kinds(again) == [("unexplained", "b.py", 22, "")]
    assert f"no patch is commit {head(fork.repo)[:12]} sneaked in" in again.notes


def test_an_evil_merge_is_found_by_its_tree(fork: Fork) -> None:
    git(fork.repo, "checkout", "-q", "main")
    fork.change({"b.py": lines(21)}, "upstream goes on")
    git(fork.repo, "checkout", "-q", "fork")
    git(fork.repo, "merge", "-q", "--no-commit", "main")
    fork.change({"run.sh": "#!/bin/sh\nrm -rf /\n"}, "Merge branch main")
    assert kinds(fork.audit()) == [("unexplained", "run.sh", 2, "")]


def test_a_fork_on_an_older_upstream(fork: Fork) -> None:
    git(fork.repo, "checkout", "-q", "main")
    fork.change({"b.py": lines(21)}, "upstream goes on")
    made = fork.audit()
    assert kinds(made) == [("unexplained", "b.py", 21, "")]
    assert "the fork's history does not hold upstream's commit; the trees were compared" in made.notes


def test_without_a_series_everything_is_unexplained(fork: Fork) -> None:
    made = tree.fork(fork.repo, "main", "fork", None)
    assert {one.path for one in made.findings} == {"a.py", "gone.py", "new.py"}
    assert tree.fork(fork.repo, "main", "main", None).findings == ()


@pytest.mark.parametrize("name", ["nowhere", "--all"])
def test_what_is_no_commit(fork: Fork, name: str) -> None:
    with pytest.raises(UsageError, match="there is no commit"):
        fork.audit(fork=name)


def test_no_repository(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no commit"):
        tree.fork(tmp_path / "nothing", "a", "b", None)


def test_nothing_compared_is_an_error(tmp_path: Path) -> None:
    repo = repository(tmp_path / "r", {})
    with pytest.raises(UsageError, match="no file could be compared"):
        tree.fork(repo, "main", "main", None)


def test_a_series_that_does_not_apply(fork: Fork) -> None:
    with pytest.raises(DoesNotApply):
        tree.fork(fork.repo, "fork", "fork", fork.series)


def test_a_bare_repository_in_sha256(tmp_path: Path) -> None:
    repo = tmp_path / "r"
    repo.mkdir()
    git(repo, "init", "-q", "-b", "main", "--object-format=sha256")
    write(repo, {"a": "1\n"})
    commit(repo, "one")
    git(repo, "checkout", "-q", "-b", "fork")
    write(repo, {"a": "2\n"})
    commit(repo, "two")
    git(tmp_path, "clone", "-q", "--bare", "r", "bare")
    assert kinds(tree.fork(tmp_path / "bare", "main", "fork", None)) == [("unexplained", "a", 1, "")]


def test_a_checked_out_pin_with_work_in_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = project(
        tmp_path / "p", ("[Demo] Three heads", core(l3="three = 3")), ("[Demo] Four heads", core(l3="four = 4"))
    )
    one = carried("demo", made)
    stock = tree.pin(one)  # checked out, the series not applied
    assert [(found.kind, found.patch) for found in stock.findings] == [("carried-missing", "0001-three-heads.patch")]
    one.apply()
    before = git(one.repo, "rev-parse", "HEAD"), (one.repo / ".git" / "index").read_bytes()
    clean = tree.pin(one)
    assert (clean.findings, clean.notes) == ((), ())
    assert {run.patches for run in clean.explained} == {("0001-three-heads.patch", "0002-four-heads.patch")}
    write(one.repo, {"demo/stray.py": "x\n", "demo/core.py": (one.repo / "demo/core.py").read_text() + "# end\n"})
    dirty = tree.pin(one)
    assert kinds(dirty) == [
        ("unexplained", "demo/core.py", 35, "0002-four-heads.patch"),
        ("unexplained", "demo/stray.py", 0, ""),
    ]
    assert dirty.notes == ("2 files are not as in HEAD: not committed",)
    assert (git(one.repo, "rev-parse", "HEAD"), (one.repo / ".git" / "index").read_bytes()) == before


@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
def test_a_file_that_the_index_takes_on_trust(tmp_path: Path, flag: str) -> None:
    one = carried("demo", project(tmp_path / "p", ("[Demo] Three heads", core(l3="three = 3"))))
    tree.pin(one)
    one.apply()
    git(one.repo, "update-index", flag, "demo/core.py")
    write(one.repo, {"demo/core.py": (one.repo / "demo/core.py").read_text() + "# end\n"})
    assert kinds(tree.pin(one)) == [("unexplained", "demo/core.py", 35, "0001-three-heads.patch")]


def test_files_that_git_ignores_are_counted(tmp_path: Path) -> None:
    one = carried("demo", project(tmp_path / "p", ("[Demo] Three heads", core(l3="three = 3"))))
    tree.pin(one)
    one.apply()
    write(one.repo, {".gitignore": "*.so\n.gitignore\n", "demo/fast.so": b"\x7fELF"})
    made = tree.pin(one)
    assert (made.findings, made.notes) == ((), ("2 files that git ignores were not compared",))


@pytest.mark.parametrize("attributes", ["*.py -diff\n", "*.py binary\n"])
def test_attributes_of_files_hide_no_patch(fork: Fork, attributes: str) -> None:
    fork.change({".gitattributes": attributes})
    assert fork.audit().notes == (f"no patch is commit {head(fork.repo)[:12]} by hand",)


def test_files_that_git_cannot_take(tmp_path: Path) -> None:
    one = carried("demo", project(tmp_path / "p", ("[Demo] Three heads", core(l3="three = 3"))))
    tree.pin(one)
    (one.repo / "inner").mkdir()
    git(one.repo / "inner", "init", "-q")
    with pytest.raises(UsageError, match="'inner/' does not have a commit checked out"):
        tree.pin(one)


def test_runs_of_files_that_share_nothing_or_all() -> None:
    assert runs([b"a\n"], [b"a\n"]) == []
    assert runs([], [b"a\n"]) == [(0, 0, 0, 1)]
    assert runs([b"a\n", b"b\n"], [b"c\n"]) == [(0, 2, 0, 1)]
    assert runs([b"a\n", b"b\n", b"c\n", b"d\n"], [b"a\n", b"x\n", b"c\n", b"d\n", b"e\n"]) == [
        (1, 2, 1, 2),
        (4, 4, 4, 5),
    ]


def test_owners_follow_lines_through_patches() -> None:
    one = Owned(Entry(0o100644, b"1\n2\n3\n4\n"))
    one.step("p", [b"1\n", b"p\n", b"3\n", b"4\n"])
    one.step("q", [b"1\n", b"p\n", b"q\n", b"4\n"])
    assert one.by == ["", "p", "q", ""]
    assert one.owners(1, 3) == ["p", "q"]
    assert one.gap(1, 3) == (2, 4)
    one.step("r", [b"1\n", b"4\n"])
    assert one.owners(1, 1) == ["p", "q"]
    assert one.nearest(0) == "p"
