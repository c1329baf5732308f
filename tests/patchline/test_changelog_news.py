"""News fragments: read strictly, written once, and missed where a change came without one."""

from __future__ import annotations

import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest
from carrying import core, project
from repos import commit, git, write

from patchline.changelog import missing, news
from patchline.errors import UsageError
from patchline.project import Project

ONE = ("[Demo] Three heads", core(l3="three"))
PATCH = "demo/1.0/0001-three-heads.patch"
DAY = date(2026, 3, 4)


@pytest.fixture
def made(tmp_path: Path) -> Project:
    return project(tmp_path / "p", ONE)


@pytest.fixture
def tracked(made: Project) -> Project:
    """In git, its patch told of."""
    news.write(made, "carried", "three heads", "The demo has three heads.", fields={"Patch": PATCH}, day=DAY)
    git(made.root, "init", "-q", "-b", "main")
    commit(made.root, "base")
    git(made.root, "tag", "base")
    return made


def told(made: Project, base: str = "base") -> list[tuple[str, str]]:
    return [(one.where, one.what) for one in missing.missing(made, missing.changed(made, base))]


def test_a_fragment_is_named_by_day_words_and_kind(made: Project) -> None:
    path = news.write(made, "carried", "Three Heads!", "It has three.\n", fields={"Patch": PATCH}, day=DAY)
    assert path == made.root / "changelog" / "2026-03-04-three-heads.carried.md"
    assert path.read_text() == f"It has three.\n\nPatch: {PATCH}\n"
    [read] = news.read(made)
    assert (read.day, read.what, read.kind, read.text) == ("2026-03-04", "three-heads", "carried", "It has three.")
    assert read.patches[0].key == ("demo", "three-heads")


def test_the_same_news_is_written_once_and_other_news_beside_it(made: Project) -> None:
    first = news.write(made, "tooling", "x", "It is so.", day=DAY)
    assert news.write(made, "tooling", "x", "It is so.") == first  # today: it was said before
    other = news.write(made, "tooling", "x", "It is otherwise.", day=DAY)
    assert other.name == "2026-03-04-x.tooling.1.md"
    assert [one.text for one in news.read(made)] == ["It is otherwise.", "It is so."]


def test_newest_first(made: Project) -> None:
    for day in (3, 5, 4):
        news.write(made, "gate", "h20", f"Day {day}.", day=date(2026, 3, day))
    assert [one.text for one in news.read(made)] == ["Day 5.", "Day 4.", "Day 3."]


def test_a_last_paragraph_with_a_colon_is_text(made: Project) -> None:
    news.write(made, "tooling", "x", "It changed.\n\nNote: not for you", day=DAY)
    assert news.read(made)[0].text == "It changed.\n\nNote: not for you"


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("three.carried.md", "x", "its name is not of the form DAY-WHAT.KIND.md"),
        ("2026-02-30-x.gate.md", "x", "there is no day 2026-02-30"),
        ("2026-03-04-x.caried.md", "x", "there is no kind 'caried': did you mean 'carried'?"),
        ("2026-03-04-x.gate.md", "\n", "it has no text"),
        ("2026-03-04-x.carried.md", "x", "a carried fragment has a field Patch:"),
        ("2026-03-04-x.dropped.md", f"x\n\nPatch: {PATCH}\n", "a dropped fragment has a field Upstream:"),
        ("2026-03-04-x.dropped.md", f"x\n\nPatch: {PATCH}\nUpstream: 2.0\n", "'2.0' is not NAME==VERSION"),
        ("2026-03-04-x.carried.md", "x\n\nPatch: three-heads\n", "'three-heads' is not UPSTREAM/VERSION/FILE"),
        ("2026-03-04-x.carried.md", f"x\n\nPatch: {PATCH}\nUpstrem: demo==2\n", "did you mean 'upstream'?"),
        ("2026-03-04-x.gate.md", b"\xff", "not UTF-8"),
        (
            "2026-03-04-x.gate.md",
            "<<<<<<< ours\nOne.\n=======\nTwo.\n>>>>>>> theirs\n",
            "the marks of a merge's conflict",
        ),
        ("2026-03-04-x.carried.md", f"x\n\nPatch: {PATCH}\nWas: three\n", "Was: 'three' is not UPSTREAM/VERSION/FILE"),
        (
            "2026-03-04-x.carried.md",
            f"x\n\nPatch: {PATCH}\nPatch: {PATCH}\nWas: {PATCH}\n",
            "Was: goes with one field Patch:",
        ),
    ],
)
def test_what_is_wrong_with_a_fragment(made: Project, name: str, text: str | bytes, what: str) -> None:
    write(made.root / "changelog", {name: text, "2026-03-04-fine.gate.md": "Fine.", "README.md": "Not news."})
    with pytest.raises(UsageError) as wrong:
        news.read(made)
    assert name in wrong.value.what
    assert what in wrong.value.what
    assert "fine" not in wrong.value.what


