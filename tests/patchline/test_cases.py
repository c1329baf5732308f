"""The cases that carriers of patches ran into, by number, through the command line."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from repos import QUIET, commit, files_of, git, head, lines, mail, patch_of, repository, series, write
from verbs import Ended, patchline


def changed(repo: Path, files: dict[str, bytes | str], message: str = "change it") -> str:
    """Changes files in a branch of `repo`, gives the patch, and goes back to where it was."""
    was = head(repo)
    write(repo, files)
    commit(repo, message)
    text = patch_of(repo)
    git(repo, "reset", "-q", "--hard", was)
    return text


def apply(repo: Path, file: Path, *words: object) -> Ended:
    return patchline("apply", "--repo", repo, "--series", file, *words)


def refused(ended: Ended, code: int, *parts: str) -> None:
    """The exit code, and every part in the message, and no traceback."""
    assert (ended.exit, ended.out) == (code, ""), (ended.exit, ended.err)
    assert "Traceback" not in ended.err
    for part in parts:
        assert part in ended.err, ended.err


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


ONE = "--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n line 1\n-line 2\n+line two\n line 3\n"


# 1: the tree lies in a subfolder of another repository


def test_1_subfolder_of_another_repository_as_repo(tmp_path: Path) -> None:
    outer = repository(tmp_path / "outer", {"inner/f": lines(3)})
    before = files_of(outer)
    refused(
        apply(outer / "inner", series(tmp_path / "s", {"p.patch": ONE})),
        2,
        "is a subfolder of the git work tree",
        "--source",
    )
    assert files_of(outer) == before


def test_1_subfolder_of_another_repository_as_source(tmp_path: Path) -> None:
    outer = repository(tmp_path / "outer", {"inner/f": lines(3)})
    file = series(tmp_path / "s", {"p.patch": ONE})
    ended = patchline("apply", "--source", outer / "inner", "--series", file, "--out", outer / "out")
    assert ended.exit == 0, ended.err
    assert (outer / "out" / "f").read_text() == "line 1\nline two\nline 3\n"
    assert (outer / "inner" / "f").read_text() == lines(3)


# 2: a hunk whose function is not there, only similar ones


def test_2_only_similar_functions(tmp_path: Path) -> None:
    body = "    x = 1\n    return x\n"
    repo = repository(tmp_path / "r", {"f.py": f"def a():\n{body}\n\ndef b():\n{body}"})
    diff = "--- a/f.py\n+++ b/f.py\n@@ -9,3 +9,3 @@\n def c():\n-    x = 1\n+    x = 2\n     return x\n"
    ended = apply(repo, series(tmp_path / "s", {"p.patch": diff}))
    refused(ended, 3, "p.patch does not apply; nothing was written", "f.py: hunk 1 (line 3 of the patch)", "| def c():")
    assert git(repo, "status", "--porcelain") == ""


# 4: the same patch twice


def test_4_applied_already_reads_unlike_a_conflict(tmp_path: Path) -> None:
    repo = repository(tmp_path / "r", {"f": lines(9), "g": "other\n"})
    file = series(tmp_path / "s", {"p.patch": ONE, "q.patch": ONE})
    refused(apply(repo, file), 3, "q.patch does not apply", "looks already applied")
    file = series(tmp_path / "t", {"p.patch": ONE.replace("line 1", "line x")})
    ended = apply(repo, file)
    refused(ended, 3, "not found at line 1 or anywhere else")
    assert "already applied" not in ended.err


# 5: a message that quotes a diff

QUOTED = "It reads:\n\n    --- a/f\n    +++ b/f\n    @@ -1 +1 @@\n    -line 1\n    +never\n\nand\n\n"
BARE = "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n-line 1\n+never\n line 2\n\nwas not enough.\n"


def test_5_only_the_real_diff_applies(tmp_path: Path) -> None:
    repo = repository(tmp_path / "r", {"f": lines(3)})
    file = series(tmp_path / "s", {"p.patch": mail(ONE, "quote", QUOTED + BARE)})
    ended = apply(repo, file)
    assert ended.exit == 0, ended.err
    assert (repo / "f").read_text() == "line 1\nline two\nline 3\n"
    assert git(repo, "log", "-1", "--format=%B").rstrip("\n") == f"quote\n\n{(QUOTED + BARE).rstrip()}"


def test_5_an_abridged_quotation(tmp_path: Path) -> None:
    repo = repository(tmp_path / "r", {"f": lines(3)})
    body = "diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1,30 +1,30 @@\n-line 1\n+never\n[...]\n"
    assert apply(repo, series(tmp_path / "s", {"p.patch": mail(ONE, "quote", body)})).exit == 0
    assert (repo / "f").read_text() == "line 1\nline two\nline 3\n"


def test_5_a_quotation_that_nothing_tells_apart(tmp_path: Path) -> None:
    repo = repository(tmp_path / "r", {"f": lines(3)})
    refused(apply(repo, series(tmp_path / "s", {"p.patch": BARE + "\n" + ONE})), 3, "line 8: prose between two diffs")


def test_a_removed_line_of_two_dashes_is_not_the_end_of_a_message(tmp_path: Path) -> None:
    repo = repository(tmp_path / "r", {"f": "a\nb\n--\n", "g": "a\n"})
    text = changed(repo, {"f": "a\nb\n", "g": "b\n"})
    plain = text[text.index("diff --git") :]
    assert "\n---\n" in plain
    assert apply(repo, series(tmp_path / "s", {"p.patch": plain})).exit == 0
    assert ((repo / "f").read_text(), (repo / "g").read_text()) == ("a\nb\n", "b\n")


# 6: tags in a subject


def test_6_tags_of_a_subject_stay(tmp_path: Path) -> None:
    repo = repository(tmp_path / "r", {"f": lines(3)})
    for subject in ("[Bugfix][NIXL] x", "[PATCH 2/3] [Bugfix][NIXL] x"):
        git(repo, "reset", "-q", "--hard", git(repo, "rev-list", "--max-parents=0", "HEAD").strip())
        assert apply(repo, series(tmp_path / "s", {"p.patch": mail(ONE, subject)})).exit == 0
        assert git(repo, "log", "-1", "--format=%s").strip() == "[Bugfix][NIXL] x"


# 7: CRLF


def test_7_files_with_crlf_keep_their_bytes(tmp_path: Path) -> None:
    repo = repository(tmp_path / "r", {"f": "a\r\nb\r\nc\n"})
    file = series(tmp_path / "s", {"p.patch": changed(repo, {"f": "a\r\nB\r\nc\n"})})
    assert apply(repo, file).exit == 0
    assert (repo / "f").read_bytes() == b"a\r\nB\r\nc\n"
    assert git(repo, "cat-file", "blob", "HEAD:f") == "a\r\nB\r\nc\n"


def test_7_a_patch_saved_with_crlf(tmp_path: Path) -> None:
    repo = repository(tmp_path / "r", {"f": lines(3)})
    file = series(tmp_path / "s", {"p.patch": mail(ONE).replace("\n", "\r\n").encode()})
    refused(apply(repo, file), 3, "p.patch: the patch file was saved with CRLF line ends")


def test_7_a_context_that_differs_in_line_ends_says_so(tmp_path: Path) -> None:
    repo = repository(tmp_path / "r", {"f": lines(3).replace("\n", "\r\n")})
    refused(apply(repo, series(tmp_path / "s", {"p.patch": ONE})), 3, "differs in white space or line ends only")


# 8: modes


def test_8_modes(tmp_path: Path) -> None:
    repo = repository(tmp_path / "r", {"old.sh": "#!/bin/sh\n"})
    (repo / "old.sh").chmod(0o755)
    write(repo, {"new.sh": "#!/bin/sh\n"})
    (repo / "new.sh").chmod(0o755)
    commit(repo, "modes")
    text = patch_of(repo)
    git(repo, "reset", "-q", "--hard", "HEAD~")
    assert apply(repo, series(tmp_path / "s", {"p.patch": text})).exit == 0
    assert {name: kind for name, (kind, _) in files_of(repo).items()} == {"new.sh": "755", "old.sh": "755"}
    assert git(repo, "ls-tree", "HEAD").count("100755") == 2
    assert {path.stat().st_mode & 0o777 for path in repo.glob("*.sh")} == {0o777 & ~umask()}
    out = tmp_path / "out"
    git(repo, "reset", "-q", "--hard", "HEAD~")
    assert patchline("apply", "--source", repo, "--series", tmp_path / "s" / "series", "--out", out).exit == 0
    assert {kind for kind, _ in files_of(out).values()} == {"755"}


# 9: a binary file's diff without its data


def test_9_binary_without_data(tmp_path: Path) -> None:
    repo = repository(tmp_path / "r", {"f": b"\0\1\2"})
    write(repo, {"f": b"\0\1\3"})
    text = git(repo, "diff")
    git(repo, "checkout", "-q", "f")
    refused(apply(repo, series(tmp_path / "s", {"p.patch": text})), 3, "make it with git diff --binary")


def test_9_binary_with_data(tmp_path: Path) -> None:
    old, new = bytes(range(256)) * 40, bytes(range(256)) * 20 + b"x" + bytes(range(256)) * 20
    repo = repository(tmp_path / "r", {"delta": old, "gone": b"\0" * 99})
    (repo / "gone").unlink()
    write(repo, {"delta": new, "literal": b"\0\xff" * 500})
    commit(repo, "binary")
    text, wanted = patch_of(repo), git(repo, "rev-parse", "HEAD^{tree}")
    assert "delta " in text
    git(repo, "reset", "-q", "--hard", "HEAD~")
    assert apply(repo, series(tmp_path / "s", {"p.patch": text})).exit == 0
    assert git(repo, "rev-parse", "HEAD^{tree}") == wanted


# 10: a last line without newline


@pytest.mark.parametrize(
    ("old", "new"), [("a\nb", "a\nb\nc\n"), ("a\nb", "a\n"), ("a\nb\n", "a\nb"), ("a\nb", "a\nc"), ("a", "")]
)
def test_10_last_line_without_newline(tmp_path: Path, old: str, new: str) -> None:
    repo = repository(tmp_path / "r", {"f": old})
    file = series(tmp_path / "s", {"p.patch": changed(repo, {"f": new})})
    ended = apply(repo, file)
    assert ended.exit == 0, ended.err
    assert (repo / "f").read_text() == new


def test_10_stripped_marker(tmp_path: Path) -> None:
    repo = repository(tmp_path / "r", {"f": "a\nb"})
    text = changed(repo, {"f": "a\nc"}).replace("\\ No newline at end of file\n", "")
    refused(apply(repo, series(tmp_path / "s", {"p.patch": text})), 3, "f: hunk 1")


# 11: absence


def test_11_empty_patch_file(tmp_path: Path) -> None:
    repo = repository(tmp_path / "r", {"f": lines(3)})
    refused(apply(repo, series(tmp_path / "s", {"p.patch": ""})), 3, "p.patch: the patch file is empty")
    refused(apply(repo, series(tmp_path / "t", {"p.patch": "only\nprose\n"})), 3, "p.patch: it holds no change")


def test_11_series_of_comments_only(tmp_path: Path) -> None:
    repo = repository(tmp_path / "r", {"f": lines(3)})
    refused(apply(repo, series(tmp_path / "s", {}, "# nothing\n\n  # here\n")), 2, "names no patch")


def test_11_missing_series(tmp_path: Path) -> None:
    repo = repository(tmp_path / "r", {"f": lines(3)})
    refused(apply(repo, tmp_path / "s" / "series"), 2, "there is no series file", "next:")


# 14: folder and series file disagree, three ways in one run


def test_14_all_disagreements_in_one_run(tmp_path: Path) -> None:
    write(tmp_path, {"builds/upstreams.toml": ""})
    series(
        tmp_path / "patches" / "vllm" / "1",
        {"a.patch": mail(ONE), "stray.patch": mail(ONE)},
        "a.patch\na.patch\ngone.patch\n",
    )
    ended = patchline("lint", "--json", cwd=tmp_path)
    assert ended.exit == 8
    found = [finding["what"] for finding in ended.data["findings"]]
    for what in (
        "a.patch: listed 2 times",
        "gone.patch: listed, but there is no such file",
        "stray.patch: there, but not listed",
    ):
        assert what in found


def test_14_a_foreign_series(tmp_path: Path) -> None:
    repo = repository(tmp_path / "r", {"f": lines(3)})
    file = series(tmp_path / "s", {"a.patch": ONE, "README": "not a patch"}, "a.patch\na.patch\ngone.patch\n")
    refused(apply(repo, file), 2, "a.patch: listed 2 times", "gone.patch: listed, but there is no such file")


# 15: what may not be written

NEW = "--- /dev/null\n+++ {}\n@@ -0,0 +1 @@\n+x\n"


@pytest.mark.parametrize(
    "target",
    [
        "b/../x", "b/a/../../x", "/etc/patchline-was-here", "b//etc/patchline-was-here/..", "b/.git/hooks/x", "b/.GIT/config", "b/sub/.git/config",
        "b/.git./x", "b/.git /x", "b/.git . ./x", "b/.g\u200cit/x", "b/.Gi\u200dT/x", "b/git~1/x", "b/.git::$INDEX_ALLOCATION/x", "b/a\\..\\..\\x",
        "b/.git\\config", "b/" + "x" * 256, "b/" + "é" * 128, "b/" + "d/" * 2100 + "x", "b/C:/x", "b/./x", "b/" + "../" * 40 + "tmp/x",
    ],
)  # fmt: skip
@pytest.mark.parametrize("form", ["plain", "git"])
def test_15_targets(tmp_path: Path, target: str, form: str) -> None:
    repo = repository(tmp_path / "r", {"f": lines(3)})
    name = target.encode()
    quoted = (
        b'"'
        + b"".join(bytes([byte]) if 32 <= byte < 127 and byte not in b'"\\' else b"\\%03o" % byte for byte in name)
        + b'"'
    )
    head = b"" if form == "plain" else b"diff --git " + quoted + b" " + quoted + b"\nnew file mode 100644\n"
    text = head + b"--- /dev/null\n+++ " + quoted + b"\n@@ -0,0 +1 @@\n+x\n"
    before, outside = files_of(repo), sorted(os.listdir(tmp_path))
    hooks = sorted((repo / ".git").rglob("*"))
    file = series(tmp_path / "s", {"good.patch": ONE, "p.patch": text})
    refused(apply(repo, file), 3, "p.patch does not apply; nothing was written")
    refused(patchline("apply", "--source", repo, "--series", file, "--out", tmp_path / "out"), 3, "nothing was written")
    assert files_of(repo) == before
    assert sorted(os.listdir(tmp_path)) == sorted([*outside, "s"])
    assert [path for path in (repo / ".git").rglob("*") if path not in hooks and "patchline" not in path.parts] == []
    assert not Path("/etc/patchline-was-here").exists()


def test_15_symlink_created_then_written_through(tmp_path: Path) -> None:
    repo = repository(tmp_path / "r", {"f": lines(3)})
    link = "diff --git a/l b/l\nnew file mode 120000\nindex 0000000..1\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+/tmp\n\\ No newline at end of file\n"
    file = series(tmp_path / "s", {"p.patch": link + NEW.format("b/l/x")})
    refused(apply(repo, file), 3, "a symbolic link; a patch writes regular files only")


def test_15_symlink_of_the_tree_followed_or_retargeted(tmp_path: Path) -> None:
    repo = repository(tmp_path / "r", {"d/f": lines(3)})
    (repo / "l").symlink_to("d")
    (repo / "m").symlink_to("d/f")
    commit(repo, "links")
    through = series(tmp_path / "s", {"p.patch": ONE.replace("/f", "/l/f")})
    refused(apply(repo, through), 3)
    retarget = "--- a/m\n+++ b/m\n@@ -1 +1 @@\n-d/f\n\\ No newline at end of file\n+/etc/passwd\n\\ No newline at end of file\n"
    refused(apply(repo, series(tmp_path / "t", {"p.patch": retarget})), 3, "m: it is a symbolic link in the tree")
    new = series(tmp_path / "u", {"p.patch": NEW.format("b/l/x")})
    refused(apply(repo, new), 3, "l is a symbolic link in the tree; nothing is written through it")
    for file in (through, new, tmp_path / "t" / "series"):
        ended = patchline("apply", "--source", repo, "--series", file, "--out", tmp_path / "out", "--nearest")
        refused(ended, 3)
    assert not (tmp_path / "out").exists()


def test_15_ed_script_and_context_diff(tmp_path: Path) -> None:
    repo = repository(tmp_path / "r", {"f": lines(3)})
    refused(apply(repo, series(tmp_path / "s", {"p.patch": "--- a/f\n+++ b/f\n2c\nx\n.\n"})), 3, "an ed script")
    refused(apply(repo, series(tmp_path / "t", {"p.patch": ONE + "2d\n1!touch x\n"})), 3, "an ed script")
    context = "*** a/f\n--- b/f\n***************\n*** 1,3 ****\n--- 1,3 ----\n"
    refused(apply(repo, series(tmp_path / "u", {"p.patch": context})), 3, "a context diff")


def test_15_modes_that_are_no_files(tmp_path: Path) -> None:
    repo = repository(tmp_path / "r", {"f": lines(3)})
    module = "diff --git a/m b/m\nnew file mode 160000\nindex 0000000..1234567\n--- /dev/null\n+++ b/m\n@@ -0,0 +1 @@\n+Subproject commit 1\n"
    refused(apply(repo, series(tmp_path / "s", {"p.patch": module})), 3, "a submodule")
    retype = "diff --git a/f b/f\nold mode 100644\nnew mode 120000\n"
    refused(apply(repo, series(tmp_path / "t", {"p.patch": retype})), 3, "a symbolic link")


# git am is the measure of what a commit is


def test_commits_are_what_git_am_makes(tmp_path: Path) -> None:
    repo = repository(tmp_path / "r", {"f": lines(30), "d/g": lines(30), "gone": "x\n", "mv": lines(20)})
    base = head(repo)
    for number in range(4):
        write(
            repo,
            {
                "f": (repo / "f").read_text().replace(f"line {number + 3}\n", f"grüße {number}\n"),
                f"new{number}": "x\n" * number,
            },
        )
        if number == 2:
            (repo / "gone").unlink()
            git(repo, "mv", "mv", "d/moved")
        commit(repo, f"[Area] Änderung {number}\n\nBody {number}\n  indented\n\nSigned-off-by: Ann <ann@example.org>")
    git(repo, "format-patch", "-q", "-o", str(tmp_path / "s"), base)
    names = sorted(path.name for path in (tmp_path / "s").iterdir())
    file = series(tmp_path / "s", {}, "".join(f"{name}\n" for name in names))
    git(repo, "reset", "-q", "--hard", base)
    git(
        repo,
        "am",
        "-q",
        "--keep-non-patch",
        "--committer-date-is-author-date",
        *(str(tmp_path / "s" / name) for name in names),
    )
    form = "--format=%T %an %ae %ad %s%n%b"
    wanted = git(repo, "log", "--date=raw", form, f"{base}..")
    git(repo, "reset", "-q", "--hard", base)
    assert apply(repo, file).exit == 0
    assert git(repo, "log", "--date=raw", form, f"{base}..") == wanted
    assert git(repo, "status", "--porcelain") == ""
    assert git(repo, "fsck", "--strict") == ""


def test_same_commits_whatever_the_configuration(tmp_path: Path) -> None:
    repo = repository(tmp_path / "r", {"f": lines(3)})
    file = series(tmp_path / "s", {"p.patch": mail(ONE)})
    ids = set()
    for at, env in enumerate(
        ({}, {"TZ": "Asia/Kathmandu", "LANG": "de_DE.UTF-8", "LC_ALL": "C"}, {"HOME": str(tmp_path), "TZ": "UTC"})
    ):
        (tmp_path / ".gitconfig").write_text(
            "[user]\n name = x\n email = y\n[commit]\n gpgSign = true\n[core]\n abbrev = 7\n"
        )
        copy = tmp_path / f"copy{at}"
        git(tmp_path, "clone", "-q", str(repo), str(copy))
        ended = patchline("apply", "--repo", copy, "--series", file, "--json", env=env)
        assert ended.exit == 0, ended.err
        ids.add(ended.data["head"])
    assert len(ids) == 1


def test_twice_is_nothing_to_do(tmp_path: Path) -> None:
    repo = repository(tmp_path / "r", {"f": lines(3)})
    file = series(tmp_path / "s", {"p.patch": mail(ONE)})
    first, second = (patchline("apply", "--repo", repo, "--series", file, "--json").data for _ in range(2))
    assert (first["changed"], second["changed"]) == (True, False)
    assert first["head"] == second["head"] == head(repo)


def test_branch(tmp_path: Path) -> None:
    repo = repository(tmp_path / "r", {"f": lines(3)})
    base, file = head(repo), series(tmp_path / "s", {"p.patch": mail(ONE)})
    assert apply(repo, file, "--branch", "carried").exit == 0
    assert git(repo, "symbolic-ref", "HEAD").strip() == "refs/heads/carried"
    assert git(repo, "rev-parse", "main").strip() == base
    git(repo, "checkout", "-q", "main")
    refused(apply(repo, file, "--branch", "carried"), 5, "there is a branch carried already")
    refused(apply(repo, file, "--branch", "a..b"), 2, "'a..b' cannot be a branch's name")
    assert head(repo) == base


def test_dirty_is_refused_and_named(tmp_path: Path) -> None:
    repo = repository(tmp_path / "r", {"f": lines(3)})
    file = series(tmp_path / "s", {"p.patch": mail(ONE)})
    write(repo, {"f": "mine\n"})
    refused(apply(repo, file), 5, "has changes that are not committed", "  f")
    git(repo, "add", "f")
    refused(apply(repo, file), 5, "has changes that are not committed", "  f")
    assert (repo / "f").read_text() == "mine\n"


def test_untracked_in_the_way(tmp_path: Path) -> None:
    repo = repository(tmp_path / "r", {"f": lines(3)})
    write(repo, {"new/x": "mine\n", "other": "stays\n"})
    for target in ("b/new/x", "b/new", "b/other/y"):
        refused(
            apply(repo, series(tmp_path / "s", {"p.patch": NEW.format(target)})),
            5,
            "untracked files",
            "nothing was changed",
        )
    assert (repo / "new" / "x").read_text() == "mine\n"
    assert git(repo, "rev-list", "--count", "HEAD").strip() == "1"


def test_line_ends_of_the_users_checkout(tmp_path: Path) -> None:
    repo = repository(tmp_path / "r", {"f": lines(3)})
    (tmp_path / ".gitconfig").write_text("[core]\n autocrlf = true\n")
    env = os.environ | QUIET | {"HOME": str(tmp_path), "GIT_CONFIG_GLOBAL": str(tmp_path / ".gitconfig")}
    subprocess.run(["git", "clone", "-q", repo, tmp_path / "c"], env=env, check=True)
    assert b"\r\n" in (tmp_path / "c" / "f").read_bytes()
    ended = patchline("apply", "--repo", tmp_path / "c", "--series", series(tmp_path / "s", {"p.patch": ONE}), env=env)
    assert ended.exit == 0, ended.err
    assert (tmp_path / "c" / "f").read_bytes() == b"line 1\r\nline two\r\nline 3\r\n"
    assert git(tmp_path / "c", "cat-file", "blob", "HEAD:f") == "line 1\nline two\nline 3\n"
    assert (
        subprocess.run(["git", "status", "--porcelain"], cwd=tmp_path / "c", env=env, capture_output=True).stdout == b""
    )


def test_json_errors_and_unknown_verbs(tmp_path: Path) -> None:
    ended = patchline("apply", "--json", "--repo", tmp_path, "--series", tmp_path / "series")
    assert ended.exit == 2
    assert ended.data["error"]["kind"] == "UsageError"
    refused(patchline("aply"), 2, "there is no verb 'aply'", "python -m patchline apply")
    refused(patchline("apply", "vllm", "--repo", "x"), 2, "give one of")
    refused(patchline("apply", "--repo", "x", "--series", "y", "--out", "z"), 2, "--out does not go with repo")


def test_a_file_becomes_a_folder_and_back(tmp_path: Path) -> None:
    repo = repository(tmp_path / "r", {"d": "x\n", "e/f": "y\n", "keep": "z\n"})
    (repo / "d").unlink()
    (repo / "e" / "f").unlink()
    (repo / "e").rmdir()
    write(repo, {"d/f": "new\n", "e": "file\n"})
    commit(repo, "swap")
    text, wanted = patch_of(repo, "--no-renames"), files_of(repo)
    git(repo, "reset", "-q", "--hard", "HEAD~")
    ended = apply(repo, series(tmp_path / "s", {"p.patch": text}))
    assert ended.exit == 0, ended.err
    assert files_of(repo) == wanted
    assert git(repo, "status", "--porcelain") == ""


def test_renames_and_copies_speak_of_the_tree_before_the_patch(tmp_path: Path) -> None:
    repo = repository(
        tmp_path / "r",
        {"a": "apple\n" * 300, "b": "".join(f"berry {n * n}\n" for n in range(400)), "c": lines(20, 200)},
    )
    git(repo, "mv", "a", "t")
    git(repo, "mv", "b", "a")
    git(repo, "mv", "t", "b")
    write(repo, {"c2": (repo / "c").read_text(), "c": (repo / "c").read_text().replace("line 205\n", "five\n")})
    commit(repo, "swap and copy")
    text, wanted = patch_of(repo, "-B", "-M", "-C", "--find-copies-harder"), files_of(repo)
    assert "rename from a" in text
    assert "copy from c" in text
    git(repo, "reset", "-q", "--hard", "HEAD~")
    ended = apply(repo, series(tmp_path / "s", {"p.patch": text}))
    assert ended.exit == 0, ended.err
    assert files_of(repo) == wanted


# 3 and 13: what upstream has already is never applied a second time


def test_3_an_append_that_upstream_has_with_more_after_it(tmp_path: Path) -> None:
    body = "".join(f"def f{number}():\n    return {number}\n\n\n" for number in range(3))
    repo = repository(tmp_path / "r", {"f.py": body})
    text = changed(repo, {"f.py": body + "def ours():\n    return 9\n"}, "append")
    write(repo, {"f.py": body + "def ours():\n    return 9\n\n\ndef theirs():\n    return 10\n"})
    upstream = commit(repo, "upstream")
    refused(apply(repo, series(tmp_path / "s", {"p.patch": text})), 3, "f.py: hunk 1", "it looks already applied")
    assert head(repo) == upstream


def test_13_two_of_ours_squashed_upstream_and_a_neighbour_edited(tmp_path: Path) -> None:
    repo = repository(tmp_path / "r", {"f": lines(20)})
    base = head(repo)
    first = lines(20).replace("line 9\n", "nine\n")
    second = first.replace("line 11\n", "eleven\n")
    for number, text in enumerate((first, second)):
        write(repo, {"f": text})
        commit(repo, f"ours {number}")
    git(repo, "format-patch", "-q", "-o", str(tmp_path / "s"), base)
    file = series(tmp_path / "s", {}, "".join(f"{path.name}\n" for path in sorted((tmp_path / "s").iterdir())))
    for text in (second, second.replace("line 12\n", "twelve\n"), second.replace("line 8\n", "eight\n")):
        git(repo, "reset", "-q", "--hard", base)
        write(repo, {"f": text})
        upstream = commit(repo, "squashed")
        refused(apply(repo, file), 3, "0001-ours-0.patch does not apply", "f: hunk 1")
        assert head(repo) == upstream
