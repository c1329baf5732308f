"""The report of a rebase: for GitHub, for GitLab, for readers of JUnit; whole, or none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from carrying import core
from junitparser import Failure, JUnitXml
from rebasing import add_version, two_versions

from patchline import cli
from patchline.pins import Upstream
from patchline.pins import load as load_pins
from patchline.pins import write as write_pins
from patchline.project import Project
from patchline.rebase.course import Progress
from patchline.rebase.report.annotations import annotated, quality
from patchline.rebase.report.junit import junit
from patchline.rebase.words import Behaviour, Conflict, Fate, HunkFate, Judged, Verdict
from patchline.series.carried import carried

ONE = ("[Demo] Three heads", core(l3="three"))
TWO = ("[Demo] Nine heads", core(l3="three", l9="nine", l25="far"))
NAMES = ["0001-three-heads.patch", "0002-nine-heads.patch"]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """On 2.0 all is well; on 3.0 the first patch is upstream and the second's last hunk is in conflict."""
    found = two_versions(tmp_path / "p", core(), ONE, TWO)
    add_version(found, "3.0", core(l3="three", l25="FAR"))
    monkeypatch.chdir(found.root)
    return found


def report(tmp_path: Path, *words: str) -> tuple[int, Path]:
    folder = tmp_path / "report"
    return cli.main(["rebase", "demo", *words, "--report", str(folder)]), folder


def progress(made: Project, *judged: Judged) -> Progress:
    return Progress(carried("demo==1.0", made), carried("demo==3.0", made), judged)


def test_another_reader_of_junit_counts_the_same(tmp_path: Path, made: Project) -> None:
    code, folder = report(tmp_path, "--all")
    read = JUnitXml.fromfile(str(folder / "junit.xml"))
    assert (code, read.tests, read.failures, read.errors, read.skipped) == (3, 4, 1, 0, 0)
    cases = [(suite.name, case.classname, case.name, case.result) for suite in read for case in suite]
    assert [case[:3] for case in cases] == [
        (f"demo=={version}", f"demo==1.0 on demo=={version}", name) for version in ("2.0", "3.0") for name in NAMES
    ]
    assert [[type(one) for one in case[3]] for case in cases] == [[], [], [], [Failure]]
    assert cases[3][3][0].type == "conflicts"
    assert "demo/core.py, line 29: conflict in hunk 2" in cases[3][3][0].text
    assert (len(cases), sum(bool(case[3]) for case in cases)) == (4, 1)


def test_what_xml_cannot_say_is_replaced(made: Project) -> None:
    odd = "a\x00b\x1b\ufffe\ud800c\r"
    one = Judged("x.patch", Verdict.CONFLICTS, (), (Conflict("a", (1,), 1, "", "", "", odd),))
    read = JUnitXml.fromstring(junit([progress(made, one)]))
    assert [case.result[0].text for suite in read for case in suite] == [
        "a, line 1: conflict in hunk 1: a\ufffdb\ufffd\ufffd\ufffdc\ufffd"
    ]


def test_a_remark_stands_at_its_hunk(tmp_path: Path, made: Project) -> None:
    _, folder = report(tmp_path, "--all")
    lines = (folder / "annotations.txt").read_text().splitlines()
    patch = (made.series_dir("demo", "1.0") / NAMES[1]).read_text().splitlines()
    second = [number for number, line in enumerate(patch, 1) if line.startswith("@@ ")][1]
    start = f"::error file=patches/demo/1.0/{NAMES[1]},line={second},title=rebase::conflicts on demo==3.0; "
    assert lines[0].startswith(start)
    assert lines[1].startswith(
        f"::notice file=patches/demo/1.0/{NAMES[0]},line=1,title=rebase::upstream on demo==3.0; "
    )
    assert len(lines) == 2


def test_githubs_separators_are_escaped_in_names_and_line_ends_in_texts(made: Project) -> None:
    one = Judged("a,b:c%.patch", Verdict.UPSTREAM, (), (), ("50%\nof it: all, really",))
    (line,) = annotated([progress(made, one)])
    assert line.startswith("::notice file=patches/demo/1.0/a%2Cb%3Ac%25.patch,line=1,title=rebase::")
    assert line.endswith("::upstream on demo==3.0; 50%25%0Aof it: all, really")


