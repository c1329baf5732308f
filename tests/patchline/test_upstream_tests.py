"""Upstream's own tests: what passes on stock passes on the overlay, and what did not run counts for nothing.

Here upstream is a small demo with tests of its own, in a real venv with real pytest runs.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from carrying import SOURCE, core, project, write
from demo_env import stand_in

from patchline.cli import main
from patchline.errors import PatchlineError, ProofFailed, SourceMismatch, UsageError
from patchline.proofs import bench, evidence
from patchline.proofs.env import Environment
from patchline.proofs.evidence import Evidence
from patchline.proofs.upstream import check as checking
from patchline.proofs.upstream import process, runs, verdict
from patchline.proofs.upstream.check import Checked, check
from patchline.proofs.upstream.process import FileRun, Outcome
from patchline.proofs.upstream.suites import path_of
from patchline.seal import sealed
from patchline.series.carried import Carried, carried

MENDED = core(l3="# three")["demo/core.py"].replace("return total", "return max(1, total // tp)")
HEAD = "import pytest\nfrom demo.core import heads\n\nMENDED = heads(16, 4) == 4\n\n"
SAME = HEAD + "def test_same():\n    assert heads(16, 1) == 16\n"


class Upstream(NamedTuple):
    """Makes a project whose upstream has these test files."""

    folder: Path
    patch: pytest.MonkeyPatch

    def __call__(self, *, listed: str | None = None, **tests: str) -> Carried:
        for name in [name for name in SOURCE if name.startswith("tests/")]:
            self.patch.delitem(SOURCE, name)
        for name, text in tests.items():
            self.patch.setitem(SOURCE, f"tests/{name}.py", text.encode())
        made = project(self.folder / "p", ("[Demo] Three heads", {"demo/core.py": MENDED}))
        files = [f"tests/{name}.py" for name in tests if name.startswith("test_")]
        text = f"folders = ['tests']\n[[suites]]\nname = 'all'\nwhy = 'it is small'\nfiles = {files}\n"
        found = carried("demo", made)
        write(
            made.root, {path_of(made, found.name).relative_to(made.root).as_posix(): text if listed is None else listed}
        )
        return found


@pytest.fixture
def upstream(tmp_path: Path, environment: Environment, monkeypatch: pytest.MonkeyPatch) -> Upstream:
    """The demo with tests that a test gives it."""
    stand_in(monkeypatch, environment)
    monkeypatch.setattr(runs, "_POLL", 0.02)
    return Upstream(tmp_path, monkeypatch)


def names(found: object) -> list[str]:
    return sorted(name.rpartition("::")[2] for name in found)  # type: ignore[attr-defined]


KINDS = """
def test_worse():
    assert heads(16, 4) == 16, 'heads are 4'

def test_broken():
    assert heads(1, 1) == 2, 'broken before'

@pytest.mark.skip(reason='no GPU')
def test_skips():
    pass

@pytest.mark.xfail
def test_expected():
    assert heads(1, 1) == 2

def test_skips_now():
    if MENDED:
        pytest.skip('not with this')

def test_fails_now():
    if not MENDED:
        pytest.skip('not with that')
    raise ValueError('now')

@pytest.fixture
def last():
    yield
    assert not MENDED, 'at the end'

def test_ends_badly(last):
    pass

@pytest.mark.parametrize('count', [heads(16, 4)])
def test_counts(count):
    pass

def test_parts(subtests):
    with subtests.test():
        assert not MENDED, 'a part'