@pytest.mark.parametrize("kind", ["carried", "caried"])
def test_wrong_news_is_not_written(made: Project, kind: str) -> None:
    with pytest.raises(UsageError):
        news.write(made, kind, "x", "It is so.")
    assert not (made.root / "changelog").exists()


def test_all_faults_are_told_at_once(made: Project) -> None:
    write(made.root / "changelog", {"a.gate.md": "x", "b.md": "x"})
    with pytest.raises(UsageError, match=r"(?s)a\.gate\.md.*b\.md"):
        news.read(made)


def test_towncrier_reads_the_same_kinds(made: Project, tmp_path: Path) -> None:
    news.write(made, "gate", "h20", "The gate asks for more.", day=DAY)
    news.write(made, "gate", "h20", "And for chat.", day=DAY)
    kinds = "".join(f'[[tool.towncrier.type]]\ndirectory = "{kind}"\nname = "{kind}"\n' for kind in news.KINDS)
    (made.root / "towncrier.toml").write_text(f'[tool.towncrier]\ndirectory = "changelog"\nname = "x"\n{kinds}')
    command = [sys.executable, "-m", "towncrier", "build", "--draft", "--version", "1", "--config", "towncrier.toml"]
    done = subprocess.run(command, cwd=made.root, capture_output=True, text=True, check=True)
    assert "gate" in done.stdout
    assert "The gate asks for more." in done.stdout
    assert "And for chat." in done.stdout


def test_a_patch_that_nobody_told_of(made: Project) -> None:
    assert [(one.where, one.what) for one in missing.untold(made)] == [
        (f"patches/{PATCH}", f"no carried fragment in changelog/ has a field Patch: {PATCH}")
    ]
    news.write(made, "carried", "three", "Three.", fields={"Patch": PATCH.replace("0001", "0007")}, day=DAY)
    assert missing.untold(made) == []  # another number is the same patch


def test_news_of_a_patch_that_is_not_there(tracked: Project) -> None:
    news.write(tracked, "carried", "two", "Two.", fields={"Patch": "demo/1.0/0002-two.patch"}, day=DAY)
    assert [one.what for one in missing.untold(tracked)] == [
        "there is no such patch, and no field Was: demo/1.0/0002-two.patch"
    ]
    fields = {"Patch": "demo/1.0/0002-two.patch", "Upstream": "demo==2.0"}
    news.write(tracked, "dropped", "two", "Upstream has it.", fields=fields, day=DAY)
    assert missing.untold(tracked) == []


def test_a_change_elsewhere_needs_no_news(tracked: Project) -> None:
    write(tracked.root, {"src/x.py": "", "README.md": "x"})
    assert told(tracked) == []


@pytest.mark.parametrize("path", ["patches/demo/1.0/series", "builds/line/line.toml"])
@pytest.mark.parametrize("committed", [False, True])
def test_a_change_without_news(tracked: Project, path: str, committed: bool) -> None:
    write(tracked.root, {path: "0001-three-heads.patch\n# x\n"})
    if committed:
        commit(tracked.root, "change")
    assert told(tracked) == [(path, "changed, and no news fragment in changelog/ came with it")]
    news.write(tracked, "gate", "line", "A line more.", day=DAY)
    assert told(tracked) == []


def test_news_that_only_goes_away_is_none(tracked: Project) -> None:
    write(tracked.root, {"builds/x": "x"})
    next((tracked.root / "changelog").glob("*.md")).unlink()
    assert told(tracked)[0][0] == "builds/x"


