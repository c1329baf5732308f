"""Where hunks go, and where they may not go."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest
from repos import lines

from patchline.errors import DoesNotApply, UsageError
from patchline.series import folder
from patchline.series.patch import parsed
from patchline.series.place import place, split
from patchline.series.placement import Placement, Rule
from patchline.series.plan import plan
from patchline.series.trees import FolderTree

HEAD = "--- a/f\n+++ b/f\n"


def placed(text: str, diff: str, rule: Rule = Rule.UNIQUE) -> tuple[str, list[Placement]]:
    """The new text and the placements; the refusals' words where there are any."""
    new, where, refusals = place(
        "f", split(text.encode()), parsed((HEAD + diff).encode(), Path("p"), "p").files[0].hunks, rule
    )
    return "\n".join(map(str, refusals)) if refusals else b"".join(new).decode(), where


def test_the_stated_place_wins_over_others_alike() -> None:
    new, (one,) = placed("x\ny\n" * 3, "@@ -3,2 +3,3 @@\n x\n+new\n y\n")
    assert new == "x\ny\nx\nnew\ny\nx\ny\n"
    assert (one.how, one.offset) == ("stated", 0)


def test_the_only_place_is_reported_with_its_offset() -> None:
    new, (one,) = placed(lines(9), "@@ -1,2 +1,3 @@\n line 5\n+new\n line 6\n")
    assert new == lines(5) + "new\n" + lines(4, 6)
    assert (one.how, one.stated, one.line, one.offset) == ("unique", 1, 5, 4)


def test_the_offset_of_one_hunk_carries_to_the_next_among_lines_alike() -> None:
    text = "top\n" + "x\ny\n" * 4
    new, where = placed("a\n" + text, "@@ -1,2 +1,3 @@\n top\n+new\n x\n@@ -5,2 +6,3 @@\n y\n+newer\n x\n")
    assert [one.how for one in where] == ["unique", "shifted"]
    assert new == "a\ntop\nnew\nx\ny\nx\ny\nnewer\nx\ny\nx\ny\n"


def test_several_places_are_listed() -> None:
    what, _ = placed("x\ny\n" * 3, "@@ -2,2 +2,3 @@\n x\n+new\n y\n")
    assert "not at line 2, and 3 places match: lines 1, 3, 5" in what
    what, _ = placed("x\ny\n" * 99, "@@ -2,2 +2,3 @@\n x\n+new\n y\n")
    assert "99 places match" in what
    assert what.splitlines()[0].endswith("and 79 more")


def test_a_place_before_the_hunk_before_it_is_none() -> None:
    what, _ = placed(lines(30), "@@ -20,2 +20,3 @@\n line 20\n+x\n line 21\n@@ -25,2 +26,3 @@\n line 5\n+y\n line 6\n")
    assert "it matches only at line 5, before the end of the hunk before it" in what


def test_lines_without_context_have_no_place() -> None:
    for text in ("@@ -0,0 +1 @@\n+x\n", "@@ -2,0 +3 @@\n+x\n"):
        what, _ = placed(lines(3), text)
        assert "it has no line to find its place by" in what
    assert placed("", "@@ -0,0 +1 @@\n+x\n")[0] == "x\n"
    what, _ = placed("", "@@ -0,0 +1 @@\n+x\n@@ -0,0 +2 @@\n+y\n")
    assert "it has no line to find its place by" in what


def test_short_context_at_an_end_means_that_end() -> None:
    what, _ = placed("a\n" + lines(3), "@@ -1,3 +1,4 @@\n+x\n line 1\n line 2\n line 3\n")
    assert "not found" in what
    what, _ = placed(lines(3) + "z\n", "@@ -1,3 +1,4 @@\n line 1\n line 2\n line 3\n+x\n")
    assert "not found" in what


def test_a_missing_newline_is_part_of_a_line() -> None:
    what, _ = placed("a\nb\n", "@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+c\n")
    assert "not found" in what
    what, _ = placed("a\nb\nc\n", "@@ -1 +1 @@\n-a\n+A\n\\ No newline at end of file\n")
    assert "without its newline in the middle of the file" in what