"""


def test_what_is_worse_is_named(upstream: Upstream) -> None:
    found = check(upstream(test_core=SAME + KINDS))
    one = found.verdict
    assert not one.stands
    said = {name.rpartition("::")[2]: (was, now) for name, was, now, _, _ in one.regressions}
    assert said == {
        "test_worse": ("passed", "failed"),
        "test_skips_now": ("passed", "skipped"),
        "test_fails_now": ("skipped", "failed"),
        "test_ends_badly": ("passed", "error"),
        "test_parts": ("passed", "failed"),
    }
    texts = {worse.name.rpartition("::")[2]: (worse.text, worse.alone) for worse in one.regressions}
    assert texts["test_worse"][0].startswith("AssertionError: heads are 4")
    assert texts["test_worse"][1] == "failed"
    assert texts["test_fails_now"][0] == "ValueError: now"
    assert names(one.vanished) == ["test_counts[16]"]
    assert {name.rpartition("::")[2]: what for name, what in one.new.items()} == {"test_counts[4]": "passed"}
    assert names(one.broken) == ["test_broken"]
    assert [*one.broken.values()] == ["AssertionError: broken before"]
    assert one.both == 1
    assert one.stock["all"] == {"passed": 6, "failed": 1, "skipped": 2, "xfailed": 1}
    assert one.overlay["all"]["skipped"] == 2


SETTLED = """
import gc
import weakref

class Thing:
    pass

def test_the_collector_leaves_what_was_imported_alone():
    gc.unfreeze()
    gc.collect()
    assert gc.get_freeze_count() > 1000

def test_the_collector_takes_what_a_test_made():
    thing = Thing()
    thing.itself, seen = thing, weakref.ref(thing)
    del thing
    gc.collect()
    assert seen() is None