def test_a_new_patch_is_told_of_by_name(tracked: Project) -> None:
    write(tracked.root, {"patches/demo/1.0/0002-two.patch": "x"})
    news.write(tracked, "tooling", "x", "Something else.", day=DAY)
    assert [where for where, _ in told(tracked)] == ["patches/demo/1.0/0002-two.patch"]
    news.write(tracked, "carried", "two", "Two.", fields={"Patch": "demo/1.0/0002-two.patch"}, day=DAY)
    assert told(tracked) == []


def test_a_dropped_patch_is_told_of_by_name(tracked: Project) -> None:
    (tracked.root / "patches" / PATCH).unlink()
    news.write(tracked, "tooling", "x", "Something else.", day=DAY)
    assert told(tracked) == [(f"patches/{PATCH}", f"no dropped fragment in changelog/ has a field Patch: {PATCH}")]
    fields = {"Patch": PATCH, "Upstream": "demo==2.0"}
    news.write(tracked, "dropped", "three", "Upstream has it.", fields=fields, day=DAY)
    assert told(tracked) == []


def test_a_patch_with_another_number_is_the_same(tracked: Project) -> None:
    folder = tracked.root / "patches" / "demo" / "1.0"
    (folder / "0001-three-heads.patch").rename(folder / "0002-three-heads.patch")
    assert told(tracked)[0][1].startswith("changed, and no news")
    news.write(tracked, "tooling", "x", "Another order.", day=DAY)
    assert told(tracked) == []


def test_a_patch_that_was_renamed(tracked: Project) -> None:
    """Its news name both: they need no other news, and the record goes on."""
    folder = tracked.root / "patches" / "demo" / "1.0"
    (folder / "0001-three-heads.patch").rename(folder / "0001-many-heads.patch")
    path = next((tracked.root / "changelog").glob("*.carried.md"))
    path.write_text(f"The demo has many heads.\n\nPatch: demo/1.0/0001-many-heads.patch\nWas: {PATCH}\n")
    assert told(tracked) == []
    news.write(tracked, "rebased", "three", "It is on 2.0.", fields={"Patch": PATCH})
    assert missing.untold(tracked) == []


def test_a_project_in_a_folder_of_its_repository(tmp_path: Path) -> None:
    made = project(tmp_path / "repo" / "tools" / "fork", ONE)
    git(tmp_path / "repo", "init", "-q", "-b", "main")
    commit(tmp_path / "repo", "base")
    write(tmp_path / "repo", {"builds/x": "not this project's"})
    assert told(made, "main") == []
    write(made.root, {"builds/x": "x"})
    assert told(made, "main") == [("builds/x", "changed, and no news fragment in changelog/ came with it")]
    news.write(made, "gate", "x", "It is so.")
    assert told(made, "main") == []


def test_what_git_does_not_track_is_not_called_unchanged(tmp_path: Path) -> None:
    made = project(tmp_path / "repo" / "fork", ONE)
    with pytest.raises(UsageError, match="in no git repository"):
        missing.changed(made, "main")
    git(tmp_path / "repo", "init", "-q", "-b", "main")
    git(tmp_path / "repo", "commit", "-q", "--allow-empty", "-m", "base")
    with pytest.raises(UsageError, match="git tracks no file of this project"):
        missing.changed(made, "main")


def test_a_file_that_was_meant_as_news(tracked: Project) -> None:
    write(tracked.root, {"changelog/2026-03-04-x.gate.txt": "It is so.\n", "changelog/notes.txt": "x"})
    assert [(one.where, one.what) for one in missing.untold(tracked)] == [
        ("changelog/2026-03-04-x.gate.txt", "no news fragment: its name does not end in .md")
    ]


def test_what_others_did_since_is_not_this_changes(tracked: Project) -> None:
    git(tracked.root, "switch", "-q", "-c", "ours")
    write(tracked.root, {"src/x.py": ""})
    commit(tracked.root, "ours")
    git(tracked.root, "switch", "-q", "main")
    write(tracked.root, {"builds/x": "x"})
    commit(tracked.root, "theirs")
    git(tracked.root, "switch", "-q", "ours")
    assert told(tracked, "main") == []


def test_a_base_that_is_not_there(tracked: Project) -> None:
    with pytest.raises(UsageError, match="no commit that 'gone'"):
        missing.changed(tracked, "gone")
