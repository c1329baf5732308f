"""The explanations of a series go with it to another version: those of lines that are still there."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from carrying import core
from rebasing import two_versions

from patchline import cli
from patchline.errors import UsageError
from patchline.project import Project
from patchline.proofs.held import explained
from patchline.rebase.explanations import explanations

ONE = ("[Demo] Three heads", core(l3="three = 1 < 2  # why"))
TWO = ("[Demo] Nine heads", core(l3="three = 1 < 2  # why", l9="nine = min(1, 2)"))
NAMES = ["0001-three-heads.patch", "0002-nine-heads.patch"]
TEXT = f"""\
# Why no test notices these.

[[survivor]]
patch = "{NAMES[0]}"
mutant = "demo/core.py: three = 1 < 2  # why: < -> <= (number 2)"
reason = '''It is
the same.'''

[[comment]]
patch = "{NAMES[1]}"
piece = "demo/core.py: nine = min(1, 2)"
reason = "Said."  # and more

[[survivor]]
patch = "{NAMES[1]}"
mutant = "demo/core.py: nine = min(1, 2): min -> max"
reason = "One of them."
"""

Verb = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Verb:
    def call(made: Project, *words: str) -> tuple[int, str, str]:
        monkeypatch.chdir(made.root)
        capsys.readouterr()
        return cli.main(["rebase", "demo", *words]), *capsys.readouterr()

    return call


def project(root: Path, new: dict[str, str], text: str = TEXT) -> Project:
    made = two_versions(root, new, ONE, TWO)
    (made.series_dir("demo", "1.0") / explained.NAME).write_text(text)
    return made


def beside(made: Project) -> Path:
    return made.series_dir("demo", "2.0") / explained.NAME


def test_where_all_lines_are_there_the_file_is_the_same(tmp_path: Path, run: Verb) -> None:
    made = project(tmp_path / "p", {"demo/core.py": "# top\n" + core()["demo/core.py"]})
    code, out, _ = run(made, "--onto", "2.0")
    assert (code, beside(made).read_text(), "no longer explained" in out) == (0, TEXT, False)


def test_what_a_dropped_patch_explained_is_left_out_and_named(tmp_path: Path, run: Verb) -> None:
    made = project(tmp_path / "p", core(l3="three = 1 < 2  # why"))
    report = tmp_path / "report"
    code, out, _ = run(made, "--onto", "2.0", "--json", "--report", str(report))
    name = f"{NAMES[0]}: demo/core.py: three = 1 < 2  # why: < -> <= (number 2)"
    assert (code, json.loads(out)["versions"][0]["unexplained"]) == (0, [name])
    assert f"## No longer explained on 2.0\n\n- {name}\n" in (report / "report.md").read_text()
    assert beside(made).read_text() == "# Why no test notices these.\n\n" + TEXT[TEXT.index("[[comment]]") :]
    assert len(explained.load(beside(made)).survivors) == 1


def test_a_line_that_a_resolution_changed_is_explained_no_longer(tmp_path: Path, run: Verb) -> None:
    made = project(tmp_path / "p", core(l9="NINE"))
    assert run(made, "--onto", "2.0")[0] == 3
    file = made.root / "work/rebase-demo-2.0/tree/demo/core.py"
    head, rest = file.read_text().split("<<<<<<<")
    file.write_text(head + "nine = min(1, 3)\n" + rest.split(">>>>>>> ")[1].split("\n", 1)[1])
    code, out, err = run(made, "--continue")
    assert code == 0, err
    for name in ("demo/core.py: nine = min(1, 2)", "demo/core.py: nine = min(1, 2): min -> max"):
        assert f"no longer explained, since it is not in the rebased patches: {NAMES[1]}: {name}\n" in out
    assert beside(made).read_text() == TEXT[: TEXT.index("\n[[comment]]")]


def test_what_somebody_wrote_beside_the_rebased_series_stays(tmp_path: Path, run: Verb) -> None:
    made = project(tmp_path / "p", {"demo/core.py": "# top\n" + core()["demo/core.py"]})
    run(made, "--onto", "2.0")
    beside(made).write_text(TEXT.replace("Said.", "Said better."))
    assert run(made, "--onto", "2.0")[0] == 0
    assert "Said better." in beside(made).read_text()


def test_nothing_left_is_no_file_and_none_is_none(tmp_path: Path, run: Verb) -> None:
    made = project(tmp_path / "p", core(l3="three = 1 < 2  # why"), TEXT[: TEXT.index("\n[[comment]]")])
    assert run(made, "--onto", "2.0")[0] == 0
    assert not beside(made).exists()
    assert explanations(tmp_path / "none.toml", {}) == ("", ())


def test_a_line_of_the_context_is_no_line_of_the_patch(tmp_path: Path) -> None:
    file = tmp_path / explained.NAME
    file.write_text('[[survivor]]\npatch = "a.patch"\nmutant = "x.py: b = 1: 1 -> 2"\nreason = "No."\n')
    head = b"From: A <a@b>\nDate: Thu, 1 Jan 2026 00:00:00 +0000\nSubject: s\n\n---\n\n"
    diff = b"diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n@@ -1,2 +1,3 @@\n a = 1\n+%b\n b = 1\n"
    assert explanations(file, {"a.patch": head + diff % b"c = 1"}).gone == ("a.patch: x.py: b = 1: 1 -> 2",)
    assert explanations(file, {"a.patch": head + diff % b"b = 1"}).gone == ()


def test_a_text_with_what_looks_like_a_table_is_refused(tmp_path: Path) -> None:
    file = tmp_path / explained.NAME
    file.write_text(TEXT.replace("the same.", "[[x]]"))
    with pytest.raises(UsageError, match="cannot be taken apart"):
        explanations(file, {})


def test_the_vllm_series_keeps_its_explanations_on_its_own_pin() -> None:
    folder = Path(__file__).parents[2] / "patches/vllm/0.31.0"
    patches = {path.name: path.read_bytes() for path in folder.glob("*.patch")}
    assert explanations(folder / explained.NAME, patches) == ((folder / explained.NAME).read_text(), ())