def test_gitlab_gets_what_it_asks_of_code_quality(tmp_path: Path, made: Project) -> None:
    _, folder = report(tmp_path, "--all")
    found: Any = json.loads((folder / "code-quality.json").read_text())
    assert [(one["severity"], one["location"]["path"]) for one in found] == [
        ("major", f"patches/demo/1.0/{NAMES[1]}"),
        ("info", f"patches/demo/1.0/{NAMES[0]}"),
    ]
    assert {key for one in found for key in one} == {
        "description", "check_name", "fingerprint", "severity", "location"
    }  # fmt: skip
    assert len({one["fingerprint"] for one in found}) == 2
    assert all(isinstance(one["location"]["lines"]["begin"], int) for one in found)
    assert quality([progress(made)]) == "[]\n"


def test_tests_that_collect_nothing_are_an_error_though_the_patch_applies(made: Project) -> None:
    hunk = HunkFate("demo/core.py", 1, Fate.APPLIES)
    one = Judged(NAMES[0], Verdict.APPLIES, (hunk,), (), ("behaviour: collects nothing",), Behaviour.NOTHING)
    (line,) = annotated([progress(made, one)])
    assert line.startswith("::error ")
    read = JUnitXml.fromstring(junit([progress(made, one)]))
    assert read.failures == 1


def test_needs_hands_is_there_only_where_some_do(tmp_path: Path, made: Project) -> None:
    code, folder = report(tmp_path, "--all")
    assert (code, (folder / "needs-hands").read_text()) == (3, f"{NAMES[1]} on demo==3.0\n")
    code, folder = report(tmp_path, "--onto", "2.0", "--dry-run")
    assert (code, (folder / "needs-hands").exists()) == (0, False)
    assert (folder / "annotations.txt").read_text() == ""


def test_the_rebased_series_that_are_clean_come_with_the_report(tmp_path: Path, made: Project) -> None:
    _, folder = report(tmp_path, "--all")
    assert sorted(path.relative_to(folder / "series").as_posix() for path in (folder / "series").glob("*/*/*")) == [
        *(f"demo/2.0/{name}" for name in NAMES),
        "demo/2.0/series",
    ]
    assert not made.series_dir("demo", "2.0").exists()
    (made.series_dir("demo", "1.0") / "series").write_text(f"{NAMES[0]}\n")
    (made.series_dir("demo", "1.0") / NAMES[1]).unlink()
    assert report(tmp_path, "--all")[0] == 0  # in the place of the earlier report
    assert (folder / "series/demo/2.0/series").read_text() == f"{NAMES[0]}\n"


def test_a_run_that_breaks_leaves_no_report_of_the_day_before(tmp_path: Path, made: Project) -> None:
    _, folder = report(tmp_path, "--all")
    (folder / "mine.txt").write_text("")
    (made.series_dir("demo", "1.0") / NAMES[0]).unlink()
    assert report(tmp_path, "--all")[0] == 2
    assert [path.name for path in folder.iterdir()] == ["mine.txt"]


def test_all_without_a_name_means_every_series_and_names_those_without_a_later_version(
    tmp_path: Path, made: Project
) -> None:
    pins = load_pins(made.upstreams)
    other = Upstream(name="other", carried="1.0", pins=(pins["demo"].pins[0],))
    write_pins(made.upstreams, {**pins, "other": other})
    (made.root / "patches/other/1.0").mkdir(parents=True)
    code = cli.main(["rebase", "--all", "--report", str(tmp_path / "report")])
    found: Any = json.loads((tmp_path / "report/report.json").read_text())
    assert (code, [one["onto"] for one in found["versions"]]) == (3, ["demo==2.0", "demo==3.0"])
    assert found["notes"] == ["no version after other==1.0 is pinned"]
    assert "\nno version after other==1.0 is pinned\n" in (tmp_path / "report/report.md").read_text()


def test_a_conflict_whose_port_is_in_the_project_needs_no_hands_until_the_patch_changes(
    tmp_path: Path, made: Project
) -> None:
    assert cli.main(["rebase", "demo", "--onto", "3.0"]) == 3
    file = made.root / "work/rebase-demo-3.0/tree/demo/core.py"
    head, rest = file.read_text().split("<<<<<<<")
    file.write_text(head + "far FAR\n" + rest.split(">>>>>>> ")[1].split("\n", 1)[1])
    assert cli.main(["rebase", "demo", "--continue"]) == 0
    code, folder = report(tmp_path, "--all")
    assert (code, (folder / "needs-hands").exists()) == (0, False)
    assert f"| {NAMES[1]} | applies | conflicts, resolved |" in (folder / "report.md").read_text()
    assert "::error" not in (folder / "annotations.txt").read_text()
    assert JUnitXml.fromfile(str(folder / "junit.xml")).failures == 0
    patch = made.series_dir("demo", "1.0") / NAMES[1]
    patch.write_text(patch.read_text().replace("Why it is so.", "Why it is otherwise."))
    assert report(tmp_path, "--all")[0] == 3
