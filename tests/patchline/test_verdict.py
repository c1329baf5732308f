"""Verdicts: what a patch is on another version, with the evidence; cases 3, 4, 13 and 21 among them."""

from __future__ import annotations

from pathlib import Path

import pytest
from rebasing import judged, patches_on, result, verdicts
from repos import head, mail, repository

from patchline.errors import DoesNotApply
from patchline.rebase.judge import Behaves, Judge
from patchline.rebase.words import Behaviour, Fate
from patchline.series.patch import parsed
from patchline.series.trees import CommitTree


def function(name: str, *body: str) -> str:
    return f"def {name}(total, rank):\n" + "".join(f"    {line}\n" for line in body) + "\n\n"


HEADS = function("heads", "count = total // rank", "if count < 1:", "    count = 1", "return count")
OFFSET = function("offset", "begin = rank * total", "begin += 16", "return begin")
NAMES = function("names", "prefix = 'rank'", "return [f'{prefix}{rank}' for _ in range(total)]")
BASE = f"import os\n\n\n{HEADS}{OFFSET}{NAMES}"
OURS = BASE.replace("begin += 16", "begin += 32")
"""One line changed in the middle."""


def test_byte_identical_context_at_the_stated_line_applies(tmp_path: Path) -> None:
    done = judged(tmp_path, {"a.py": BASE}, [{"a.py": OURS}], {"a.py": BASE, "b.py": "x = 1\n"})
    assert verdicts(done) == ["applies"]
    assert result(done, "a.py") == OURS


def test_an_offset_is_moved_and_the_hunks_after_it_are_shifted(tmp_path: Path) -> None:
    both = OURS.replace("'rank'", "'core'")
    new = f"import re\nimport sys\n{BASE}"
    done = judged(tmp_path, {"a.py": BASE}, [{"a.py": both}], {"a.py": new})
    assert verdicts(done) == ["moved"]
    assert [hunk.line - hunk.stated for hunk in done[0].judged.hunks] == [2]
    assert result(done, "a.py") == f"import re\nimport sys\n{both}"


def test_changed_context_is_merged_from_the_patches_own_pin(tmp_path: Path) -> None:
    new = BASE.replace("def offset(total, rank)", "def offset(total, rank, extra)")
    done = judged(tmp_path, {"a.py": BASE}, [{"a.py": OURS}], {"a.py": new})
    assert verdicts(done) == ["moved"]
    assert done[0].judged.hunks[0].fate is Fate.MERGED
    assert result(done, "a.py") == new.replace("begin += 16", "begin += 32")


def test_a_changed_line_is_a_conflict_with_all_sides(tmp_path: Path) -> None:
    new = BASE.replace("begin += 16", "begin += 64")
    done = judged(tmp_path, {"a.py": BASE}, [{"a.py": OURS}], {"a.py": new})
    assert verdicts(done) == ["conflicts"]
    conflict = done[0].judged.conflicts[0]
    assert (conflict.base, conflict.ours, conflict.theirs) == tuple(f"    begin += {n}\n" for n in (16, 64, 32))
    assert (conflict.path, conflict.hunks, conflict.line) == (
        "a.py",
        (1,),
        new.split("\n").index("    begin += 64") + 1,
    )
    assert conflict.upstream_change == ["-     begin += 16", "+     begin += 64"]
    assert b"<<<<<<< demo==2.0\n" in done[0].marked["a.py"].data
    assert done[0].changes == {}


def test_a_place_in_another_function_is_no_place(tmp_path: Path) -> None:
    """The lines stand twice; upstream changed the function that is meant, and the other one stays."""
    twins = function("one", "begin = 0", "begin += 16", "return begin") + function(
        "two", "begin = 0", "begin += 16", "return begin"
    )
    ours = twins.replace("+= 16", "+= 32", 1)
    new = twins.replace("+= 16", "+= 64", 1).replace("def one(total, rank):\n", "def one(total, rank):\n")
    plain = [f"{line}\n" for line in ("same", "same", "same")]
    old = "".join([*plain, twins])
    done = judged(tmp_path, {"a.py": old}, [{"a.py": "".join([*plain, ours])}], {"a.py": "".join([*plain, new])})
    assert verdicts(done) == ["conflicts"]


