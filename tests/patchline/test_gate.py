"""The gate, `.ci/run`: it runs the README's own lines, and fails where there is none."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def line(folder: Path, session: str) -> subprocess.CompletedProcess[str]:
    script = (ROOT / ".ci" / "run").read_text()
    function = script[script.index("\nline() {") : script.index("\n}\n", script.index("\nline() {")) + 3]
    code = f'set -euo pipefail\n{function}\nfound=$(line {session})\necho "$found"'
    return subprocess.run(["bash", "-c", code], cwd=folder, capture_output=True, text=True)


@pytest.mark.parametrize("session", ["tests", "nightly"])
def test_a_line_of_the_readme(session: str) -> None:
    done = line(ROOT, session)
    assert done.returncode == 0
    assert done.stdout.startswith("python3.11 -m venv")
    assert done.stdout.endswith(f"nox -s {session}\n")


def test_a_readme_without_the_line_fails(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("The tests: run them.\n")
    done = line(tmp_path, "tests")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "README.md has no line for nox -s tests\n"