"""


def test_upstreams_collections_cost_nothing(upstream: Upstream) -> None:
    found = check(upstream(test_core=SAME + SETTLED)).verdict
    assert (found.stands, found.both) == (True, 3)


def counting(path: Path, fails: str) -> str:
    """A test that fails in those of its runs that `fails` says."""
    return f"\ndef test_now_and_then():\n    with open({str(path)!r}, 'a+') as file:\n        file.write('x')\n        file.seek(0)\n        run = len(file.read())\n    assert not ({fails}), f'in run {{run}}'\n"


def test_unsteady_on_stock_is_no_regression(upstream: Upstream, tmp_path: Path) -> None:
    found = check(upstream(test_core=SAME + counting(tmp_path / "runs", "run >= 2")))
    assert found.verdict.stands
    assert {name.rpartition("::")[2]: what for name, what in found.verdict.unsteady.items()} == {"test_now_and_then": "failed"}  # fmt: skip
    assert found.verdict.stock["all"] == {"passed": 1, "unsteady": 1}
    assert found.verdict.both == 1


def test_flaky_on_the_overlay_alone_is_a_regression(
    upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    series = upstream(test_core=SAME + counting(tmp_path / "runs", "run == 3"))
    monkeypatch.chdir(series.project.root)
    assert main(["upstream-tests", "demo"]) == 6
    said = capsys.readouterr().out
    assert "test_now_and_then: passed on stock, failed on the overlay: AssertionError: in run 3" in said
    assert "flaky: passed when it ran once more, alone" in said
    assert main(["upstream-tests", "demo"]) == 0, "a result that does not stand is not kept"


def test_a_regression_that_imports_nothing_of_the_series_runs_again_too(upstream: Upstream) -> None:
    reads = "import demo, pathlib\n\ndef test_reads():\n    assert '// tp' not in (pathlib.Path(demo.__file__).parent / 'core.py').read_text()\n"
    (worse,) = check(upstream(test_core=SAME, test_reads=reads)).verdict.regressions
    assert (worse.overlay, worse.alone) == ("failed", "failed")


def test_a_hang_is_a_failure_that_names_the_file(upstream: Upstream, tmp_path: Path) -> None:
    child = f"    import subprocess\n    open({str(tmp_path / 'pid')!r}, 'w').write(str(subprocess.Popen(['sleep', '600']).pid))\n"
    hangs = (
        SAME
        + f"\ndef test_hangs():\n    if MENDED:\n    {child.replace(chr(10), chr(10) + '    ')}    import time; time.sleep(600)\n\ndef test_after():\n    pass\n"
    )
    found = check(upstream(test_one=hangs, test_other=SAME, test_third=SAME), limit=3.0)
    said = {one.name: (one.overlay, one.text) for one in found.verdict.regressions}
    assert said["tests/test_one.py"] == ("did not", "it did not end within 3 s")
    assert said["tests/test_one.py::test_hangs"][0] == said["tests/test_one.py::test_after"][0] == "not run"
    assert len(said) == 3
    assert found.verdict.both == 3
    wait_for_end((tmp_path / "pid").read_text())


def wait_for_end(pid: str) -> None:
    until = time.monotonic() + 5
    while alive(pid):
        assert time.monotonic() < until
        time.sleep(0.05)


def alive(pid: str) -> bool:
    try:
        return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    ("where", "end"), [("test", "os._exit(3)"), ("test", "os.kill(os.getpid(), 11)"), ("import", "os._exit(3)"), ("test", "pytest.exit('enough')")]
)  # fmt: skip
def test_a_process_that_dies_takes_no_other_file_with_it(upstream: Upstream, where: str, end: str) -> None:
    dies = f"import os\nif MENDED:\n    {end}\n"
    text = SAME + (
        dies if where == "import" else f"\ndef test_dies():\n    {dies.replace(chr(10), chr(10) + '    ')}\n"
    )
    found = check(upstream(test_dies=text, test_a=SAME, test_z=SAME)).verdict
    assert [one.name for one in found.regressions if "::" not in one.name] == ["tests/test_dies.py"]
    assert found.both == (2 if where == "import" else 3)


def test_a_file_that_cannot_be_collected_on_stock_is_named(upstream: Upstream) -> None:
    found = check(upstream(test_none="import nowhere\n", test_core=SAME, test_empty=HEAD)).verdict
    assert found.stands
    assert found.faults == {
        "tests/test_empty.py": "it holds no test",
        "tests/test_none.py": "it cannot be collected: ModuleNotFoundError: No module named 'nowhere'",
    }


def test_a_file_that_cannot_be_collected_on_the_overlay_alone(upstream: Upstream) -> None:
    found = check(upstream(test_core=SAME, test_one=HEAD + "assert not MENDED\n\ndef test_one():\n    pass\n")).verdict
    assert [one.name for one in found.regressions] == ["tests/test_one.py"]
    assert names(found.vanished) == ["test_one"]


def test_a_file_that_skips_itself_is_no_pass(upstream: Upstream) -> None:
    skips = HEAD + "if MENDED:\n    pytest.skip('not here', allow_module_level=True)\n\ndef test_one():\n    pass\n"
    found = check(upstream(test_core=SAME, test_one=skips)).verdict
    assert not found.stands
    assert names(found.vanished) == ["test_one"]
    assert found.new == {"tests/test_one.py::": "skipped"}


def test_upstreams_conftest_and_configuration_are_heard(upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SOURCE, "pyproject.toml", b"[tool.pytest.ini_options]\npython_functions = ['check_*']\n")
    conftest = "import pytest\n\n@pytest.fixture\ndef sixteen():\n    return 16\n"
    found = check(upstream(conftest=conftest, test_core=HEAD + "def check_it(sixteen):\n    assert heads(sixteen, 1) == 16\n")).verdict  # fmt: skip
    assert found.stands
    assert found.both == 1


def refused(series: Carried, kind: type[PatchlineError], **more: float) -> str:
    with pytest.raises(kind) as caught:
        check(series, **more)  # type: ignore[arg-type]
    return str(caught.value)


OTHER_TREE = "import sys, pathlib\nsys.path.insert(0, str(pathlib.Path(__file__).parent / 'other'))\n"


@pytest.mark.parametrize(
    ("tests", "said"),
    [
        ({"conftest": OTHER_TREE, "other/demo/__init__": "", "other/demo/core": MENDED, "test_core": SAME}, "the tests imported demo from "),
        ({"test_core": "def test_x():\n    pass\n"}, "the tests did not import demo: nothing was proven"),
        ({"test_core": "import demo\n\ndef test_x():\n    pass\n"}, "the tests did not import demo.core: nothing was proven"),
        ({"test_core": SAME.replace("== 16\n", "== 15\n")}, "none passes on stock"),
        ({"test_core": SAME, "conftest": "def pytest_sessionfinish(session):\n    session.exitstatus = 5\n"}, "pytest ended with status 5, and what its tests did means 0"),
        ({"test_core": SAME, "conftest": "raise ValueError\n"}, "pytest ended with status 4"),
    ],
)  # fmt: skip
def test_runs_that_prove_nothing(upstream: Upstream, tests: dict[str, str], said: str) -> None:
    assert said in refused(upstream(**tests), ProofFailed)


def test_runs_on_stock_that_do_not_agree_on_a_file(upstream: Upstream, tmp_path: Path) -> None:
    path = str(tmp_path / "seen")
    dies = f"import os\nif os.path.exists({path!r}):\n    raise ValueError('second')\nopen({path!r}, 'w').close()\n"
    said = refused(upstream(test_core=SAME, test_dies=SAME + dies), ProofFailed)
    assert "tests/test_dies.py: ran; it cannot be collected: ValueError: second" in said


def test_a_test_that_writes_into_the_package(upstream: Upstream, environment: Environment) -> None:
    writes = SAME + "\ndef test_writes():\n    import demo\n    open(demo.__path__[0] + '/more.txt', 'w').close()\n"
    try:
        assert "after the runs, the installed package is not what was installed" in refused(upstream(test_core=writes), SourceMismatch)  # fmt: skip
    finally:
        (environment.site_packages / "demo" / "more.txt").unlink()


HUB = "[[hub]]\nmodel = 'tiny/one'\nconfig = 'TinyConfig'\narguments = { heads = 4 }\n"
READS = """
def test_reads():
    import json, os, pathlib
    home = pathlib.Path(os.environ['HF_HOME'], 'hub', 'models--tiny--one')
    commit = (home / 'refs' / 'main').read_text()
    assert json.loads((home / 'snapshots' / commit / 'config.json').read_text()) == {'heads': 4}