def test_what_upstream_made_too_is_upstream(tmp_path: Path) -> None:
    done = judged(tmp_path, {"a.py": BASE}, [{"a.py": OURS}], {"a.py": f"# new\n{OURS}"})
    assert verdicts(done) == ["upstream"]
    assert done[0].changes == {}
    assert done[0].judged.evidence == ("reverse application: 1 of 1 hunks stand in demo==2.0",)


MORE = function("more", "wide = total * rank", "return wide")


def test_3_an_appended_function_that_upstream_has_with_another_after_it(tmp_path: Path) -> None:
    new = BASE + MORE + function("last", "return total")
    assert verdicts(judged(tmp_path, {"a.py": BASE}, [{"a.py": BASE + MORE}], {"a.py": new})) == ["upstream"]


def test_3_also_where_the_functions_begin_and_end_alike(tmp_path: Path) -> None:
    more = function("more", "wide = total * rank", "return count")
    last = function("last", "wide = total * rank", "return count")
    new = BASE + more + last
    assert verdicts(judged(tmp_path, {"a.py": BASE}, [{"a.py": BASE + more}], {"a.py": new})) == ["upstream"]
    assert verdicts(judged(tmp_path / "other", {"a.py": BASE}, [{"a.py": BASE + last}], {"a.py": new})) == ["upstream"]


def test_a_block_whose_end_repeats_its_context_is_not_applied_twice(tmp_path: Path) -> None:
    """After upstream took it, the old lines stand right after it, once, at an offset."""
    tail = "    return count\n\n\n"
    old = f"a\nb\n{tail}def after():\n    pass\n"
    ours = old.replace("def after", f"def more():\n    wide = 1\n{tail}def after")
    assert verdicts(judged(tmp_path, {"a.py": old}, [{"a.py": ours}], {"a.py": ours})) == ["upstream"]


def test_4_taken_and_conflicting_are_two_verdicts(tmp_path: Path) -> None:
    two = OURS.replace("count = 1", "count = 2")
    new = OURS.replace("count = 1", "count = max(1, total)")
    assert verdicts(judged(tmp_path, {"a.py": BASE}, [{"a.py": OURS}, {"a.py": two}], {"a.py": new})) == [
        "upstream",
        "conflicts",
    ]


def test_4_one_patch_twice_does_not_apply_to_its_own_pin(tmp_path: Path) -> None:
    repo = repository(tmp_path / "old", {"a.py": BASE})
    patch = patches_on(repo, [{"a.py": OURS}])[0]
    with pytest.raises(DoesNotApply, match="looks already applied"):
        Judge(CommitTree(repo, head(repo)), [patch, patch._replace(name="0002-again.patch")], "demo==1.0")


def test_13_two_patches_squashed_by_upstream_then_a_neighbour_edited(tmp_path: Path) -> None:
    one = BASE.replace("begin += 16", "begin += 32\n    begin *= 2")
    two = one.replace("begin *= 2", "begin *= 2\n    begin -= 1").replace("import os", "import os\nimport re")
    changes = [{"a.py": one}, {"a.py": two}]
    first = judged(tmp_path / "first", {"a.py": BASE}, changes, {"a.py": two})
    assert verdicts(first) == ["upstream", "upstream"]
    for number, edited in enumerate(("return begin + 0", "begin = rank * total + 0")):
        wanted = edited.replace(" + 0", "")
        second = judged(tmp_path / str(number), {"a.py": BASE}, changes, {"a.py": two.replace(wanted, edited)})
        assert verdicts(second) == ["upstream", "upstream"]


def test_13_a_later_change_of_the_squashed_lines_is_never_applies(tmp_path: Path) -> None:
    one = BASE.replace("begin += 16", "begin += 32\n    begin *= 2")
    two = one.replace("begin *= 2", "begin *= 2\n    begin -= 1")
    again = two.replace("begin *= 2", "begin *= 3")
    done = judged(tmp_path, {"a.py": BASE}, [{"a.py": one}, {"a.py": two}], {"a.py": again})
    assert verdicts(done) == ["partly-upstream", "upstream"]
    assert done[0].judged.needs_hands


def test_a_part_that_upstream_took_is_named_and_the_rest_carried(tmp_path: Path) -> None:
    ours = OURS.replace("total // rank", "total // (rank + 1)")
    new = BASE.replace("total // rank", "total // (rank + 1)")
    done = judged(tmp_path, {"a.py": BASE}, [{"a.py": ours}], {"a.py": new})
    assert verdicts(done) == ["partly-upstream"]
    assert [hunk.fate for hunk in done[0].judged.hunks] == [Fate.UPSTREAM, Fate.APPLIES]
    assert result(done, "a.py") == ours


