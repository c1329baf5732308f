"""Carrying and rebasing write their own news: once, by version, and lint asks for nothing more."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from carrying import commit, core, project, write
from rebasing import two_versions
from repos import git
from verbs import Ended, patchline

from patchline.changelog import generate, missing, news, taken
from patchline.changelog.news import Fragment
from patchline.project import Project
from patchline.rebase import state
from patchline.series.carried import carried

ONE = ("[Demo] Three heads", core(l3="three"))
TWO = ("[Demo] Nine heads", core(l3="three", l9="nine"))
NEW = (
    *("new", "demo", "--subject", "[Demo] Five heads.", "--author", "A <a@example.org>"),
    *("--drop-when", "tests-pass-on-stock", "--tests", "tests/patches/demo/test_three.py"),
)


@pytest.fixture
def made(tmp_path: Path) -> Project:
    """One patch, applied, told of and committed; its changelog is generated."""
    found = project(tmp_path / "p", ONE)
    assert run(found, "apply", "demo").exit == 0
    news.write(found, "carried", "three", "Three.", fields={"Patch": "demo/1.0/0001-three-heads.patch"})
    generate.path_of(found).touch()
    saved(found)
    return found


def saved(found: Project) -> None:
    """Its files are the commit `base`."""
    write(found.root, {".gitignore": "work/\n"})
    git(found.root, "init", "-q", "-b", "main")
    commit(found.root, "base")
    git(found.root, "tag", "base")


def run(found: Project, *words: object) -> Ended:
    return patchline(*words, cwd=found.root)


def told(found: Project, kind: str) -> list[Fragment]:
    return [one for one in news.read(found) if one.kind == kind and one.what != "three"]


def wanted(found: Project) -> list[str]:
    """What lint and the changelog still ask for."""
    asked = [*missing.missing(found, missing.changed(found, "base")), *missing.untold(found)]
    return [one.what for one in asked]


def change(found: Project) -> Path:
    work = found.work_dir("demo", "1.0")
    write(work, core(l3="three", l5="five"))
    return work


def test_a_new_patch_is_told_of(made: Project) -> None:
    change(made)
    ended = run(made, *NEW, "--json")
    assert ended.exit == 0, ended.err
    [one] = told(made, "carried")
    assert (one.what, one.text) == ("five-heads", "`five-heads` is carried on demo 1.0: Five heads.")
    assert ["/".join(patch) for patch in one.patches] == ["demo/1.0/0002-five-heads.patch"]
    assert ended.data["news"] == [f"changelog/{one.path.name}"]
    assert wanted(made) == []
    assert not generate.differs(made)


def test_in_words_of_ones_own(made: Project) -> None:
    change(made)
    ended = run(made, *NEW, "--text", "The demo has five heads now.")
    [one] = told(made, "carried")
    assert one.text == "The demo has five heads now."
    assert f"news     changelog/{one.path.name}\n" in ended.out


def test_news_that_are_damaged_stop_it_before_anything_changes(made: Project) -> None:
    change(made)
    write(made.root, {"changelog/2026-03-04-x.carried.md": "It names no patch.\n"})
    ended = run(made, *NEW)
    assert (ended.exit, "these news fragments are not understood" in ended.err) == (2, True)
    assert (made.series_dir("demo", "1.0") / "series").read_text() == "0001-three-heads.patch\n"


def test_commits_that_were_made_by_hand_are_told_of_once(made: Project) -> None:
    commit(change(made), "[Demo] Five heads\n\nWhy.")
    assert run(made, "export", "demo", "--check").exit == 8
    assert told(made, "carried") == []
    first = run(made, "export", "demo", "--json")
    assert (first.exit, len(first.data["news"])) == (0, 1)
    git(made.work_dir("demo", "1.0"), "commit", "-q", "--amend", "-m", "[Demo] Five heads\n\nA better reason.")
    again = run(made, "export", "demo", "--json")
    assert (again.data["written"], again.data["news"]) == (["0002-five-heads.patch"], [])
    assert len(told(made, "carried")) == 1
    assert wanted(made) == []


def test_only_tags_in_front_are_no_part_of_the_sentence(made: Project) -> None:
    change(made)
    words = [word.replace("[Demo] Five heads.", "[Demo][Heads] Read a[0] before b") for word in NEW]
    assert run(made, *words).exit == 0
    [one] = told(made, "carried")
    assert one.text == "`read-a-0-before-b` is carried on demo 1.0: Read a[0] before b."


def test_a_run_that_was_killed_before_its_news(made: Project) -> None:
    """Export tells of it, as taken in on the patch's own day."""
    commit(change(made), "[Demo] Five heads\n\nWhy.")
    assert run(made, "export", "demo").exit == 0
    [one] = told(made, "carried")
    one.path.unlink()
    assert run(made, "export", "demo", "--json").data["news"] == ["changelog/2026-03-04-five-heads.carried.md"]
    assert wanted(made) == []