"""


TRANSFORMERS = "import json\n\nclass TinyConfig:\n    def __init__(self, **kept): self.kept = kept\n    def to_json_string(self, use_diff): return json.dumps(self.kept)\n"


@pytest.fixture
def transformers(environment: Environment) -> Iterator[None]:
    """A stand-in for it, in the environment."""
    path = environment.site_packages / "transformers.py"
    path.write_text(TRANSFORMERS)
    yield
    path.unlink()


@pytest.mark.usefixtures("transformers")
def test_a_hub_of_configurations(upstream: Upstream) -> None:
    series = upstream(test_core=SAME + READS)
    path = path_of(series.project, series.name)
    path.write_text(path.read_text() + HUB)
    found = check(series).verdict
    assert found.both == 2


@pytest.mark.usefixtures("transformers")
def test_a_configuration_that_transformers_does_not_know(upstream: Upstream) -> None:
    series = upstream(listed=LIST + HUB.replace("Tiny", "Other"), test_core=SAME)
    assert "the models' configurations cannot be made" in refused(series, UsageError)
    assert "AttributeError" in refused(series, UsageError)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Says which runs there were since it was last asked."""
    seen: list[str] = []
    real = runs.run

    def run(place: process.Place, lists: list[list[str]]) -> runs.Ran:
        seen.append(place.what.rpartition(" on ")[2])
        return real(place, lists)

    monkeypatch.setattr(runs, "run", run)

    def since() -> list[str]:
        now = [*seen]
        seen.clear()
        return now

    return since


STOCK = ["stock, first run", "stock, second run"]