def test_a_removed_line_that_upstream_removed_too(tmp_path: Path) -> None:
    ours = BASE.replace("    begin += 16\n", "")
    edited = ours.replace("return begin", "return begin, rank")
    assert verdicts(judged(tmp_path / "1", {"a.py": BASE}, [{"a.py": ours}], {"a.py": ours})) == ["upstream"]
    assert verdicts(judged(tmp_path / "2", {"a.py": BASE}, [{"a.py": ours}], {"a.py": edited})) == ["upstream"]


def test_a_removed_line_that_upstream_changed_is_no_removal(tmp_path: Path) -> None:
    ours = BASE.replace("    begin += 16\n", "")
    for number, line in enumerate(("begin += 17", "begin = begin + 16 + rank")):
        new = BASE.replace("begin += 16", line)
        assert verdicts(judged(tmp_path / str(number), {"a.py": BASE}, [{"a.py": ours}], {"a.py": new})) == [
            "conflicts"
        ]


def test_the_same_lines_elsewhere_are_not_the_change(tmp_path: Path) -> None:
    """Upstream has the added line in another function, and changed ours."""
    ours = BASE.replace("begin = rank * total\n", "begin = rank * total\n    total = max(total, 1)\n")
    new = BASE.replace("count = total // rank\n", "count = total // rank\n    total = max(total, 1)\n")
    new = new.replace("begin = rank * total\n", "begin = rank * total * 2\n")
    assert verdicts(judged(tmp_path, {"a.py": BASE}, [{"a.py": ours}], {"a.py": new})) == ["conflicts"]


# 21: where the code went


def test_21_a_renamed_file_is_followed(tmp_path: Path) -> None:
    done = judged(tmp_path, {"a.py": BASE}, [{"a.py": OURS}], {"pkg/b.py": BASE})
    assert verdicts(done) == ["moved"]
    assert (done[0].judged.hunks[0].to, result(done, "pkg/b.py")) == ("pkg/b.py", OURS)


def test_21_a_renamed_and_changed_file_is_a_conflict_that_names_it(tmp_path: Path) -> None:
    new = BASE.replace("begin += 16", "begin += 64")
    done = judged(tmp_path, {"a.py": BASE}, [{"a.py": OURS}], {"pkg/b.py": new})
    assert verdicts(done) == ["conflicts"]
    where = done[0].judged.conflicts[0].where[0]
    assert (where.path, where.how) == ("pkg/b.py", "renamed")
    assert new.split("\n")[where.line - 1] == "    begin += 64"


def test_21_a_function_that_moved_whole_is_followed_to_its_file(tmp_path: Path) -> None:
    old = {"a.py": BASE, "b.py": "import re\n"}
    done = judged(
        tmp_path, old, [{"a.py": OURS}], {"a.py": f"import os\n\n\n{HEADS}", "b.py": f"import re\n\n\n{OFFSET}{NAMES}"}
    )
    assert verdicts(done) == ["moved"]
    assert (done[0].judged.hunks[0].to, result(done, "b.py")) == (
        "b.py",
        f"import re\n\n\n{OFFSET}{NAMES}".replace("16", "32"),
    )


def test_21_a_function_that_moved_and_changed_is_a_conflict_that_names_the_place(tmp_path: Path) -> None:
    changed = OFFSET.replace("begin += 16", "begin += 64")
    new = {"a.py": f"import os\n\n\n{HEADS}{NAMES}", "b.py": f"import re\n\n\n{changed}"}
    done = judged(tmp_path, {"a.py": BASE, "b.py": "import re\n"}, [{"a.py": OURS}], new)
    assert verdicts(done) == ["conflicts"]
    assert [(where.path, where.how) for where in done[0].judged.conflicts[0].where] == [("b.py", "moved")]


def test_21_a_reformatted_block_is_a_conflict_that_names_the_place(tmp_path: Path) -> None:
    call = "value = compute(first_argument, 'second', third)\n"
    old = f"a = 1\nb = 2\nc = 3\n{call}d = 4\ne = 5\nf = 6\n"
    new = old.replace(call, 'value = compute(\n    first_argument,\n    "second",\n    third,\n)\n')
    done = judged(tmp_path, {"a.py": old}, [{"a.py": old.replace("third)", "fourth)")}], {"a.py": new})
    assert verdicts(done) == ["conflicts"]
    where = done[0].judged.conflicts[0].where[0]
    assert (where.path, where.how) == ("a.py", "reformatted")
    assert where.line in (3, 4)


