"""Series against series: the verb `range`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from carrying import core
from rebasing import two_versions

from patchline import cli
from patchline.rebase import onto
from patchline.series.carried import carried

ONE = ("[Demo] Three heads", core(l3="three"))
TWO = ("[Demo] Nine heads", core(l3="three", l9="nine"))

Verb = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Verb:
    """Runs `range` in the project below the test's folder."""

    def call(*words: str) -> tuple[int, str, str]:
        monkeypatch.setitem(cli.VERBS, "range", "")
        monkeypatch.chdir(tmp_path / "p")
        capsys.readouterr()
        code = cli.main(["range", *words])
        return code, *capsys.readouterr()

    return call


def rebased(root: Path, new: dict[str, str], *changes: tuple[str, dict[str, str]]) -> None:
    made = two_versions(root / "p", new, *changes)
    onto.rebase(carried("demo==1.0", made), carried("demo==2.0", made))


def test_a_series_that_only_moved_is_the_same(tmp_path: Path, run: Verb) -> None:
    rebased(tmp_path, {"setup.py": "# another\n"}, ONE, TWO)
    code, out, _ = run("demo==1.0", "demo==2.0", "--json")
    found = json.loads(out)
    assert (code, found["same"]) == (0, 2)
    assert [one["how"] for one in found["patches"]] == ["same", "same"]
    assert found["patches"][0]["first"] == found["patches"][0]["second"] == "0001-three-heads.patch"


def test_a_changed_patch_shows_how_and_a_missing_one_that_it_is(tmp_path: Path, run: Verb) -> None:
    rebased(tmp_path, core(l3="three", l11="eleven"), ONE, TWO)
    code, out, _ = run("demo==1.0", "demo==2.0", "--json")
    found = {one["first"]: one for one in json.loads(out)["patches"]}
    assert (code, found["0001-three-heads.patch"]["how"]) == (0, "only in the first")
    assert found["0002-nine-heads.patch"]["how"] == "changed"
    assert "+ eleven" in found["0002-nine-heads.patch"]["diff"]
    assert "Rebased-From" not in out
    _, text, _ = run("demo==1.0", "demo==2.0")
    assert "changed            0002-nine-heads.patch\n    @@ " in text
    assert text.endswith("0 of 2 the same\n")


def test_a_version_without_a_series(tmp_path: Path, run: Verb) -> None:
    two_versions(tmp_path / "p", {}, ONE)
    code, _, err = run("demo==1.0", "demo==2.0")
    assert (code, "there is no series file" in err) == (2, True)
