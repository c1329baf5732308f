"""Every carried line has a test that fails without it, and one for each small mistake in it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from carrying import project, write
from demo_env import stand_in

from patchline.commands import hunks as verb
from patchline.errors import PatchlineError, ProofFailed, UsageError
from patchline.project import cache_dir
from patchline.proofs import evidence
from patchline.proofs.env import Environment
from patchline.proofs.held import trials
from patchline.proofs.held.hunks import Result, hunks
from patchline.series.carried import Carried, carried

TOP = "def heads(total, tp):\n    return total\n\n\n"
REST = "".join(f"# line {number}\n" for number in range(1, 31))
CORE = TOP.replace("return total", "return max(1, total // tp)") + REST
TEST = "import pytest\nfrom demo import core\n\n@pytest.mark.holds(stock=r'heads')\ndef test_heads():\n    assert [core.heads(16, 4), core.heads(17, 4), core.heads(2, 4)] == [4, 4, 1], 'heads'\n"
PATCH = "0001-three-heads.patch"


@pytest.fixture(autouse=True)
def in_the_demo(environment: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    """Proofs run in the demo's environment."""
    stand_in(monkeypatch, environment)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Where the project goes."""
    return tmp_path / "p"


def series(root: Path, test: str = TEST, core: str = CORE, **files: str) -> Carried:
    """One patch that makes `demo/core.py` into `core`."""
    changed = {"demo/core.py": core, **files}
    made = project(root, ("[Demo] Three heads", changed))
    write(made.root, {"tests/patches/demo/test_three.py": test})
    return carried("demo", made)


def explain(one: Carried, text: str) -> None:
    (one.folder / "explained.toml").write_text(text)


def faults(done: Result) -> list[str]:
    assert done.stands == (not any(held.faults for held in done.patches))
    return [fault for held in done.patches for fault in held.faults]


def test_held(root: Path) -> None:
    done = hunks(series(root))
    assert faults(done) == []
    (held,) = done.patches
    assert [(piece.hunk, piece.line, piece.added, piece.removed) for piece in held.pieces] == [(1, 2, 1, 1)]
    assert [(tried.how, tried.by.rpartition("::")[2]) for tried in held.dropped] == [("failed", "test_heads")]
    assert len(held.mutants) == 4
    assert held.score == 1.0
    assert "hunk 1   core.py:2                +1 -1    return max(1, total // tp)" in verb.text(done)
    assert "every carried line is held: demo==1.0, 1 patches, 1 pieces, 4 of 4 mistakes noticed" in verb.text(done)


def test_a_line_that_nothing_misses(root: Path) -> None:
    """In the same hunk as one that is missed: each run of lines counts by itself."""
    done = hunks(series(root, core=CORE.replace("# line 3\n", "extra = []\n").replace("# line 20\n", "more = []\n")))
    assert faults(done) == [
        "hunk 1, line 7: no test fails without it: demo/core.py: extra = []",
        "hunk 2, line 24: no test fails without it: demo/core.py: more = []",
    ]
    assert "NOT HELD: demo==1.0" in verb.text(done)


def test_a_comment_needs_a_reason(root: Path) -> None:
    one = series(root, core=CORE.replace("# line 3\n", "# why three\n"))
    (fault,) = faults(hunks(one))
    assert fault == "hunk 1, line 7: a comment that explained.toml gives no reason for: demo/core.py: # why three"
    explain(one, f'[[comment]]\npatch = "{PATCH}"\npiece = "demo/core.py: # why three"\nreason = "words only"\n')
    done = hunks(one)
    assert faults(done) == []
    assert done.patches[0].reasons == {"demo/core.py: # why three": "words only"}
    assert verb.data(done)["patches"][0]["pieces"][1]["reason"] == "words only"


def test_code_cannot_be_explained_away(root: Path) -> None:
    one = series(root, core=CORE.replace("# line 3\n", "extra = []\n"))
    explain(one, f'[[comment]]\npatch = "{PATCH}"\npiece = "demo/core.py: extra = []"\nreason = "not needed"\n')
    assert faults(hunks(one)) == [
        "hunk 1, line 7: no test fails without it: demo/core.py: extra = []",
        f"explained.toml explains what a test holds, or what is not there: {PATCH}: demo/core.py: extra = []",
    ]


SURVIVOR = "demo/core.py: return max(1, total // tp): 1 -> 2"
LOOSE = TEST.replace("core.heads(2, 4)] == [4, 4, 1]", "0 < core.heads(2, 4) < 3] == [4, 4, True]")


def test_a_mistake_that_nothing_notices(root: Path) -> None:
    one = series(root, LOOSE)
    done = hunks(one)
    assert faults(done) == [
        f"line 2: no test notices this mistake: {SURVIVOR}",
        "its tests notice 75.0% of the mistakes; 95% are asked",
    ]
    explain(one, f'[[survivor]]\npatch = "{PATCH}"\nmutant = "{SURVIVOR}"\nreason = "either is right"\n')
    again = hunks(one)
    assert faults(again) == ["its tests notice 75.0% of the mistakes; 95% are asked"]
    assert f"survived, line 2: {SURVIVOR}\n    either is right" in verb.text(again)


SWEEP = LOOSE + "\n@pytest.mark.wide\ndef test_sweep():\n    assert core.heads(2, 4) == 1\n"


def test_wide_tests_speak_where_no_other_does(root: Path) -> None:
    one = series(root, SWEEP)
    (held,) = hunks(one).patches
    assert held.faults == []
    assert {tried.name: tried.by.rpartition("::")[2] for tried in held.mutants if "sweep" in tried.by} == {
        SURVIVOR: "test_sweep"
    }
    explain(one, f'[[survivor]]\npatch = "{PATCH}"\nmutant = "{SURVIVOR}"\nreason = "either is right"\n')
    assert "explains what a test holds" in faults(hunks(one))[0], "evidence is of the wide tests, too"
    assert faults(hunks(one, fresh=True)) == ["its tests notice 75.0% of the mistakes; 95% are asked"]


def test_only_wide_tests_are_none(root: Path) -> None:
    with pytest.raises(ProofFailed, match="there is none that is not wide"):
        hunks(series(root, TEST.replace("@pytest", "@pytest.mark.wide\n@pytest")))


def test_wide_tests_that_do_not_pass(root: Path) -> None:
    with pytest.raises(ProofFailed, match="test_sweep: failed"):
        hunks(series(root, SWEEP.replace("== 1\n", "== 2\n")))


def test_an_explanation_grows_old(root: Path) -> None:
    one = series(root)
    explain(one, f'[[survivor]]\npatch = "{PATCH}"\nmutant = "{SURVIVOR}"\nreason = "either is right"\n')
    assert faults(hunks(one)) == [
        f"explained.toml explains what a test holds, or what is not there: {PATCH}: {SURVIVOR}"
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x = [", "the explanations are not TOML"),
        ("[[coment]]\n", "coment: did you mean"),
        ('[[comment]]\npatch = "a"\npiece = "b"\n', "[[comment]] 1: it needs a reason, as text"),
        ('[[comment]]\npatch = "a"\npiece = "b"\nreason = " "\n', "[[comment]] 1: it needs a reason, as text"),
        ('[[survivor]]\npatch = "a"\npiece = "b"\nreason = "c"\n', "[[survivor]] 1: piece: one of: mutant, patch, reason"),
        ("comment = 1\n", "comment: did you mean"),
        ('[[comment]]\npatch="a"\npiece="b"\nreason="c"\n' * 2, "[[comment]] 2: said already"),
    ],
)  # fmt: skip
def test_explanations_that_are_not_as_they_must_be(root: Path, text: str, problem: str) -> None:
    one = series(root)
    explain(one, text)
    with pytest.raises(UsageError) as caught:
        hunks(one)
    assert problem in str(caught.value)


def test_a_file_that_the_patch_makes(root: Path) -> None:
    test = TEST + "\ndef test_more():\n    from demo.more import more\n    assert more == 7\n"
    done = hunks(
        series(root, test, demo__more_py="") if False else series(root, test, **{"demo/more.py": "more = 7\n"})
    )
    assert faults(done) == []
    assert [(piece.text, tried.how) for piece, tried in zip(*done.patches[0][1:3], strict=True)] == [
        ("return max(1, total // tp)", "failed"),
        ("makes the file", "failed"),
    ]
    assert len(done.patches[0].mutants) == 5


def test_a_file_that_nothing_reads(root: Path) -> None:
    done = hunks(series(root, **{"demo/data.txt": "three\r\n"}))
    assert faults(done) == ["hunk 2, line 1: no test fails without it: demo/data.txt: three"]


def test_data_that_a_test_reads(root: Path) -> None:
    test = (
        TEST
        + "\ndef test_data():\n    import pathlib\n    text = (pathlib.Path(core.__file__).parent / 'data.txt').read_text()\n    assert 'three' in text\n"
    )
    assert faults(hunks(series(root, test, **{"demo/data.txt": "three\r\n"}))) == []


def test_only_a_patchs_own_tests_count(root: Path) -> None:
    second = CORE.replace("# line 20\n", "extra = 1\n")
    made = project(root, ("[Demo] Three heads", {"demo/core.py": CORE}), ("[Demo] Four more", {"demo/core.py": second}))
    write(made.root, {"tests/patches/demo/test_three.py": TEST, "tests/patches/demo/test_four.py": TEST})
    done = hunks(carried("demo", made))
    assert [len(held.faults) for held in done.patches] == [0, 3]
    assert "no test fails without it: demo/core.py: extra = 1" in done.patches[1].faults[0]


def test_a_change_that_makes_tests_hang_or_die_is_noticed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "LEAST", 3.0)
    test = TEST.replace(
        "    assert",
        "    import os, time\n    if core.heads(16, 4) == 5: time.sleep(60)\n    if core.heads(16, 4) == 1: os.abort()\n    assert",
    )
    (held,) = hunks(series(root, test)).patches
    assert held.faults == []
    assert {one.how for one in held.mutants} == {"failed", "too slow", "died"}


@pytest.mark.parametrize(
    ("test", "said"),
    [
        (TEST.replace("== [4", "== [5"), "test_heads: failed: AssertionError: heads"),
        (TEST + "\ndef test_skipped():\n    pytest.skip('no GPU')\n", "test_skipped: skipped"),
        ("", "the tests did not run in a fork"),
        ("import nothing_of_this_name\n", "the tests did not run in a fork"),
        ("import os\nos._exit(0)\n", "the tests did not run in a fork"),
    ],
)
def test_tests_that_do_not_pass_without_a_change(root: Path, test: str, said: str) -> None:
    with pytest.raises(ProofFailed) as caught:
        hunks(series(root, test))
    assert said in str(caught.value)


def test_tests_that_import_another_tree(root: Path) -> None:
    one = series(root, "import sys, pathlib\nsys.path.insert(0, str(pathlib.Path(__file__).parent))\n" + TEST)
    write(one.project.root, {"tests/patches/demo/demo/core.py": CORE, "tests/patches/demo/demo/__init__.py": ""})
    with pytest.raises(ProofFailed, match="nothing was proven"):
        hunks(one)


def test_what_is_imported_before_does_not_hide_a_change(root: Path) -> None:
    """Modules that import the changed one are imported anew in every fork."""
    user = "from demo.core import heads\nEIGHT = heads(17, 2)\n"
    test = (
        TEST.split("@", maxsplit=1)[0]
        + "from demo.user import EIGHT\n\n@pytest.mark.holds(stock='x')\ndef test_eight():\n    assert EIGHT == 8\n    assert core.heads(1, 2) == 1\n    assert core.heads(17, 2) == 8\n"
    )
    done = hunks(series(root, test, **{"demo/user.py": user}))
    assert faults(done) == []


def test_evidence_of_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = series(root)
    assert not hunks(one, record=True).verified
    assert evidence.path_of(one.project, "hunks", one.name).exists()
    monkeypatch.setattr(trials, "_RUNNER", Path("/nothing"))
    assert hunks(one).verified
    assert hunks(one).stands
    write(one.project.root, {"tests/patches/demo/test_three.py": TEST + "\n"})
    with pytest.raises(PatchlineError):
        hunks(one)


def test_a_failure_that_does_not_repeat_is_no_notice(root: Path, tmp_path: Path) -> None:
    """A line that nothing misses, beside a test that fails once: by accident."""
    accident = f"\ndef test_accident():\n    import pathlib\n    seen = pathlib.Path({str(tmp_path / 'seen')!r})\n    if not hasattr(core, 'extra') and not seen.exists():\n        seen.touch()\n        raise ValueError\n"
    one = series(root, TEST + accident, core=CORE.replace("# line 3\n", "extra = []\n"))
    assert faults(hunks(one)) == ["hunk 1, line 7: no test fails without it: demo/core.py: extra = []"]
    assert (tmp_path / "seen").exists()


def test_tests_that_keep_failing_now_and_then_say_nothing(root: Path, tmp_path: Path) -> None:
    count = tmp_path / "count"
    accident = f"\ndef test_accident():\n    if not hasattr(core, 'extra'):\n        with open({str(count)!r}, 'a+') as out:\n            out.write('x')\n            assert out.tell() % 2 == 0\n"
    with pytest.raises(ProofFailed, match="tests fail now and then"):
        hunks(series(root, TEST + accident, core=CORE.replace("# line 3\n", "extra = []\n")))


def test_nothing_is_left_behind(root: Path, tmp_path: Path) -> None:
    """A test that starts a program, in every trial; and no tree of a trial stays in the cache."""
    pids = tmp_path / "pids"
    start = f"import subprocess\nwith open({str(pids)!r}, 'a') as out:\n    print(subprocess.Popen(['sleep', '300']).pid, file=out)\n"
    one = series(root, start + TEST)
    assert hunks(one).stands
    started = pids.read_text().split()
    assert len(started) == 12  # two without a change, and two for each of five that fail
    assert not [
        pid for pid in started if os.path.exists(f"/proc/{pid}") and "sleep" in Path(f"/proc/{pid}/cmdline").read_text()
    ]
    assert len([path for path in (cache_dir() / "overlays").iterdir() if path.is_dir()]) == 1


def test_through_the_verb(root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from patchline.cli import main

    one = series(root)
    monkeypatch.chdir(one.project.root)
    assert main(["hunks", "demo"]) == 0
    assert "held  0001-three-heads.patch" in capsys.readouterr().out
    write(one.project.root, {"tests/patches/demo/test_three.py": LOOSE})
    assert main(["hunks", "demo", "--json"]) == 6
    assert '"held": false' in capsys.readouterr().out
