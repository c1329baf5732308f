"""Diffs that are read, and diffs that are refused because a part of them would be lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from repos import commit, git, lines, mail, patch_of, repository, write

from patchline.errors import DoesNotApply
from patchline.series.patch import Patch, parsed
from patchline.series.placement import Rule
from patchline.series.plan import plan
from patchline.series.refusals import BadPatch
from patchline.series.trees import FolderTree

ONE = "--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n line 1\n-line 2\n+line two\n line 3\n"
TWO = ONE.replace("/f", "/g")
GIT = "diff --git a/f b/f\nindex 1234567..2345678 100644\n" + ONE
MODE = "diff --git a/m b/m\nold mode 100644\nnew mode 100755\n"
RENAME = "diff --git a/x b/y\nsimilarity index 100%\nrename from x\nrename to y\n"


def read(text: str | bytes, *, lenient: bool = False, strip: int = 1) -> Patch:
    return parsed(text.encode() if isinstance(text, str) else text, Path("p.patch"), "p.patch", strip, lenient=lenient)


def paths(patch: Patch) -> list[str]:
    return [diff.path for diff in patch.files]


LOST = {
    "a first diff whose hunk header is broken": (ONE.replace("@@ -1,3", "@@ 1,3") + TWO, "the beginning of a diff whose rest is not there"),
    "a last one": (TWO + ONE.replace("@@ -1,3", "@@ 1,3"), "the beginning of a diff"),
    "a hunk that counts too few": (ONE.replace("-1,3 +1,3", "-1,2 +1,2"), "a line that no hunk counts"),
    "a hunk that counts too many": (ONE.replace("-1,3 +1,3", "-1,4 +1,4"), "the hunk is cut short: 3 of 4 old and 3 of 4 new"),
    "counts of one side": (ONE.replace("-1,3 +1,3", "-1,3 +1,4"), "the hunk"),
    "nothing but context": (ONE.replace("-line 2\n+line two\n", " line 2\n"), "the hunk changes nothing"),
    "the file cut in the middle of a line": (ONE.removesuffix("3\n"), "ends in the middle of a line"),
    "the file cut in the middle of an added line": (ONE.removesuffix(" line 3\n").replace(",3", ",2").removesuffix("two\n"), "ends in the middle of a line"),
    "lines after a signature": (ONE + "-- \n+more\n", "a line that no hunk counts"),
    "a hunk after a signature": (ONE + "-- \n@@ -7 +7 @@\n-a\n+b\n", "a hunk that belongs to no file"),
    "a mode change without its header": (ONE + MODE.replace("diff --git", "diff --gut"), "a line of git's that belongs to no diff"),
    "a rename without its header": (ONE + RENAME.replace("diff --git", "diff --gut"), "a line of git's that belongs to no diff"),
    "that, before a diff": (RENAME.replace("diff --git", "diff --gut") + ONE, "a line of git's that belongs to no diff"),
    "half a rename": (RENAME.replace("rename to y\n", ""), "half of a rename is missing"),
    "two headers run into one": (MODE.replace("new mode 100755\n", "") + MODE.partition("\n")[2], "said twice"),
    "made, and a mode changed": ("diff --git a/m b/m\nnew file mode 100644\n" + MODE.partition("\n")[2], "the header says both create and new mode"),
    "a header without a change": (f"diff --git a/f b/f\nindex 1234567..2345678 100644\n{TWO}".replace("/g", "/f").replace("--- a/f\n", ""), "a header without a change"),
    "other names than its header": (GIT.replace("diff --git a/f b/f", "diff --git a/g b/g"), "--- and +++ name other files than the header"),
    "two names": (GIT.replace("+++ b/f", "+++ b/g").replace("a/f b/f", "a/f b/g"), "two names, f and g, and no rename"),
    "a mode of two names": (MODE.replace("b/m", "b/n"), "no file is named"),
    "null, but no new file": (GIT.replace("--- a/f", "--- /dev/null"), "contradict the header (modify)"),
    "no mode": (MODE.replace("100755", "1007x5"), "not a file mode"),
    "a binary file without data": (GIT + "Binary files a/x and b/x differ\n", "make it with git diff --binary"),
    "a number beyond all files": (ONE.replace("-1,3", "-1," + "9" * 5000), "a file header without a hunk"),
    "a marker before any line": (ONE.replace(" line 1\n", "\\ No newline at end of file\n line 1\n"), "the hunk is cut short"),
    "a binary file's beginning": (ONE + "GIT binary patch\nliteral 1\n", "a binary patch that belongs to no file"),
}  # fmt: skip


@pytest.mark.parametrize("name", LOST)
def test_a_part_that_would_be_lost(name: str) -> None:
    text, why = LOST[name]
    with pytest.raises(BadPatch) as refused:
        read(text)
    assert why in refused.value.what


@pytest.mark.parametrize(
    "name", ["counts of one side", "a first diff whose hunk header is broken", "a hunk that counts too few"]
)
def test_in_a_mail_the_same_parts_are_lost_no_less(name: str) -> None:
    with pytest.raises(BadPatch):
        read(mail(LOST[name][0]))


def test_a_hunk_that_swallows_the_next_header_finds_no_place(tmp_path: Path) -> None:
    write(tmp_path, {"f": lines(3), "g": lines(3)})
    patch = read(ONE.replace("-1,3 +1,3", "-1,4 +1,4") + TWO)
    for rule in Rule:
        with pytest.raises(DoesNotApply, match="f: hunk 1"):
            plan(FolderTree(tmp_path), [patch], rule)


def test_without_a_mail_around_it_a_rule_drops_no_diff() -> None:
    assert paths(read(f"{ONE}\n{TWO}")) == ["f", "g"]
    with pytest.raises(BadPatch, match=r"a line that no hunk counts|prose between two diffs"):
        read(f"{ONE}---\n\n{TWO}")
    assert paths(read(mail(TWO, body=f"As in\n\n{ONE}\nsaid.\n"))) == ["g"]


def test_a_broken_quotation_is_no_matter_where_the_message_ends_with_a_rule() -> None:
    assert paths(read(mail(TWO, body=ONE.replace("@@ -1,3", "@@ 1,3")))) == ["g"]


def test_removed_lines_that_look_like_headers_of_a_file_with_crlf(tmp_path: Path) -> None:
    repo = repository(tmp_path / "r", {"f.sql": "a\r\n-- b\r\n-- c\r\n++ d\r\n"})
    write(repo, {"f.sql": "a\r\n"})
    commit(repo, "x")
    text = patch_of(repo)
    assert "--- b\r\n" in git(repo, "diff", "HEAD~") or "--- b" in text
    git(repo, "reset", "-q", "--hard", "HEAD~")
    change = plan(FolderTree(repo), [read(text.encode())]).total["f.sql"]
    assert change is not None
    assert change.data == b"a\r\n"


def test_a_binary_patch_is_for_one_file_only(tmp_path: Path) -> None:
    repo = repository(tmp_path / "r", {"f": b"\0old" * 9})
    write(repo, {"f": b"\0new"})
    commit(repo, "x")
    text = patch_of(repo)
    git(repo, "reset", "-q", "--hard", "HEAD~")
    plan(FolderTree(repo), [read(text)])
    write(repo, {"f": b"\0other" * 9})
    with pytest.raises(DoesNotApply, match="the binary patch is for another file than the one in the tree"):
        plan(FolderTree(repo), [read(text)])
    with pytest.raises(BadPatch, match="whose index line has no full ids"):
        read("\n".join(line[:20] + line[-30:] if line.startswith("index") else line for line in text.split("\n")))
    with pytest.raises(BadPatch, match=r"does not decode|holds"):
        read(text.replace("literal 4", "literal 5"))


@pytest.mark.parametrize(
    ("name", "quoted"),
    [
        ("plain", None),
        ("with blank", None),
        ("two  blanks ", None),
        ("x b/x", None),
        ("a/b/a", None),
        ("tab\t", r'"{}/tab\t"'),
        ('q"', r'"{}/q\""'),
        ("ü", r'"{}/\303\274"'),
    ],
)
def test_names_of_a_header_that_stands_alone(name: str, quoted: str | None) -> None:
    old, new = ((quoted or "{}/" + name.replace("{", "")).format(end) for end in "ab")
    (diff,) = read(f"diff --git {old} {new}\nold mode 100644\nnew mode 100755\n").files
    assert (diff.old, diff.new) == (name, name)


def test_strip_levels() -> None:
    assert paths(read(ONE.replace("a/f", "f").replace("b/f", "f"), strip=0)) == ["f"]
    assert paths(read(ONE.replace("a/f", "x/a/f").replace("b/f", "x/b/f"), strip=2)) == ["f"]
    with pytest.raises(BadPatch, match="no file is named, once -p3 is stripped"):
        read(ONE, strip=3)
    assert paths(read(RENAME, strip=1)) == ["y"]


def test_a_loop_of_links_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "l").symlink_to("l")
    for rule in Rule:
        with pytest.raises(DoesNotApply):
            plan(FolderTree(tmp_path), [read(ONE.replace("/f", "/l/f"))], rule)


def test_a_mode_that_the_renamed_file_has_not(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("x\n")
    text = RENAME.replace("similarity", "old mode 100755\nnew mode 100644\nsimilarity")
    with pytest.raises(DoesNotApply, match="its mode is 100644; the patch changes it from 100755"):
        plan(FolderTree(tmp_path), [read(text)])


def test_long_files_of_one_line(tmp_path: Path) -> None:
    text = lines(200_000)
    body = "".join(f"+{line}\n" for line in text.splitlines())
    (diff,) = read(f"--- /dev/null\n+++ b/f\n@@ -0,0 +1,200000 @@\n{body}").files
    assert len(diff.hunks[0].new) == 200_000


@pytest.mark.parametrize("name", [r'"b/\2 4"', r'"b/f', r'"b/f"x"', r'"b/\x41"'])
def test_names_with_broken_quotes(name: str) -> None:
    for text in (ONE.replace("b/f", name), RENAME.replace("rename to y", f"rename to {name}")):
        with pytest.raises(BadPatch):
            read(text)