def test_an_upstream_that_removed_the_file_is_a_conflict(tmp_path: Path) -> None:
    done = judged(tmp_path, {"a.py": BASE}, [{"a.py": OURS}], {"b.txt": "nothing like it\n"})
    assert verdicts(done) == ["conflicts"]
    conflict = done[0].judged.conflicts[0]
    assert (conflict.why, conflict.line) == ("upstream removed the file", 0)
    assert "begin += 32" in conflict.theirs


# other kinds of change


def test_new_files_removed_files_and_renames(tmp_path: Path) -> None:
    old = {"a.py": BASE, "gone.py": HEADS, "b.py": OFFSET}
    changes = [{"new.py": MORE}, {"gone.py": ""}, {"b.py": "", "c.py": OFFSET.replace("16", "32")}]
    fits = judged(tmp_path / "1", old, changes, old)
    assert verdicts(fits) == ["applies"] * 3
    taken = {"a.py": BASE, "new.py": MORE, "c.py": OFFSET.replace("16", "32")}
    assert verdicts(judged(tmp_path / "2", old, changes, taken)) == ["upstream"] * 3
    other = {
        "a.py": BASE,
        "new.py": NAMES,
        "gone.py": HEADS.replace("count = 1", "count = 7"),
        "b.py": OFFSET,
        "c.py": NAMES,
    }
    assert verdicts(judged(tmp_path / "3", old, changes, other)) == ["conflicts"] * 3


def test_a_later_patch_is_judged_on_the_earlier_ones(tmp_path: Path) -> None:
    one = OURS.replace("import os", "import os\nimport re")
    two = one.replace("import re", "import re\nimport sys")
    done = judged(tmp_path, {"a.py": BASE}, [{"a.py": one}, {"a.py": two}], {"a.py": f"# top\n# top\n{BASE}"})
    assert verdicts(done) == ["moved", "moved"]
    assert result(done, "a.py") == f"# top\n# top\n{two}"


def test_a_last_line_without_newline(tmp_path: Path) -> None:
    old, new = "a = 1\nb = 2\nc = 3\nd = 4", "a = 1\nb = 2\nc = 3\nd = 4\ne = 5\n"
    done = judged(tmp_path, {"a.py": old}, [{"a.py": old.replace("b = 2", "b = 20")}], {"a.py": new})
    assert verdicts(done) == ["moved"]
    assert result(done, "a.py") == new.replace("b = 2\n", "b = 20\n")


def test_a_file_with_conflict_markers_of_its_own(tmp_path: Path) -> None:
    old = f"<<<<<<< x\n=======\n>>>>>>> y\n{BASE}"
    done = judged(tmp_path, {"a.py": old}, [{"a.py": old.replace("16", "32")}], {"a.py": old.replace("16", "64")})
    assert (done[0].judged.conflicts[0].ours, done[0].judged.conflicts[0].base) == (
        "    begin += 64\n",
        "    begin += 16\n",
    )


# behaviour


def saying(found: Behaviour | None) -> Behaves:
    return lambda patch: found


def test_only_tests_that_pass_on_stock_say_not_needed(tmp_path: Path) -> None:
    new = {"a.py": BASE.replace("begin += 16", "begin += 64")}
    found = judged(tmp_path / "1", {"a.py": BASE}, [{"a.py": OURS}], new, lambda patch: Behaviour.PASSES)
    assert verdicts(found) == ["not-needed"]
    assert "behaviour: its tests on stock: passes" in found[0].judged.evidence
    for number, behaviour in enumerate((Behaviour.FAILS, Behaviour.NOTHING, None)):
        done = judged(tmp_path / f"x{number}", {"a.py": BASE}, [{"a.py": OURS}], new, saying(behaviour))
        assert verdicts(done) == ["conflicts"]


def test_tests_that_collect_nothing_need_hands(tmp_path: Path) -> None:
    done = judged(tmp_path, {"a.py": BASE}, [{"a.py": OURS}], {"a.py": BASE}, lambda patch: Behaviour.NOTHING)
    assert (verdicts(done), done[0].judged.needs_hands) == (["applies"], True)


