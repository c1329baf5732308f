"""Proofs: red on stock for the stated reason, green on the overlay, and nothing else counts.

Here the package is a small demo in a real venv; `nox -s nightly` does the same with real vLLM.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from carrying import SOURCE, core, project, write
from demo_env import stand_in

from patchline.commands import prove as prove_verb
from patchline.errors import PatchlineError, ProofFailed, SourceMismatch, UsageError
from patchline.overlay import overlay
from patchline.proofs import bench
from patchline.proofs import prove as proving
from patchline.proofs.env import Environment
from patchline.proofs.suite import Run
from patchline.proofs.tree import overlaid
from patchline.proofs.verdicts import Proof, needed
from patchline.series.carried import Carried, carried

FIXED = core(l3="# three")["demo/core.py"].replace("return total", "return max(1, total // tp)")
RED = "import pytest\nfrom demo.core import heads\n\n@pytest.mark.holds(stock=r'heads were 16')\ndef test_heads():\n    got = heads(16, 4)\n    assert got == 4, f'heads were {got}'\n"
BROKEN = "import pytest\n\n@pytest.fixture\ndef broken():\n    raise ValueError\n\n"
KEPT = "\n@pytest.mark.unchanged\ndef test_kept():\n    assert heads(16, 1) == 16\n"


@pytest.fixture
def series(tmp_path: Path, environment: Environment, monkeypatch: pytest.MonkeyPatch) -> Carried:
    """One patch that mends `heads`, with the tests that a test gives it."""
    made = project(tmp_path / "p", ("[Demo] Three heads", {"demo/core.py": FIXED}))
    stand_in(monkeypatch, environment)
    return carried("demo", made)


def the_tests(series: Carried, text: str) -> None:
    (series.project.root / "tests" / "patches" / "demo" / "test_three.py").write_text(text)


def faults(series: Carried, text: str) -> list[str]:
    the_tests(series, text)
    done = proving.prove(series)
    assert not done.stands
    return done.proofs[0].faults


def test_proven(series: Carried, environment: Environment) -> None:
    the_tests(series, RED + KEPT)
    done = proving.prove(series)
    assert done.stands, done.proofs
    (proof,) = done.proofs
    assert [name.rpartition("::")[2] for name in (*proof.red, *proof.kept)] == ["test_heads", "test_kept"]
    assert done.stock.tests[proof.red[0]].outcome == "failed"
    assert (environment.site_packages / "demo" / "core.py").read_bytes() == SOURCE["demo/core.py"]


HEAD = "import sys, unittest\nimport pytest\nfrom demo.core import heads\n\n"
HOLDS = "@pytest.mark.holds(stock=r'heads were 16')\n"
BODY = "    got = heads(16, 4)\n    assert got == 4, f'heads were {got}'\n"
SUBTEST = "    with subtests.test():\n"
NO_PROOFS = {
    "wrong": (HOLDS, BODY.replace("== 4", "== 16"), "on the overlay: failed"),
    "green": (HOLDS, BODY.replace("heads(16, 4)", "heads(4, 1)"), "it passes on stock: it holds nothing"),
    "other": ("@pytest.mark.holds(stock='SPLIT')\n", BODY, "fails for another reason than 'SPLIT'"),
    "skips": (HOLDS, "    pytest.skip('no')\n", "on the overlay: skipped"),
    "marked_skip": ("@pytest.mark.skip\n" + HOLDS, BODY, "on the overlay: skipped"),
    "marked_xfail": ("@pytest.mark.xfail\n" + HOLDS, BODY, "on the overlay: xfail"),
    "unmarked": ("", BODY, "it needs one of the marks"),
    "both": ("@pytest.mark.unchanged\n" + HOLDS, BODY, "it needs one of the marks"),
    "kept": ("@pytest.mark.unchanged\n", BODY, "marked unchanged, and on stock: failed"),
    "fixture(broken)": (HOLDS, BODY, "on the overlay: error"),
    "empty": ("@pytest.mark.holds(stock='')\n", BODY, "its pattern '' matches any failure"),
    "dots": ("@pytest.mark.holds(stock='.+')\n", BODY, "its pattern '.+' matches any failure"),
    "maybe": ("@pytest.mark.holds(stock='(heads)?')\n", BODY, "its pattern '(heads)?' matches any failure"),
    "colon": ("@pytest.mark.holds(stock=r'\\w: ')\n", BODY, "matches any failure"),
    "no_regex": ("@pytest.mark.holds(stock='(')\n", BODY, "its pattern '(' is no regular expression"),
    "no_text": ("@pytest.mark.holds(stock=16)\n", BODY, "its mark is not holds(stock=…)"),
    "no_keyword": ("@pytest.mark.holds('heads were 16')\n", BODY, "its mark is not holds(stock=…)"),
    "no_pattern": ("@pytest.mark.holds\n", BODY, "its mark is not holds(stock=…)"),
    "twice": (HOLDS + HOLDS, BODY, "its mark is not holds(stock=…)"),
    "sub(subtests)": (HOLDS, SUBTEST + "        assert heads(16, 4) == 16\n", "on the overlay: failed"),
    "sub_other(subtests)": (HOLDS, SUBTEST + BODY.replace("    ", "        ") + SUBTEST + "        assert heads(16, 4) == 4, 'ten'\n", "for another reason"),
    "sub_kept(subtests)": ("@pytest.mark.unchanged\n", SUBTEST + "        assert heads(16, 4) == 4\n", "on stock: failed"),
    "misspelt": (HOLDS.replace("heads were 16", "nope"), BODY.replace("    got", "    if heads(16, 4) == 16:\n        nope\n    got"), "it fails of NameError"),
}  # fmt: skip
TEST_CASE = "class TestCase(unittest.TestCase):\n    @pytest.mark.unchanged\n    def test_x(self):\n        with self.subTest():\n            self.assertEqual(heads(16, 4), 4)\n"


def test_what_is_no_proof(series: Carried) -> None:
    tests = [f"{marks}def test_{name}{'' if '(' in name else '()'}:\n{body}\n" for name, (marks, body, _) in NO_PROOFS.items()]  # fmt: skip
    found = faults(series, HEAD + BROKEN + "\n".join(tests) + TEST_CASE)
    said = {name.partition("(")[0]: text for name, (_, _, text) in NO_PROOFS.items()}
    missing = [name for name, text in said.items() if not any(f"::test_{name}: " in one and text in one for one in found)]  # fmt: skip
    assert not missing, found
    assert any("::TestCase::test_x: marked unchanged, and on stock: failed" in one for one in found), found
    assert len(found) == len(NO_PROOFS) + 2
    assert found[-1] == "no test fails on stock and passes on the overlay: nothing holds this patch"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("from demo.core import heads\n", "collects no test"),
        ("from demo.core import heads\nimport nowhere\n", "was not collected"),
        (RED.replace("from demo.core", "import sys\nif 'overlays' in sys.modules.get('demo', __import__('demo')).__file__:\n    import demo.core\n    pytest.skip('x', allow_module_level=True)\nfrom demo.core"), "on stock only"),
        ("pytest_plugins = ['drops']\n" + RED + KEPT, "test_kept is deselected"),
        ("pytest_plugins = ['fails']\n" + RED + KEPT, "test_kept: on the overlay: failed: made so"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_proof(series: Carried, text: str, fault: str) -> None:
    drops = "def pytest_collection_modifyitems(config, items):\n    config.hook.pytest_deselected(items=items[1:])\n    del items[1:]\n"
    fails = "import pytest\n\n@pytest.hookimpl(tryfirst=True)\ndef pytest_runtest_logreport(report):\n    if 'kept' in report.nodeid and report.when == 'call':\n        report.outcome, report.longrepr = 'failed', 'made so'\n"
    write(series.project.root, {"tests/patches/demo/drops.py": drops, "tests/patches/demo/fails.py": fails})
    found = faults(series, text)
    assert any(fault in one for one in found), found


def test_an_accident_counts_where_it_is_stated(series: Carried) -> None:
    the_tests(series, RED.replace("heads were 16", "NameError: .*nope").replace("    got =", "    if heads(16, 4) == 16:\n        nope\n    got ="))  # fmt: skip
    assert proving.prove(series).stands


@pytest.mark.parametrize("where", ["tests/patches/demo", "tests/patches", "."])
def test_a_conftest_decides_nothing(series: Carried, where: str) -> None:
    """It makes all tests pass on stock and fail on the overlay, if it is heard."""
    heard = "import pytest\n\n@pytest.hookimpl(wrapper=True)\ndef pytest_runtest_call(item):\n    try:\n        yield\n    except BaseException:\n        return\n    raise ValueError\n"
    write(series.project.root, {f"{where}/conftest.py": heard})
    the_tests(series, RED)
    done = proving.prove(series)
    assert len(done.proofs[0].red) == 1
    wanted = [] if where == "." else [f"{where}/conftest.py: conftest.py could change what a test says; put it in a plain module"]  # fmt: skip
    assert done.proofs[0].faults == wanted


@pytest.fixture
def two(tmp_path: Path, environment: Environment, monkeypatch: pytest.MonkeyPatch) -> Carried:
    """Two patches: one mends `heads`, the other adds `more`."""
    first = {"demo/core.py": FIXED}
    second = {"demo/core.py": FIXED + "def more():\n    return 7\n"}
    made = project(tmp_path / "two", ("[Demo] Three heads", first), ("[Demo] Four more", second))
    stand_in(monkeypatch, environment)
    return carried("demo", made)


MORE = "import pytest\nfrom demo import core\n\n@pytest.mark.holds(stock=r'there is no more')\ndef test_more():\n    assert hasattr(core, 'more'), 'there is no more'\n"


def test_the_second_of_two_needs_the_first(two: Carried) -> None:
    the_tests(two, RED)
    write(two.project.root, {"tests/patches/demo/test_four.py": MORE})
    done = proving.prove(two)
    assert done.stands, done.proofs
    assert [len(proof.without) for proof in done.proofs] == [1, 1]
    assert list(done.before) == ["0002-four-more.patch"]
    assert [name.rpartition("::")[2] for name in done.before["0002-four-more.patch"].tests] == ["test_more"]
    assert "fails without it: 1 test\n" in prove_verb.text(done)
    assert prove_verb.data(done)["patches"][1]["without"] == done.proofs[1].red


def test_a_patch_that_names_another_ones_tests(two: Carried) -> None:
    the_tests(two, RED)
    write(two.project.root, {"tests/patches/demo/test_four.py": RED})
    first, second = proving.prove(two).proofs
    assert first.stands
    assert second.faults == ["no test fails without it: the patches before it make its tests pass"]
    assert second.without == []


def test_a_first_patch_that_changes_nothing_installed(
    tmp_path: Path, environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = ("[Demo] Three words", {"docs/index.md": "# more\n"}), ("[Demo] Four heads", {"demo/core.py": FIXED})
    stand_in(monkeypatch, environment)
    two = carried("demo", project(tmp_path / "p", *changes))
    the_tests(two, RED)
    write(two.project.root, {"tests/patches/demo/test_four.py": RED})
    first, second = proving.prove(two).proofs
    assert first.faults == ["it changes no file of the installed package"]
    assert second.stands
    assert len(second.without) == 1


def test_tests_that_cannot_be_collected_on_the_patches_before() -> None:
    before = Run({}, [], ["tests/patches/demo/test_four.py: ImportError"], 0.0)
    (fault,) = needed(Proof("a.patch", ["test_four.py::test_x"], [], [], []), before).faults
    assert fault == "on the patches before it, not collected: tests/patches/demo/test_four.py: ImportError"


def test_the_modules_of_a_change() -> None:
    paths = ["demo/__init__.py", "demo/v1/core.py", "demo/data.txt", "demo/my-script.py", "demo/a b.py"]
    assert bench.modules(paths) == ("demo", "demo.v1.core")


def failed(series: Carried, kind: type[PatchlineError], limit: float = proving.LIMIT) -> str:
    with pytest.raises(kind) as caught:
        proving.prove(series, limit=limit)
    return str(caught.value)


def test_a_test_that_hangs(series: Carried, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("patchline.proofs.suite.EVERY", 0.5)
    the_tests(series, RED.replace("    got =", "    import time; time.sleep(600)\n    got ="))
    assert "did not end within 2 s" in failed(series, ProofFailed, limit=2.0)


def test_tests_that_import_another_tree(series: Carried) -> None:
    write(series.project.root, {"tests/patches/demo/demo/core.py": FIXED, "tests/patches/demo/demo/__init__.py": ""})
    the_tests(series, "import sys, pathlib\nsys.path.insert(0, str(pathlib.Path(__file__).parent))\n" + RED)
    assert "nothing was proven" in failed(series, ProofFailed)


def test_tests_that_import_nothing(series: Carried) -> None:
    the_tests(series, "def test_x():\n    pass\n")
    assert "the tests did not import demo: nothing was proven" in failed(series, ProofFailed)


def test_tests_that_import_one_module_from_another_tree(series: Carried) -> None:
    text = "import sys, types\nother = types.ModuleType('demo.core')\nother.__file__ = __file__\nother.heads = lambda *a: 4\n"
    the_tests(series, text + "import demo\nsys.modules['demo.core'] = other\n" + RED)
    assert f"imported demo.core from {series.project.root}" in failed(series, ProofFailed)


def test_tests_that_import_no_changed_module(series: Carried) -> None:
    the_tests(series, RED.replace("from demo.core import heads", "import demo\nheads = lambda *a: 16"))
    assert "the tests did not import demo.core: nothing was proven" in failed(series, ProofFailed)


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("pytest.exit('enough')", 2),
        ("raise KeyboardInterrupt", 2),
    ],
)
def test_a_status_that_the_report_does_not_explain(series: Carried, end: str, status: int) -> None:
    the_tests(series, RED.replace("    got =", f"    {end}\n    got ="))
    assert f"pytest ended with status {status}, which its report does not explain" in failed(series, ProofFailed)


@pytest.mark.parametrize("end", ["os.abort", "lambda: os._exit(0)"])
def test_how_the_interpreter_goes_is_no_outcome(series: Carried, end: str) -> None:
    """Libraries with threads of their own may abort a process that ends."""
    the_tests(series, RED.replace("    got =", f"    import atexit, os; atexit.register({end})\n    got ="))
    assert proving.prove(series).stands


FROM = (
    "import sys\nfrom pathlib import Path\nsys.path.insert(0, str(Path(__file__).parents[1] / {!r}))\nimport helper\n"
)


def test_tests_that_import_what_evidence_does_not_cover(series: Carried) -> None:
    write(series.project.root, {"tests/patches/other/helper.py": "", "tests/patches/demo-since-2/helper.py": ""})
    for folder in ("other", "demo-since-2"):
        the_tests(series, FROM.format(folder) + RED)
        said = failed(series, ProofFailed)
        assert f"the tests imported what evidence of them does not cover: tests/patches/{folder}/helper.py" in said


def test_a_later_versions_tests_may_use_those_before(series: Carried) -> None:
    path = series.folder / "0001-three-heads.patch"
    path.write_text(
        path.read_text().replace("tests/patches/demo/test_three.py", "tests/patches/demo-since-2/test_it.py")
    )
    text = FROM.format("demo") + RED
    write(series.project.root, {"tests/patches/demo/helper.py": "", "tests/patches/demo-since-2/test_it.py": text})
    assert proving.prove(series).stands
    write(series.project.root, {"tests/patches/demo/helper.py": "raise ValueError\n"})  # it is seen: it counts no more
    with pytest.raises(PatchlineError):
        proving.prove(series)


def test_nothing_that_tests_started_outlives_them(series: Carried, tmp_path: Path) -> None:
    left = f"import subprocess\nwith open({str(tmp_path / 'pids')!r}, 'a') as file:\n    print(subprocess.Popen(['sleep', '60']).pid, file=file)\n"
    the_tests(series, left + RED)
    assert proving.prove(series).stands
    pids = (tmp_path / "pids").read_text().split()
    assert len(pids) == 2
    until = time.monotonic() + 5
    while any(alive(pid) for pid in pids) and time.monotonic() < until:
        time.sleep(0.05)
    assert [pid for pid in pids if alive(pid)] == []


def alive(pid: str) -> bool:
    """Whether it runs; one that nobody took the end of is dead."""
    try:
        return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_relative_cache(series: Carried, monkeypatch: pytest.MonkeyPatch, own_world: Path) -> None:
    series.apply()
    the_tests(series, RED)
    monkeypatch.chdir(own_world.parent)
    monkeypatch.setenv("PATCHLINE_CACHE", own_world.name)
    assert proving.prove(series).stands


def test_a_process_that_dies(series: Carried) -> None:
    the_tests(series, RED.replace("    got =", "    import os; os._exit(1)\n    got ="))
    assert "pytest ended without a report" in failed(series, ProofFailed)


def test_a_patch_that_names_no_tests(series: Carried) -> None:
    path = series.folder / "0001-three-heads.patch"
    path.write_text(path.read_text().replace("\nTests: tests/patches/demo/test_three.py", ""))
    assert "0001-three-heads.patch: its Tests: trailer names nothing" in failed(series, UsageError)


def test_an_installed_package_that_is_not_the_pin(series: Carried, environment: Environment) -> None:
    the_tests(series, RED)
    path = environment.site_packages / "demo" / "core.py"
    path.write_bytes(SOURCE["demo/core.py"] + b"# edited\n")
    try:
        assert "the installed package is not the pin" in failed(series, SourceMismatch)
    finally:
        path.write_bytes(SOURCE["demo/core.py"])


@pytest.mark.parametrize(
    ("path", "data"), [("demo/__init__.py", b"# edited\n"), ("demo/data.txt", b""), ("demo/new.py", b"")]
)
def test_an_environment_that_is_not_its_record(
    series: Carried, environment: Environment, path: str, data: bytes
) -> None:
    the_tests(series, RED)
    file = environment.site_packages / path
    file.write_bytes(data)
    try:
        said = failed(series, SourceMismatch)
    finally:
        file.unlink()
        write(environment.site_packages, {path: SOURCE[path]} if path in SOURCE else {})
    assert f"before the runs, the installed package is not what was installed: 1 files are not those of its RECORD\n  {path}\n" in said  # fmt: skip


def test_a_package_without_record(series: Carried, environment: Environment) -> None:
    the_tests(series, RED)
    info = environment.site_packages / "demo-1.0.dist-info"
    info.rename(info.with_name("gone"))
    try:
        assert "no RECORD in the environment says what the files of demo are" in failed(series, SourceMismatch)
    finally:
        info.with_name("gone").rename(info)


def test_a_test_that_writes_into_the_environment(series: Carried, environment: Environment) -> None:
    """On the overlay's tree, where the unchanged files are hard links."""
    the_tests(
        series, "import demo\nif 'overlays' in demo.__file__:\n    open(demo.__file__, 'a').write('# mine')\n" + RED
    )
    try:
        said = failed(series, SourceMismatch)
    finally:
        (environment.site_packages / "demo" / "__init__.py").unlink()
        write(environment.site_packages, {"demo/__init__.py": b""})
    assert "after the runs, the installed package is not what was installed" in said
    assert "  demo/__init__.py\n" in said


