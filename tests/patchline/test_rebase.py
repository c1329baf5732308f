"""A series taken to another version, through its verb: candidate, conflicts, another day, resolutions."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from carrying import core
from rebasing import add_version, two_versions
from repos import files_of, git

from patchline import cli
from patchline.commands import rebase as verb
from patchline.project import Project
from patchline.rebase import onto, state
from patchline.rebase.words import Behaviour
from patchline.series import carried as carrieds
from patchline.series import quilt
from patchline.series.apply import to_folder
from patchline.series.placement import Rule

ONE = ("[Demo] Three heads", core(l3="three"))
TWO = ("[Demo] Nine heads", core(l3="three", l9="nine"))
LAST = ("[Demo] Last line", core(l3="three", l9="nine", l20="twenty"))
NAMES = ["0001-three-heads.patch", "0002-nine-heads.patch", "0003-last-line.patch"]

Verb = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Verb:
    """Runs `rebase` of the demo in a project: exit code and both streams."""

    def call(made: Project, *words: str) -> tuple[int, str, str]:
        monkeypatch.setitem(cli.VERBS, "rebase", "")
        monkeypatch.chdir(made.root)
        capsys.readouterr()
        code = cli.main(["rebase", "demo", *words])
        return code, *capsys.readouterr()

    return call


def moved(**lines: str) -> dict[str, str]:
    """The demo's main file with two lines more at its top."""
    return {"demo/core.py": "# top\n# top\n" + core(**lines)["demo/core.py"]}


def series(made: Project, version: str = "2.0") -> list[str]:
    return [item.name for item in quilt.items(made.series_dir("demo", version) / "series")]


def tree(made: Project, version: str = "2.0") -> Path:
    return state.tree(state.room(made, f"demo=={version}"))


def applied(made: Project, root: Path, version: str = "2.0") -> str:
    """The main file as the series of `version` makes it."""
    carried = carrieds.carried(f"demo=={version}", made)
    shutil.rmtree(root / "plain", ignore_errors=True)
    shutil.rmtree(root / "out", ignore_errors=True)
    git(root, "clone", "-q", str(carried.repo), "plain")
    git(root / "plain", "checkout", "-q", carried.base())
    to_folder(root / "plain", carried.series, root / "out", Rule.UNIQUE)
    return (root / "out/demo/core.py").read_text()


# without conflicts


def test_the_candidate_keeps_names_authors_dates_trailers_and_comments(tmp_path: Path, run: Verb) -> None:
    made = two_versions(tmp_path / "p", moved(), ONE, TWO)
    old = made.series_dir("demo", "1.0")
    (old / "series").write_text(f"# why three\n{NAMES[0]}\n{NAMES[1]}\n")
    before = files_of(old)
    code, out, _ = run(made, "--onto", "2.0", "--json")
    assert (code, [one["verdict"] for one in json.loads(out)["versions"][0]["patches"]]) == (0, ["moved", "moved"])
    assert applied(made, tmp_path) == moved(l3="three", l9="nine")["demo/core.py"]
    assert (made.series_dir("demo", "2.0") / "series").read_text() == f"# why three\n{NAMES[0]}\n{NAMES[1]}\n"
    patches = [
        quilt.patches(quilt.files(made.series_dir("demo", version) / "series", own=True)) for version in ("1.0", "2.0")
    ]
    for one, other in zip(*patches, strict=True):
        assert one.header[:5] == other.header[:5]
        assert other.header.trailers.pop("rebased-from")[0].startswith("demo==1.0 sha256:")
        assert {**other.header.trailers, "rebased-from": None} == {**one.header.trailers, "rebased-from": None}
    assert files_of(old) == before


def test_the_same_command_again_changes_nothing(tmp_path: Path, run: Verb) -> None:
    made = two_versions(tmp_path / "p", moved(), ONE, TWO)
    run(made, "--onto", "2.0")
    before = files_of(made.series_dir("demo", "2.0"))
    code, out, _ = run(made, "--onto", "2.0")
    assert (code, "there already: " in out) == (0, True)
    assert files_of(made.series_dir("demo", "2.0")) == before


