"""Proofs: red on stock for the stated reason, green on the overlay, and nothing else counts.

Here the package is a small demo in a real venv; `nox -s nightly` does the same with real vLLM.
"""

from __future__ import annotations

import site
import subprocess
import sys
from pathlib import Path

import pytest
from carrying import SOURCE, core, project, write

from patchline.errors import PatchlineError, ProofFailed, SourceMismatch, UsageError
from patchline.proofs import prove as proving
from patchline.proofs.env import Environment
from patchline.series.carried import Carried, carried

FIXED = core(l3="# three")["demo/core.py"].replace("return total", "return max(1, total // tp)")
RED = "import pytest\nfrom demo.core import heads\n\n@pytest.mark.holds(stock=r'heads were 16')\ndef test_heads():\n    got = heads(16, 4)\n    assert got == 4, f'heads were {got}'\n"
BROKEN = "import pytest\n\n@pytest.fixture\ndef broken():\n    raise ValueError\n\n"
KEPT = "\n@pytest.mark.unchanged\ndef test_kept():\n    assert heads(16, 1) == 16\n"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """A venv with the demo installed, and this one's pytest within reach."""
    home = tmp_path_factory.mktemp("env")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    packages = next(home.glob("lib/python3*/site-packages"))
    (packages / "pytest.pth").write_text("\n".join(site.getsitepackages()))
    write(packages, {path: data for path, data in SOURCE.items() if path.startswith("demo/")})
    return Environment(home / "bin" / "python", packages)


@pytest.fixture
def series(tmp_path: Path, environment: Environment, monkeypatch: pytest.MonkeyPatch) -> Carried:
    """One patch that mends `heads`, with the tests that a test gives it."""
    made = project(tmp_path / "p", ("[Demo] Three heads", {"demo/core.py": FIXED}))
    monkeypatch.setattr(proving, "_environment", lambda _: environment)
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


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (RED.replace("== 4", "== 16"), "on the overlay: failed"),
        (RED.replace("heads(16, 4)", "heads(4, 1)"), "it passes on stock: it holds nothing"),
        (RED.replace("heads were 16", "SPLIT region"), "fails for another reason than 'SPLIT region'"),
        (RED.replace("    got =", "    pytest.skip('no')\n    got ="), "on the overlay: skipped"),
        (RED.replace("@pytest.mark.holds", "@pytest.mark.skip\n@pytest.mark.holds"), "on the overlay: skipped"),
        (RED.replace("@pytest.mark.holds", "@pytest.mark.xfail\n@pytest.mark.holds"), "on the overlay: xfail"),
        (RED.replace("@pytest.mark.holds(stock=r'heads were 16')\n", ""), "it needs one of the marks"),
        (RED + KEPT.replace("heads(16, 1) == 16", "heads(16, 4) == 4"), "marked unchanged, and on stock: failed"),
        ("from demo.core import heads\n", "collects no test"),
        ("from demo.core import heads\nimport nowhere\n", "was not collected"),
        (BROKEN + RED.replace("test_heads()", "test_heads(broken)"), "on the overlay: error"),
        (RED.replace("r'heads were 16'", "''"), "fails for another reason than ''"),
        (KEPT.replace("\n@", "import pytest\nfrom demo.core import heads\n@", 1), "nothing holds this patch"),
        (RED.replace("from demo.core", "import sys\nif 'overlays' in sys.modules.get('demo', __import__('demo')).__file__:\n    pytest.skip('x', allow_module_level=True)\nfrom demo.core"), "on stock only"),
    ],
)  # fmt: skip
def test_what_is_no_proof(series: Carried, text: str, fault: str) -> None:
    found = faults(series, text)
    assert any(fault in one for one in found), found


def test_deselected_is_no_proof(series: Carried) -> None:
    write(
        series.project.root,
        {
            "tests/patches/demo/conftest.py": "def pytest_collection_modifyitems(config, items):\n    config.hook.pytest_deselected(items=items[1:])\n    del items[1:]\n"
        },
    )
    found = faults(series, RED + KEPT)
    assert any("test_kept is deselected" in one for one in found), found


def failed(series: Carried, kind: type[PatchlineError], **limits: float) -> str:
    with pytest.raises(kind) as caught:
        proving.prove(series, **limits)
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