def test_what_is_known_is_not_run_again(upstream: Upstream, counted: Callable[[], list[str]]) -> None:
    series = upstream(test_core=SAME, test_two=SAME)
    first = check(series)
    assert counted() == [*STOCK, "the overlay"]
    assert first.recorded == []
    known = check(series, record=True)
    assert counted() == []
    assert known.verdict == first.verdict
    folder = series.project.root / "builds" / "evidence" / "demo-1.0"
    assert known.recorded == [folder / "upstream-stock.json", folder / "upstream-overlay.json"]
    assert check(series, fresh=True).verdict.stands
    assert counted() == [*STOCK, "the overlay"]


def test_another_overlay_needs_no_new_run_on_stock(upstream: Upstream, counted: Callable[[], list[str]]) -> None:
    series = upstream(test_core=SAME)
    check(series, record=True)
    counted()
    patch = series.folder / "0001-three-heads.patch"
    patch.write_text(patch.read_text().replace("+# three\n", "+# 3\n"))
    assert check(series).verdict.stands
    assert counted() == ["the overlay"]


class WouldRun(Exception):
    """Nothing is known; what it would run costs seconds, and is shown elsewhere."""


@pytest.mark.usefixtures("transformers")
def test_nothing_is_known_of_other_inputs(upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    series = upstream(test_core=SAME, test_two=SAME)
    path = path_of(series.project, series.name)
    listed = path.read_text()
    check(series, record=True)

    def run(place: process.Place, lists: list[list[str]]) -> runs.Ran:
        raise WouldRun

    def would_run(found: Carried = series) -> bool:
        with pytest.raises(WouldRun):
            check(found)
        return True

    monkeypatch.setattr(runs, "run", run)
    assert check(series).verdict.stands
    left = "[[left_out]]\nwhy = 'it is the same'\nfiles = ['tests/test_two.py']\n"
    for text in (listed + HUB, listed.replace(", 'tests/test_two.py'", "") + left):
        path.write_text(text)
        assert would_run()
    path.write_text(listed)
    for where, name, other in ((checking, "_code", lambda: "other"), (bench, "_requirements", lambda _: ("other",))):
        with monkeypatch.context() as patch:
            patch.setattr(where, name, other)
            assert would_run()
    assert check(series).verdict.stands
    assert would_run(upstream_again(upstream, series))


def upstream_again(upstream: Upstream, old: Carried) -> Carried:
    """The same version with other bytes, and with the evidence of the old ones."""
    root = old.project.root
    kept = {path.relative_to(root).as_posix(): path.read_bytes() for path in root.glob("builds/evidence/*/*")}
    for left in root.parent.iterdir():
        shutil.rmtree(left)
    series = upstream(test_core=SAME + "\n# more\n", test_two=SAME)
    write(series.project.root, kept)
    assert len(kept) == 2
    return series


def test_a_verdict_is_drawn_from_what_tests_did(upstream: Upstream, counted: Callable[[], list[str]]) -> None:
    """Whatever wrote a record: a pass that stock does not have, a failure on the overlay."""
    series = upstream(test_core=SAME)
    _, path = check(series, record=True).recorded
    counted()
    data = json.loads(path.read_text())
    data["result"]["tests/test_core.py"]["tests"]["test_same"] = "failed"
    evidence.keep(sealed(msgspec.convert(data, Evidence)), series.project)
    assert check(series).verdict.stands
    assert counted() == ["the overlay"]
    data["result"]["tests/test_core.py"]["tests"] = 3
    evidence.keep(sealed(msgspec.convert(data, Evidence)), series.project)
    assert "is not of 1 runs" in refused(series, SourceMismatch)


LIST = "folders = ['tests']\n[[suites]]\nname = 'all'\nwhy = 'it is small'\nfiles = ['tests/test_core.py']\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("folders = [", "this is not TOML"),
        (LIST.replace("suites", "suite"), "the file: unknown key 'suite': did you mean 'suites'?"),
        (LIST.replace("why", "reason"), "suites, entry 1: unknown key 'reason'"),
        (LIST + HUB.replace("model ", "modell "), "hub, entry 1: unknown key 'modell': did you mean 'model'?"),
        (LIST.replace("'all'", "3"), "Expected `str`, got `int`"),
        ("folders = []\nsuites = []\n", "it has no suites"),
        (LIST.replace("it is small", " "), "a list has no `why`"),
        (LIST.replace("'tests/test_core.py'", ""), "a list has no files"),
        (LIST.replace("'tests/test_core.py'", "'tests/../demo/core.py'"), "it has the component '..'"),
        (LIST.replace("'tests/test_core.py'", "'demo/core.py'"), "demo/core.py is not below tests/"),
        (LIST.replace("'tests/test_core.py'", "'tests/test_core.py', 'tests/test_core.py'"), "tests/test_core.py is named twice"),
        (LIST + HUB.replace("tiny/one", "tiny"), "'tiny' is not OWNER/NAME"),
        (LIST + HUB.replace("TinyConfig", "tiny"), "tiny/one: 'tiny' is not a configuration class"),
        (LIST.replace("test_core", "test_gone"), "the pin has no tests/test_gone.py"),
        (LIST.replace("test_core", "test_gone"), "tests/test_core.py is in no suite, and not left out"),
    ],
)  # fmt: skip
def test_a_list_that_is_wrong(upstream: Upstream, text: str, said: str) -> None:
    assert said in refused(upstream(listed=text, test_core=SAME), UsageError)


