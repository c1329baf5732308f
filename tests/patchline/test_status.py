"""The verb `status`: one table of what is carried."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from carrying import core
from rebasing import add_version, two_versions

from patchline import cli
from patchline.rebase import onto
from patchline.series.carried import carried

ONE = ("[Demo] Three heads", core(l3="three"))
TWO = ("[Demo] Nine heads", core(l3="three", l9="nine"))


def test_each_patch_with_its_versions_verdicts_and_what_lets_us_drop_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = two_versions(tmp_path / "p", {"setup.py": "# another\n"}, ONE, TWO)
    patch = made.series_dir("demo", "1.0") / "0002-nine-heads.patch"
    patch.write_text(patch.read_text().replace("Drop-When: tests-pass-on-stock", "Drop-When: upstream-version >= 2.5"))
    onto.rebase(carried("demo==1.0", made), carried("demo==2.0", made))
    add_version(made, "3.0", core(l3="three", l9="NINE"))
    monkeypatch.setitem(cli.VERBS, "status", "")
    monkeypatch.chdir(made.root)
    assert cli.main(["status", "--json"]) == 0
    one, two = json.loads(capsys.readouterr().out)["patches"]
    assert (one["since"], one["versions"], one["forwarded"]) == ("2026-03-04", ["1.0", "2.0"], "no")
    assert (one["verdicts"], one["holds"]) == ({"2.0": "applies", "3.0": "upstream"}, ["upstream in 3.0"])
    assert two["verdicts"] == {"2.0": "applies", "3.0": "conflicts, needs hands"}
    assert two["holds"] == ["upstream-version >= 2.5: 3.0 is pinned"]
    assert cli.main(["status", "demo"]) == 0
    assert (
        "| demo/0001-three-heads.patch | 2026-03-04 | 1.0, 2.0 | 2.0: applies; 3.0: upstream | no |"
        in capsys.readouterr().out
    )
