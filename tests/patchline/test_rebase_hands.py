"""A rebase that waits for hands, where upstream removed the file, and where a run is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from carrying import core
from rebasing import two_versions
from repos import files_of, write

from patchline import cli
from patchline.project import Project
from patchline.rebase import state
from patchline.series import quilt

TWO = ("[Demo] Nine heads", {**core(l9="nine = heads(9)"), "demo/data.txt": "one\r\ntwo\r\nthree\r\n"})
NAME = "0001-nine-heads.patch"

Verb = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Verb:
    def call(made: Project, *words: str) -> tuple[int, str, str]:
        monkeypatch.chdir(made.root)
        capsys.readouterr()
        return cli.main(["rebase", "demo", *words]), *capsys.readouterr()

    return call


def tree(made: Project) -> Path:
    return state.tree(state.room(made, "demo==2.0"))


def series(made: Project) -> list[str]:
    return [item.name for item in quilt.items(made.series_dir("demo", "2.0") / "series")]


# upstream removed the file


@pytest.fixture
def removed(tmp_path: Path, run: Verb) -> Project:
    made = two_versions(tmp_path / "p", {"demo/core.py": b"", "demo/other.py": "def other():\n    pass\n"}, TWO)
    code, out, _ = run(made, "--onto", "2.0")
    assert (code, "demo/core.py: conflict in hunk 1: upstream removed the file" in out) == (3, True)
    return made


def test_the_tree_of_a_removed_file_has_what_the_patch_makes_of_it(removed: Project) -> None:
    text = (tree(removed) / "demo/core.py").read_text()
    assert text.startswith("<<<<<<< demo==2.0\n||||||| demo==1.0 before ")
    assert "\nnine = heads(9)\n" in text
    assert (tree(removed) / "demo/data.txt").read_bytes() == b"one\r\ntwo\r\nthree\r\n"


def test_a_removed_file_that_stays_removed_takes_its_hunk_with_it_only_if_that_is_said(
    removed: Project, run: Verb
) -> None:
    (tree(removed) / "demo/core.py").unlink()
    code, _, err = run(removed, "--continue")
    assert (code, "--drop-hunk demo/core.py:1" in err) == (5, True)
    assert run(removed, "--continue", "--drop-hunk", "demo/core.py:1")[0] == 0
    assert "demo/core.py" not in (removed.series_dir("demo", "2.0") / NAME).read_text()
    assert series(removed) == [NAME]


def test_a_hunk_of_a_removed_file_may_be_put_into_another_one(removed: Project, run: Verb) -> None:
    (tree(removed) / "demo/core.py").unlink()
    write(tree(removed), {"demo/other.py": "def other():\n    pass\n\n\nnine = heads(9)\n"})
    code, _, err = run(removed, "--continue")
    assert code == 0, err
    assert "+++ b/demo/other.py\n" in (removed.series_dir("demo", "2.0") / NAME).read_text()


def test_a_removed_file_with_its_markers_is_refused(removed: Project, run: Verb) -> None:
    code, _, err = run(removed, "--continue")
    assert (code, "conflict markers are left" in err) == (5, True)


def test_a_folder_of_ones_own_is_remembered(tmp_path: Path, run: Verb) -> None:
    made = two_versions(tmp_path / "p", core(l9="NINE"), TWO)
    assert run(made, "--onto", "2.0", "--out", "mine")[0] == 3
    write(tree(made), core(l9="nine = heads(9, NINE)"))
    code, out, _ = run(made, "--continue")
    assert (code, f"written: {made.root}/mine/demo/2.0\n" in out) == (0, True)
    assert (made.root / "mine/demo/2.0" / NAME).is_file()
    assert not made.series_dir("demo", "2.0").exists()


def test_a_resolution_of_the_same_size_and_second_as_the_file_before_is_seen(tmp_path: Path, run: Verb) -> None:
    """Git compares sizes and seconds first, and contents only for files as young as its index."""
    made = two_versions(tmp_path / "p", core(l9="NINE is longer: 9"), TWO)
    assert run(made, "--onto", "2.0")[0] == 3
    file = tree(made) / "demo/core.py"
    write(tree(made), core(l9="nine = heads(9)!!"))
    second = (tree(made) / ".git/index").stat().st_mtime_ns
    os.utime(file, ns=(second, second))
    time.sleep(1.1)
    code, _, err = run(made, "--continue")
    assert code == 0, err
    assert "+nine = heads(9)!!\n" in (made.series_dir("demo", "2.0") / NAME).read_text()


# killed


KILLED = """
import os, signal, sys
from patchline import cli
real, left = getattr(os, {name!r}), [{count}]
def deadly(*words, **more):
    left[0] -= 1
    if left[0] < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*words, **more)
os.{name} = deadly
sys.exit(cli.main(["rebase", "demo", *sys.argv[1:]]))
"""


def killed(made: Project, name: str, count: int, *words: str) -> bool:
    """Runs the verb in a process that dies at call `count` (from 0) of `os.name`; whether it died."""
    script = KILLED.format(name=name, count=count)
    done = subprocess.run([sys.executable, "-c", script, *words], cwd=made.root, capture_output=True, env=os.environ)
    return done.returncode == -signal.SIGKILL


def test_killed_at_any_rename_the_next_run_ends_as_if_nothing_was(tmp_path: Path, run: Verb) -> None:
    made = two_versions(tmp_path / "p", {"demo/core.py": "# top\n" + core()["demo/core.py"]}, TWO)
    count = 0
    while killed(made, "replace", count, "--onto", "2.0"):
        folder = made.series_dir("demo", "2.0")
        assert not folder.exists() or series(made) == [NAME]
        count += 1
    assert count >= 2
    assert run(made, "--onto", "2.0")[0] == 0
    assert series(made) == [NAME]
    assert sorted(path.name for path in (made.root / "patches/demo").iterdir()) == ["1.0", "2.0"]


@pytest.mark.parametrize("name", ["replace", "rename"])
def test_killed_in_continue_the_resolution_is_there_or_the_series_is(tmp_path: Path, run: Verb, name: str) -> None:
    made = two_versions(tmp_path / "p", core(l9="NINE"), TWO)
    assert run(made, "--onto", "2.0")[0] == 3
    text = core(l9="nine = heads(9, NINE)")["demo/core.py"]
    write(tree(made), {"demo/core.py": text})
    before, count = files_of(tree(made)), 0
    while killed(made, name, count, "--continue"):
        if not made.series_dir("demo", "2.0").exists():
            assert files_of(tree(made)) == before
        count += 1
    assert run(made, "--continue")[0] in (0, 2)  # 2: the last of them was through, and nothing waits any more
    assert series(made) == [NAME]
    assert not state.room(made, "demo==2.0").exists()