def test_no_list_at_all(upstream: Upstream) -> None:
    series = upstream(test_core=SAME)
    path_of(series.project, series.name).unlink()
    assert "nothing says which of upstream's tests are run for demo==1.0" in refused(series, UsageError)


def test_runs_keep_what_they_are_when_packed() -> None:
    one: verdict.Files = {"tests/test_a.py": FileRun(1.5, "", {"test_x": Outcome("passed", ""), "test_y": Outcome("failed", "why")})}  # fmt: skip
    other: verdict.Files = {"tests/test_a.py": FileRun(2.5, "it did not end", {"test_x": Outcome("not run", "")})}
    assert verdict.unpacked(json.loads(json.dumps(verdict.packed([one, other]))), 2) == [one, other]


def test_files_are_spread_by_weight() -> None:
    assert runs.spread({"a": 1.0, "b": 5.0, "c": 3.0, "d": 1.0}) == [["b"], ["c", "a", "d"]]
    assert runs.spread({"a": 1.0}) == [["a"]]


def test_the_verb(upstream: Upstream, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    series = upstream(test_core=SAME, test_none="import nowhere\n")
    path = path_of(series.project, series.name)
    monkeypatch.chdir(series.project.root)
    assert main(["upstream-tests", "demo==1.0", "--record", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["stands"], data["passed_on_both"]) == (True, 1)
    assert data["totals"] == {"stock": {"all": {"passed": 1}}, "overlay": {"all": {"passed": 1}}}
    assert len(data["recorded"]) == 2
    assert main(["upstream-tests", "demo"]) == 0
    said = capsys.readouterr().out
    assert "all                       passed 1 / 1\n" in said
    assert "  tests/test_none.py: it cannot be collected: ModuleNotFoundError" in said
    assert "nothing is worse: 1 tests pass on both, for demo==1.0, overlay sha256:" in said
    path.write_text("")
    assert main(["upstream-tests", "demo"]) == 2


def test_a_checked_result_says_what_it_covers(upstream: Upstream) -> None:
    found: Checked = check(upstream(test_core=SAME))
    assert set(found.on_overlay.covers) - set(found.stock.covers) == {"overlay"}
    assert found.on_overlay.covers["overlay"] == found.overlay.digest
