"""Audit of an installed package: its files on disk against RECORD, pin and overlay."""

from __future__ import annotations

import os
from pathlib import Path

import image_bases as bases
import pytest
from auditing import Said, audit
from carrying import SOURCE, core, project

from patchline.project import Project

FILES = {name: data for name, data in SOURCE.items() if name.startswith("demo/")}
INFO = "demo-1.0.dist-info"


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    found = project(tmp_path / "p", ("[Demo] Three heads", core(l3="three = 3")))
    monkeypatch.chdir(found.root)
    return found


def install(at: Path, files: dict[str, bytes]) -> Path:
    """As a wheel of these files would be installed."""
    every = {**files, f"{INFO}/licenses/LICENSE": b"free\n"}
    for name, data in {**every, f"{INFO}/RECORD": bases.record(every, INFO)}.items():
        (at / name).parent.mkdir(parents=True, exist_ok=True)
        (at / name).write_bytes(data)
    return at


def of_site(capsys: pytest.CaptureFixture[str], at: Path, *words: str) -> Said:
    return audit(capsys, "demo", "--site", at, *words)


def test_an_installed_package_that_is_its_pin(
    made: Project, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = install(tmp_path / "site", FILES)
    said = of_site(capsys, site)
    assert (said.exit, said.kinds) == (0, [])
    assert said.data["audits"][0]["compared"] == 4
    said = of_site(capsys, site, "--patched")
    assert said.kinds == [("carried-missing", "site-packages/demo/core.py")]


def test_the_real_divergence_by_line(made: Project, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A wheel of another distribution: what its builder generated and changed is found, by line."""
    other = {**FILES, "demo/__init__.py": b"from demo import core\n", "demo/_version.py": b"version = '1.0+cpu'\n"}
    said = of_site(capsys, install(tmp_path / "site", other))
    found = said.data["audits"][0]["findings"]
    assert said.kinds == [
        ("unlike-pin", "site-packages/demo/__init__.py"),
        ("unlike-pin", "site-packages/demo/_version.py"),
    ]
    assert (found[0]["line"], found[0]["detail"]) == (1, ["+from demo import core"])


def test_what_was_done_to_it_by_hand(made: Project, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site = install(tmp_path / "site", FILES)
    (site / "demo/core.py").write_bytes(FILES["demo/core.py"] + b"# by hand\n")
    (site / "demo/data.txt").unlink()
    (site / "demo/stray.py").write_bytes(b"")
    os.symlink("core.py", site / "demo/alias.py")
    os.mkfifo(site / "demo/pipe")
    (site / "demo/__pycache__").mkdir()
    (site / "demo/__pycache__/core.cpython-312.pyc").write_bytes(b"\xcb\x0d\r\n" + bytes(12))
    said = of_site(capsys, site)
    assert sorted(said.kinds) == [
        ("changed", "site-packages/demo/core.py"),
        ("extra", "site-packages/demo/alias.py"),
        ("extra", "site-packages/demo/pipe"),
        ("extra", "site-packages/demo/stray.py"),
        ("missing", "site-packages/demo/data.txt"),
        ("stale-bytecode", "site-packages/demo/__pycache__/core.cpython-312.pyc"),
    ]


def test_an_overlay_in_place(made: Project, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new = {name: data.encode() for name, data in core(l3="three = 3").items()}
    site = install(tmp_path / "site", FILES)
    (site / "demo/core.py").write_bytes(new["demo/core.py"])
    assert of_site(capsys, site, "--patched").exit == 0  # its RECORD still says the pin's hash
    assert of_site(capsys, install(tmp_path / "other", {**FILES, **new}), "--patched").exit == 0


def test_a_package_that_is_not_installed(made: Project, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = of_site(capsys, tmp_path)
    assert said.exit == 4
    assert "no RECORD lists a file of demo" in said.err