def test_every_refused_hunk_is_named_with_what_it_sought() -> None:
    what, _ = placed(
        lines(9),
        "@@ -1,2 +1,3 @@\n q\n+x\n line 2\n@@ -5,2 +6,3 @@\n line 5\n+x\n r\n@@ -7,2 +9,3 @@\n line 7 \n+x\n line 8\n",
    )
    assert [line[:16] for line in what.splitlines() if line.startswith("f: hunk")] == [
        "f: hunk 1 (line ",
        "f: hunk 2 (line ",
        "f: hunk 3 (line ",
    ]
    assert "    | q\n" in what
    assert "it differs in white space or line ends only" in what


def test_where_the_nearest_is_asked_for_it_is_reported() -> None:
    new, (one,) = placed("x\ny\n" * 6, "@@ -4,2 +4,3 @@\n x\n+new\n y\n", Rule.NEAREST)
    assert new == "x\ny\nx\ny\nx\nnew\ny\nx\ny\nx\ny\nx\ny\n"
    assert (one.how, one.offset) == ("nearest", 1)


@pytest.mark.parametrize("rule", Rule)
def test_ten_thousand_moved_hunks_take_seconds(rule: Rule) -> None:
    rng = random.Random(1)
    old = [b"line %d\n" % number if number % 4 else b"\n" for number in range(100_000)]
    drifted = [part for line in old for part in ((line, b"drift\n") if rng.random() < 0.05 else (line,))]
    begun = time.process_time()
    body = b"".join(
        b"@@ -%d,4 +%d,5 @@\n" % (at + 1, at + 1)
        + b"".join(b" " + line for line in old[at : at + 2])
        + b"+new\n"
        + b"".join(b" " + line for line in old[at + 2 : at + 4])
        for at in range(0, 100_000, 10)
    )
    patch = parsed(HEAD.encode() + body, Path("p"), "p")
    _, where, refusals = place("f", drifted, patch.files[0].hunks, rule)
    assert len(where) + len(refusals) == 10_000
    assert len(where) > 5_000
    assert time.process_time() - begun < 10


def test_fifty_megabytes_take_seconds(tmp_path: Path) -> None:
    text = b"".join(b"a line with a number in it, %d\n" % number for number in range(1_500_000))
    assert len(text) > 50_000_000
    (tmp_path / "f").write_bytes(b"first\n" + text)
    diff = "@@ -900000,2 +900000,3 @@\n a line with a number in it, 899999\n+new\n a line with a number in it, 900000\n"
    begun = time.process_time()
    made = plan(FolderTree(tmp_path), [parsed((HEAD + diff).encode(), Path("p"), "p")])
    assert made.steps[0].placements[0].offset == 1
    assert time.process_time() - begun < 10


def test_ten_thousand_files_take_seconds(tmp_path: Path) -> None:
    begun = time.process_time()
    made = "".join(
        f"diff --git a/d{n % 100}/f{n} b/d{n % 100}/f{n}\nnew file mode 100644\n--- /dev/null\n+++ b/d{n % 100}/f{n}\n@@ -0,0 +1 @@\n+-\n"
        for n in range(10_000)
    )
    gone = (
        made.replace("new file", "deleted file")
        .replace("--- /dev/null\n+++ b/", "--- a/")
        .replace("@@ -0,0 +1 @@\n+-", "+++ /dev/null\n@@ -1 +0,0 @@\n--")
    )
    patches = [parsed(text.encode(), Path("p"), "p") for text in (made, gone, made)]
    assert len(plan(FolderTree(tmp_path), patches).total) == 10_000
    assert time.process_time() - begun < 10


def test_a_refusal_writes_nothing_and_names_all(tmp_path: Path) -> None:
    (tmp_path / "f").write_text(lines(3))
    text = f"{HEAD}@@ -1,2 +1,3 @@\n q\n+x\n line 2\n--- a/g\n+++ b/g\n@@ -1,2 +1,3 @@\n q\n+x\n r\n"
    with pytest.raises(DoesNotApply, match=r"(?s)f: hunk 1.*g \(line 7 of the patch\): there is no such file"):
        plan(FolderTree(tmp_path), [parsed(text.encode(), Path("p"), "p")])


def test_what_cannot_be_copied_is_named(tmp_path: Path, own_world: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    os.mkfifo(source / "pipe")
    with pytest.raises(UsageError, match=r"(?s)cannot be copied whole.*pipe"):
        folder.write(source, tmp_path / "out", {})
    assert [path.name for path in tmp_path.iterdir()] == ["source"]