def test_a_patch_that_was_renamed_keeps_its_news(made: Project) -> None:
    commit(change(made), "[Demo] Five heads\n\nWhy.")
    assert run(made, "export", "demo").exit == 0
    [one] = told(made, "carried")
    path = one.path.rename(one.path.with_name("2026-03-04-five-heads.carried.md"))
    commit(made.root, "five")
    git(made.root, "tag", "-f", "base")
    git(made.work_dir("demo", "1.0"), "commit", "-q", "--amend", "-m", "[Demo] Nine heads\n\nWhy.")
    ended = run(made, "export", "demo", "--json")
    assert (ended.data["removed"], ended.data["written"]) == (["0002-five-heads.patch"], ["0002-nine-heads.patch"])
    assert ended.data["news"] == [f"changelog/{path.name}"]
    assert path.read_text() == (
        "`nine-heads` is carried on demo 1.0: Nine heads.\n\n"
        "Patch: demo/1.0/0002-nine-heads.patch\nWas: demo/1.0/0002-five-heads.patch\n"
    )
    assert len(told(made, "carried")) == 1
    assert wanted(made) == []
    assert not generate.differs(made)


def test_another_patch_in_its_place_is_no_new_name(made: Project) -> None:
    work = change(made)
    commit(work, "[Demo] Five heads\n\nWhy.")
    assert run(made, "export", "demo").exit == 0
    write(work, core(l3="three", l9="nine"))
    git(work, "commit", "-q", "-a", "--amend", "-m", "[Demo] Nine heads\n\nWhy.")
    assert run(made, "export", "demo").exit == 0
    assert sorted(one.what for one in told(made, "carried")) == ["five-heads", "nine-heads"]


@pytest.mark.parametrize("day", [date(2026, 3, 4), None])
def test_a_patch_that_comes_back_is_told_of_again(made: Project, day: date | None) -> None:
    """Dropped on another day, and on the same."""
    change(made)
    assert run(made, *NEW).exit == 0
    [first] = told(made, "carried")
    if day:
        first.path.rename(first.path.with_name("2026-03-04-five-heads.carried.md"))
    words = ("drop", "demo/five-heads", "--in", "1.0", "--reason", "superseded", "--text", "So it is.", "--unproven")
    for times in (1, 2):
        assert run(made, *words).exit == 6  # the rest has no environment here
        assert len(told(made, "dropped")) == times
        commit(made.root, "dropped")
        git(made.root, "tag", "-f", "base")
        assert run(made, "apply", "demo").exit == 0
        change(made)
        ended = run(made, *NEW, "--json")
        assert len(ended.data["news"]) == 1
        assert len(told(made, "carried")) == 1 + times
        assert wanted(made) == []
        assert run(made, "export", "demo", "--json").data["news"] == []