def test_another_series_in_its_place_is_not_written_over(tmp_path: Path, run: Verb) -> None:
    made = two_versions(tmp_path / "p", moved(), ONE)
    folder = made.series_dir("demo", "2.0")
    folder.mkdir(parents=True)
    (folder / "series").write_text("mine.patch\n")
    code, _, err = run(made, "--onto", "2.0")
    assert (code, "holds another series already" in err) == (5, True)
    assert files_of(folder) == {"series": ("644", b"mine.patch\n")}


def test_what_upstream_has_is_left_out_and_the_rest_kept_under_its_name(tmp_path: Path, run: Verb) -> None:
    made = two_versions(tmp_path / "p", moved(l3="three"), ONE, TWO)
    code, out, _ = run(made, "--onto", "2.0")
    assert (code, series(made)) == (0, [NAMES[1]])
    assert "upstream        0001-three-heads.patch\n    reverse application: 1 of 1 hunks stand in demo==2.0" in out


def test_where_upstream_has_all_there_is_no_series(tmp_path: Path, run: Verb) -> None:
    made = two_versions(tmp_path / "p", moved(l3="three"), ONE)
    assert run(made, "--onto", "2.0")[0] == 0
    assert not made.series_dir("demo", "2.0").exists()


def test_a_second_rebase_names_the_patch_it_came_from_once(
    tmp_path: Path, run: Verb, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = two_versions(tmp_path / "p", moved(), ONE)
    run(made, "--onto", "2.0")
    add_version(made, "3.0", core())
    old = carrieds.carried("demo==2.0", made)
    onto.rebase(old, carrieds.carried("demo==3.0", made))
    text = (made.series_dir("demo", "3.0") / NAMES[0]).read_text()
    assert text.count("Rebased-From: ") == 1
    assert "Rebased-From: demo==2.0 sha256:" in text


def test_the_users_checkout_and_its_work_stay_as_they_are(tmp_path: Path, run: Verb) -> None:
    made = two_versions(tmp_path / "p", moved(), ONE)
    carried = carrieds.carried("demo==2.0", made)
    carried.base()
    (carried.repo / "demo/core.py").write_text("half done\n")
    before = files_of(carried.repo), git(carried.repo, "for-each-ref"), git(carried.repo, "count-objects", "-v")
    assert run(made, "--onto", "2.0")[0] == 0
    assert (
        files_of(carried.repo),
        git(carried.repo, "for-each-ref"),
        git(carried.repo, "count-objects", "-v"),
    ) == before
    assert applied(made, tmp_path) == moved(l3="three")["demo/core.py"]


def test_dry_run_writes_nothing(tmp_path: Path, run: Verb) -> None:
    made = two_versions(tmp_path / "p", moved(), ONE)
    assert run(made, "--onto", "2.0", "--dry-run")[0] == 0
    assert not made.series_dir("demo", "2.0").exists()


# bad input


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--onto", "9.9"], "9.9 is not pinned"),
        (["--onto", "1.0"], "is what the series is on already"),
        ([], "give one of --onto"),
        (["--all", "--onto", "2.0"], "give one of --onto"),
        (["--continue"], "no rebase of demo waits"),
        (["--abort"], "no rebase of demo waits"),
        (["--onto", "2.0", "--drop-hunk", "x:1"], "goes with --continue"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, run: Verb, words: list[str], said: str) -> None:
    made = two_versions(tmp_path / "p", moved(), ONE)
    code, out, err = run(made, *words)
    assert (code, out) == (2, "")
    assert said in err


def test_a_series_that_does_not_apply_to_its_own_pin(tmp_path: Path, run: Verb) -> None:
    made = two_versions(tmp_path / "p", moved(), ONE, TWO)
    (made.series_dir("demo", "1.0") / "series").write_text(f"{NAMES[0]}\n{NAMES[1]}\n{NAMES[1]}\n")
    assert run(made, "--onto", "2.0")[0] == 2  # listed twice
    shutil.copy(made.series_dir("demo", "1.0") / NAMES[1], made.series_dir("demo", "1.0") / "0003-again.patch")
    (made.series_dir("demo", "1.0") / "series").write_text(f"{NAMES[0]}\n{NAMES[1]}\n0003-again.patch\n")
    code, _, err = run(made, "--onto", "2.0")
    assert (code, "0003-again.patch does not apply" in err) == (3, True)


# a conflict, and what people do with it


@pytest.fixture
def stopped(tmp_path: Path, run: Verb) -> Project:
    """The second of three patches is in conflict and waits."""
    made = two_versions(tmp_path / "p", moved(l9="NINE"), ONE, TWO, LAST)
    code, out, _ = run(made, "--onto", "2.0")
    assert (code, "0002-nine-heads.patch waits for hands" in out) == (3, True)
    assert not made.series_dir("demo", "2.0").exists()
    return made


def resolve(made: Project, line: str = "nine NINE") -> None:
    file = tree(made) / "demo/core.py"
    text = file.read_text()
    begin, end = text.index("<<<<<<<"), text.index(">>>>>>>")
    end = text.index("\n", end) + 1
    file.write_text(text[:begin] + (f"{line}\n" if line else "") + text[end:])


def test_the_tree_holds_the_patches_before_and_the_three_sides(stopped: Project) -> None:
    text = (tree(stopped) / "demo/core.py").read_text()
    wanted = "<<<<<<< demo==2.0\nNINE\n||||||| demo==1.0 before 0002-nine-heads.patch\n# line 9\n=======\nnine\n"
    assert f"{wanted}>>>>>>> 0002-nine-heads.patch\n" in text
    assert git(tree(stopped), "log", "--format=%s", "-1").strip() == "[Demo] Three heads"
    assert git(tree(stopped), "status", "--short") == " M demo/core.py\n"


def test_continue_on_another_day_writes_the_whole_series(stopped: Project, run: Verb, tmp_path: Path) -> None:
    resolve(stopped)
    words = "import sys; from patchline import cli; cli.VERBS['rebase'] = ''; sys.exit(cli.main())"
    done = subprocess.run(  # another process: nothing but the disk is left of the first one
        [sys.executable, "-c", words, "rebase", "demo", "--continue"],
        cwd=stopped.root,
        capture_output=True,
        env=os.environ,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert series(stopped) == NAMES
    assert applied(stopped, tmp_path) == moved(l3="three", l9="nine NINE", l20="twenty")["demo/core.py"]
    assert not tree(stopped).exists()
    assert run(stopped, "--continue")[0] == 2


def test_markers_that_are_left_are_refused(stopped: Project, run: Verb) -> None:
    before = files_of(tree(stopped))
    code, _, err = run(stopped, "--continue")
    assert (code, "conflict markers are left" in err) == (5, True)
    assert "demo/core.py: line " in err
    assert files_of(tree(stopped)) == before
    assert not stopped.series_dir("demo", "2.0").exists()


def test_a_hunk_that_the_resolution_drops_has_to_be_said(stopped: Project, run: Verb, tmp_path: Path) -> None:
    resolve(stopped, "NINE")
    code, _, err = run(stopped, "--continue")
    assert (code, "holds nothing of these hunks" in err) == (5, True)
    assert "--drop-hunk demo/core.py:1" in err
    assert run(stopped, "--continue", "--drop-hunk", "demo/core.py:7")[0] == 2
    code, out, _ = run(stopped, "--continue", "--drop-hunk", "demo/core.py:1")
    assert (code, series(stopped)) == (0, [NAMES[0], NAMES[2]])
    assert "dropped, as was said: 0002-nine-heads.patch: demo/core.py:1" in out


def test_a_hunk_dropped_beside_one_that_is_resolved(tmp_path: Path, run: Verb) -> None:
    """The clean hunk of the same patch is undone by hand, quietly."""
    both = ("[Demo] Both lines", core(l3="three", l25="far away"))
    made = two_versions(tmp_path / "p", core(l3="THREE"), both)
    run(made, "--onto", "2.0")
    resolve(made, "three THREE")
    file = tree(made) / "demo/core.py"
    file.write_text(file.read_text().replace("far away\n", "# line 25\n"))
    code, _, err = run(made, "--continue")
    assert (code, "demo/core.py:2" in err, "demo/core.py:1\n" in err) == (5, True, False)


def test_abort_forgets_it(stopped: Project, run: Verb) -> None:
    assert run(stopped, "--abort")[0] == 0
    assert not state.room(stopped, "demo==2.0").exists()
    assert run(stopped, "--onto", "2.0")[0] == 3


def test_a_second_begin_does_not_touch_what_waits(stopped: Project, run: Verb) -> None:
    resolve(stopped)
    before = files_of(tree(stopped))
    code, _, err = run(stopped, "--onto", "2.0")
    assert (code, "waits for hands" in err) == (5, True)
    assert files_of(tree(stopped)) == before


def test_a_series_that_changed_meanwhile_is_refused(stopped: Project, run: Verb) -> None:
    resolve(stopped)
    patch = stopped.series_dir("demo", "1.0") / NAMES[0]
    patch.write_text(patch.read_text().replace("Why it is so.", "Why it is not."))
    code, _, err = run(stopped, "--continue")
    assert (code, "changed since the rebase began" in err) == (5, True)


def test_commits_in_the_tree_are_refused(stopped: Project, run: Verb) -> None:
    resolve(stopped)
    git(tree(stopped), "commit", "-q", "-a", "-m", "by hand")
    code, _, err = run(stopped, "--continue")
    assert (code, "reset --soft" in err) == (5, True)


def test_two_conflicts_are_resolved_one_after_the_other(tmp_path: Path, run: Verb) -> None:
    made = two_versions(tmp_path / "p", core(l3="THREE", l20="TWENTY"), ONE, TWO, LAST)
    run(made, "--onto", "2.0")
    resolve(made, "three THREE")
    code, out, _ = run(made, "--continue")
    assert (code, "0003-last-line.patch waits" in out) == (3, True)
    assert git(tree(made), "log", "--format=%s", "-2").splitlines() == [
        "[Demo] Nine heads",
        "[Demo] Three heads",
    ]
    resolve(made, "twenty TWENTY")
    assert run(made, "--continue")[0] == 0
    assert applied(made, tmp_path) == core(l3="three THREE", l9="nine", l20="twenty TWENTY")["demo/core.py"]


def test_a_resolution_is_recorded_offered_shown_and_taken_by_its_key_only(
    tmp_path: Path, run: Verb, stopped: Project
) -> None:
    resolve(stopped)
    run(stopped, "--continue")
    recorded = json.loads((stopped.series_dir("demo", "2.0") / "resolutions.json").read_text())
    assert [(one["base"], one["ours"], one["theirs"], one["resolved"]) for one in recorded] == [
        ("# line 9\n", "NINE\n", "nine\n", "nine NINE\n")
    ]
    add_version(stopped, "3.0", core(l9="NINE", l1="one"))
    code, out, _ = run(stopped, "--onto", "3.0")
    key = recorded[0]["key"]
    assert (code, f"as {key}:\n  | nine NINE\n" in out) == (3, True)
    assert "<<<<<<< demo==3.0" in (tree(stopped, "3.0") / "demo/core.py").read_text()  # not applied unseen
    assert run(stopped, "--take", "0" * 16)[0] == 2
    assert run(stopped, "--take", key)[0] == 0
    assert run(stopped, "--continue")[0] == 0
    assert applied(stopped, tmp_path, "3.0") == core(l1="one", l3="three", l9="nine NINE", l20="twenty")["demo/core.py"]


def test_a_resolution_with_changes_outside_of_its_conflict_says_that_it_is_not_all(stopped: Project, run: Verb) -> None:
    resolve(stopped)
    file = tree(stopped) / "demo/core.py"
    file.write_text(file.read_text().replace("# line 28\n", "by hand\n"))
    run(stopped, "--continue")
    add_version(stopped, "3.0", core(l9="NINE"))
    _, out, _ = run(stopped, "--onto", "3.0")
    assert "it is not all: 1 more places of the file were changed by hand; see " in out


def test_a_state_that_is_not_understood_is_no_state(stopped: Project, run: Verb) -> None:
    (state.room(stopped, "demo==2.0") / "state.json").write_text("{}")
    code, _, err = run(stopped, "--continue")
    assert (code, "cannot go on" in err) == (5, True)


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_leaves_no_half_series(tmp_path: Path, run: Verb, monkeypatch: pytest.MonkeyPatch) -> None:
    made = two_versions(tmp_path / "p", moved(), ONE)
    carrieds.carried("demo==2.0", made).base()
    with monkeypatch.context() as patched:
        patched.setattr("os.replace", full)
        assert run(made, "--onto", "2.0")[0] == 1
    assert [path.name for path in (made.root / "patches/demo").iterdir()] == ["1.0"]
    assert (run(made, "--onto", "2.0")[0], series(made)) == (0, [NAMES[0]])


def test_a_full_disk_leaves_the_resolution_that_waits(
    stopped: Project, run: Verb, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve(stopped)
    before = files_of(tree(stopped))
    with monkeypatch.context() as patched:
        patched.setattr("os.replace", full)
        assert run(stopped, "--continue")[0] == 1
    assert files_of(tree(stopped)) == before
    assert (run(stopped, "--continue")[0], series(stopped)) == (0, NAMES)


# all versions, and the reports


def test_all_gives_a_verdict_on_every_later_version(tmp_path: Path, run: Verb) -> None:
    made = two_versions(tmp_path / "p", moved(), ONE, TWO)
    add_version(made, "3.0", core(l3="three", l9="NINE"))
    add_version(made, "0.9", core())
    out, report = tmp_path / "series", tmp_path / "report"
    _, shown, _ = run(made, "--all")
    assert "conflict in hunk 1\n      upstream: - # line 9\n      upstream: + NINE\n" in shown
    code, text, _ = run(made, "--all", "--json", "--report", str(report), "--out", str(out), "--annotate")
    versions = json.loads(text)["versions"]
    assert code == 3
    assert [(one["onto"], [each["verdict"] for each in one["patches"]]) for one in versions] == [
        ("demo==2.0", ["moved", "moved"]),
        ("demo==3.0", ["upstream", "conflicts"]),
    ]
    assert sorted(path.name for path in (out / "demo").iterdir()) == ["2.0"]
    assert not (made.root / "patches/demo/2.0").exists()
    _check_reports(report)


def _check_reports(report: Path) -> None:
    markdown = (report / "report.md").read_text()
    assert "| patch | 2.0 | 3.0 |" in markdown
    assert f"| {NAMES[1]} | moved | **conflicts**, needs hands |" in markdown
    assert "demo==3.0:\n\n```text\nNINE\n```" in markdown
    found: Any = json.loads((report / "report.json").read_text())
    assert found["versions"][1]["patches"][1]["conflicts"][0]["upstream_change"] == ["- # line 9", "+ NINE"]
    top = ElementTree.fromstring((report / "junit.xml").read_text())
    assert [(suite.get("name"), suite.get("failures")) for suite in top] == [("demo==2.0", "0"), ("demo==3.0", "1")]


def test_annotations_name_the_patch_file(tmp_path: Path, run: Verb) -> None:
    made = two_versions(tmp_path / "p", core(l3="THREE"), ONE)
    _, out, _ = run(made, "--onto", "2.0", "--dry-run", "--annotate")
    where = f"file=patches/demo/1.0/{NAMES[0]},line=18,title=rebase"
    assert f"::error {where}::conflicts on demo==2.0; demo/core.py, line 7: conflict" in out
    assert (made.series_dir("demo", "1.0") / NAMES[0]).read_text().splitlines()[17].startswith("@@ -4,7 ")


def test_tests_that_pass_on_stock_leave_a_patch_out(tmp_path: Path) -> None:
    made = two_versions(tmp_path / "p", core(l3="THREE"), ONE, TWO)
    old, new = (carrieds.carried(f"demo=={version}", made) for version in ("1.0", "2.0"))
    done = onto.rebase(old, new, lambda patch: Behaviour.PASSES if patch.name == NAMES[0] else Behaviour.FAILS)
    assert [one.verdict.value for one in done.judged] == ["not-needed", "applies"]
    assert series(made) == [NAMES[1]]


def test_the_verb_is_documented() -> None:
    assert "Exit 0: every patch has its place. 3: a person" in (verb.__doc__ or "")