@pytest.mark.parametrize("spoil", ["bytes", "mode", "gone", "extra", "unchanged", "bytecode"])
def test_a_kept_tree_that_was_edited(series: Carried, environment: Environment, spoil: str) -> None:
    made = overlay(series)
    home = overlaid(made, environment.site_packages)
    core, data = home / "demo" / "core.py", home / "demo" / "data.txt"
    if spoil == "bytes":
        core.write_bytes(core.read_bytes() + b"\n")
    elif spoil == "mode":
        core.chmod(0o755)
    elif spoil == "gone":
        core.unlink()
    elif spoil == "extra":
        (home / "demo" / "more.py").write_bytes(b"")
    elif spoil == "unchanged":
        data.unlink()
        data.write_bytes(b"edited")
    else:
        stale = home / "demo" / "__pycache__" / "core.cpython-311.pyc"
        write(home, {stale.relative_to(home).as_posix(): b"edited"})
        assert overlaid(made, environment.site_packages) == home
        assert not stale.exists()
        return
    with pytest.raises(SourceMismatch, match=r"overlay's tree is not what was put there: 1 files differ\n  demo/"):
        overlaid(made, environment.site_packages)


def test_the_same_bytes_in_another_file_are_the_environments(series: Carried, environment: Environment) -> None:
    made = overlay(series)
    data = overlaid(made, environment.site_packages) / "demo" / "data.txt"
    data.unlink()
    data.write_bytes(SOURCE["demo/data.txt"])
    assert overlaid(made, environment.site_packages) == data.parents[1]


def test_the_whole_way_through_the_verb(
    series: Carried, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from patchline.cli import main

    monkeypatch.chdir(series.project.root)
    the_tests(series, RED + KEPT)
    assert main(["nightly"]) == 0
    out = capsys.readouterr().out
    for text in ("checked 1 series, 1 patches", "demo 1.0 checked out", "proven  0001-three-heads.patch", "sha256:"):
        assert text in out
    assert "red on stock, green on the overlay: test_three.py::test_heads: AssertionError: heads were 16" in out
    the_tests(series, RED.replace("== 4", "== 5"))
    assert main(["nightly", "--json"]) == 6
    assert '"proven": false' in capsys.readouterr().out
    (series.folder / "series").write_text("gone.patch\n")
    assert main(["nightly"]) == 8