def test_a_patch_of_another_version_is_rebased(tmp_path: Path) -> None:
    found = two_versions(tmp_path / "p", core(l20="twenty"), ONE)
    news.write(found, "carried", "three", "Three.", fields={"Patch": "demo/1.0/0001-three-heads.patch"})
    assert run(found, "checkout", "demo==2.0").exit == 0
    write(found.work_dir("demo", "2.0"), core(l3="three", l20="twenty"))
    ended = run(found, *[word.replace("Five", "Three") if word != "demo" else "demo==2.0" for word in NEW], "--json")
    assert ended.exit == 0, ended.err
    [one] = told(found, "rebased")
    assert (one.what, one.text) == (
        "three-heads-demo-2-0",
        "`three-heads` is carried on demo 2.0: Three heads.",
    )
    assert told(found, "carried") == []


def tracked(at: Path, new: dict[str, str]) -> Project:
    """Two patches on 1.0, told of, and a version 2.0."""
    found = two_versions(at, new, ONE, TWO)
    for name in ("0001-three-heads.patch", "0002-nine-heads.patch"):
        news.write(found, "carried", "three", name, fields={"Patch": f"demo/1.0/{name}"})
    saved(found)
    return found


def test_a_rebased_series_is_told_of_once(tmp_path: Path) -> None:
    found = tracked(tmp_path / "p", core(l1="one\n# line 1.5"))
    assert run(found, "rebase", "demo", "--onto", "2.0", "--dry-run").exit == 0
    assert run(found, "rebase", "demo", "--onto", "2.0", "--out", "elsewhere").exit == 0
    assert told(found, "rebased") == []
    ended = run(found, "rebase", "demo", "--onto", "2.0")
    assert ended.exit == 0, ended.err
    [one] = told(found, "rebased")
    assert f"news: changelog/{one.path.name}\n" in ended.out
    assert one.text == "Rebased from demo 1.0 to demo 2.0: `three-heads` (moved) and `nine-heads` (moved)."
    assert ["/".join(patch) for patch in one.patches] == [
        "demo/2.0/0001-three-heads.patch",
        "demo/2.0/0002-nine-heads.patch",
    ]
    assert wanted(found) == []
    assert "there already" in run(found, "rebase", "demo", "--onto", "2.0").out
    assert len(told(found, "rebased")) == 1
    one.path.unlink()  # as a run that was killed before it leaves it
    assert run(found, "rebase", "demo", "--onto", "2.0", "--json").data["news"] == [f"changelog/{one.path.name}"]


def test_what_stays_behind_is_named(tmp_path: Path) -> None:
    found = tracked(tmp_path / "p", core(l3="three"))
    assert run(found, "rebase", "demo", "--onto", "2.0").exit == 0
    [one] = told(found, "rebased")
    assert one.text == (
        "Rebased from demo 1.0 to demo 2.0: `nine-heads` (as it is). Not carried there: `three-heads` (upstream)."
    )


def test_a_rebase_with_hands_is_told_of_at_its_end(tmp_path: Path) -> None:
    found = tracked(tmp_path / "p", core(l9="NINE"))
    assert run(found, "rebase", "demo", "--onto", "2.0").exit == 3
    assert told(found, "rebased") == []
    write(state.tree(state.room(found, "demo==2.0")), core(l3="three", l9="nine\nNINE"))
    ended = run(found, "rebase", "demo", "--continue", "--json")
    assert ended.exit == 0, ended.err
    [one] = told(found, "rebased")
    assert ended.data["news"] == [f"changelog/{one.path.name}"]
    assert (one.text, len(one.patches)) == ("Rebased from demo 1.0 to demo 2.0: `three-heads` and `nine-heads`.", 2)
    assert wanted(found) == []


def test_only_the_patches_that_were_named_are_told_of(made: Project) -> None:
    assert taken.tell(carried("demo", made), ["0009-other.patch"]) == []
    for one in news.read(made):
        one.path.unlink()
    assert len(taken.tell(carried("demo", made), ["0001-three-heads.patch"])) == 1