def test_upstream_by_text_whose_tests_fail_on_stock_needs_hands(tmp_path: Path) -> None:
    done = judged(tmp_path, {"a.py": BASE}, [{"a.py": OURS}], {"a.py": OURS}, lambda patch: Behaviour.FAILS)
    assert (verdicts(done), done[0].judged.contradicted) == (["upstream"], True)
    assert done[0].judged.needs_hands


# what tells them apart


def test_twins_with_the_same_context(tmp_path: Path) -> None:
    """Only the place in the file says which twin is meant; upstream changed that one, and the other stands once."""
    around = "".join(f"    before = {number}\n" for number in range(4)), "".join(f"    after = {n}\n" for n in range(4))
    body = f"{around[0]}    begin += 16\n{around[1]}"
    old = f"def one():\n{body}\n\ndef two():\n{body}"
    ours, new = old.replace("+= 16", "+= 32", 1), old.replace("+= 16", "+= 64", 1)
    assert verdicts(judged(tmp_path, {"a.py": old}, [{"a.py": ours}], {"a.py": new})) == ["conflicts"]


def test_a_replacement_of_which_an_old_line_is_left_is_not_upstream(tmp_path: Path) -> None:
    ours = BASE.replace("    begin = rank * total\n    begin += 16\n", "    begin = start(rank, total)\n")
    new = BASE.replace("    begin = rank * total\n", "    begin = start(rank, total)\n")
    done = judged(tmp_path, {"a.py": BASE}, [{"a.py": ours}], {"a.py": new})
    assert verdicts(done) == ["conflicts"]


def test_a_block_that_upstream_wrote_otherwise_is_not_added_beside_it(tmp_path: Path) -> None:
    """Its end repeats its context, so its old lines stand once more, right after upstream's block."""
    tail = "    return count\n\n\n"
    block = f"def more():\n    wide = 1\n    high = 2\n    deep = 3\n{tail}"
    old = f"a\nb\n{tail}def after():\n    pass\n"
    ours, new = (
        old.replace("def after", f"{each}def after") for each in (block, block.replace("deep = 3", "deep = 4"))
    )
    done = judged(tmp_path, {"a.py": old}, [{"a.py": ours}], {"a.py": new})
    assert verdicts(done) == ["partly-upstream"]
    assert done[0].judged.needs_hands


def test_a_function_that_stands_where_the_one_before_it_went_is_not_removed(tmp_path: Path) -> None:
    """The blank lines around both are alike, so that the place of the removal looks empty."""
    first, second = (f"def {name}():\n" + "".join(f"    {name}_{n} = {n}\n" for n in range(6)) for name in "ab")
    last = "class C:\n    pass\n"
    old = f"import x\n\n\n{first}\n\n{second}\n\n{last}"
    done = judged(
        tmp_path, {"a.py": old}, [{"a.py": old.replace(f"{second}\n\n", "")}], {"a.py": old.replace(f"{first}\n\n", "")}
    )
    assert verdicts(done) not in (["upstream"], ["partly-upstream"])
    gone = judged(
        tmp_path / "gone",
        {"a.py": old},
        [{"a.py": old.replace(f"{second}\n\n", "")}],
        {"a.py": old.replace(f"{second}\n\n", "")},
    )
    assert verdicts(gone) == ["upstream"]


def test_one_of_two_blocks_that_are_alike_was_removed(tmp_path: Path) -> None:
    """The patch takes the first one away, git's diff the last one; the lines around them changed."""
    block = "if x:\n    do(1)\n    do(2)\n    do(3)\n"
    old = repository(tmp_path / "old", {"a.py": f"start = 1\n{block}{block}end = 1\n"})
    gone, kept = ("".join(f"{sign}{line}\n" for line in block.splitlines()) for sign in "- ")
    hunk = f"@@ -1,10 +1,6 @@\n start = 1\n{gone}{kept} end = 1\n"
    raw = mail(f"diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n{hunk}")
    judge = Judge(CommitTree(old, head(old)), [parsed(raw.encode(), Path("0001-x.patch"), "0001-x.patch")], "demo==1.0")
    new = repository(tmp_path / "new", {"a.py": f"start = 2\n{block}end = 2\n"})
    assert verdicts(judge.onto(CommitTree(new, head(new)), "demo==2.0")) == ["upstream"]
