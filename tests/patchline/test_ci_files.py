"""The workflow files: valid, thin, and a job ends with what the rebase came to."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from carrying import core
from rebasing import two_versions
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github/workflows/rebase.yml"
GITLAB = ROOT / ".gitlab-ci.yml"
SCHEMAS = {GITHUB: "vendor.github-workflows", GITLAB: "vendor.gitlab-ci"}
BOTH = pytest.mark.parametrize("file", [GITHUB, GITLAB], ids=["github", "gitlab"])

ONE = ("[Demo] Three heads", core(l3="three"))

NOX = """#!/bin/sh
# Ends as nox does: 0, or 1 whatever its session ended with.
test "$1 $2 $3" = "-s rebase --" || exit 2
shift 3
"{python}" -m patchline rebase "$@" || exit 1
"""


def loaded(file: Path) -> Any:
    return YAML(typ="safe", pure=True).load(file.read_text())


def job(file: Path) -> Any:
    found = loaded(file)
    return found["jobs"]["rebase"] if file == GITHUB else found["rebase"]


def script(file: Path) -> str:
    """The one step that runs the session."""
    steps = [step.get("run", "") for step in job(file)["steps"]] if file == GITHUB else job(file)["script"]
    (found,) = [step for step in steps if "nox -s" in step]
    return str(found)


def schema_check(file: Path, schema: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, str(file)]
    return subprocess.run(command, capture_output=True, text=True)


@BOTH
def test_the_published_schema_allows_it(file: Path) -> None:
    done = schema_check(file, SCHEMAS[file])
    assert done.returncode == 0, done.stdout + done.stderr


@BOTH
def test_a_misspelt_word_would_be_found(file: Path, tmp_path: Path) -> None:
    text = file.read_text()
    wrong = text.replace("runs-on:", "run-on:") if file == GITHUB else text.replace("  script:", "  skript:")
    assert wrong != text
    (tmp_path / file.name).write_text(wrong)
    assert schema_check(tmp_path / file.name, SCHEMAS[file]).returncode == 1


def test_both_run_the_same_line_of_a_session_that_is_there() -> None:
    assert script(GITHUB) == script(GITLAB)
    assert script(GITHUB).startswith("nox -s rebase -- --all --report build/rebase ||")
    assert "def rebase(session: nox.Session)" in (ROOT / "noxfile.py").read_text()


def test_nightly_and_on_changes_of_patches_and_pins() -> None:
    on = loaded(GITHUB)["on"]
    assert re.fullmatch(r"\d+ \d+ \* \* \*", on["schedule"][0]["cron"])
    assert on["pull_request"]["paths"] == ["patches/**", "builds/upstreams.toml"]
    rules = job(GITLAB)["rules"]
    assert rules[0] == {"if": '$CI_PIPELINE_SOURCE == "schedule"'}
    assert rules[1]["changes"] == ["patches/**/*", "builds/upstreams.toml"]


@BOTH
def test_no_host_is_named_and_no_secret_asked_for(file: Path) -> None:
    assert re.findall(r"://|\b[\w-]+\.(?:com|io|org|net|ai)\b|secrets\.", file.read_text()) == []


def test_github_may_read_only() -> None:
    assert loaded(GITHUB)["permissions"] == {"contents": "read"}


# what the job ends with; nox itself is stood in for, since its session would install the project


@pytest.fixture
def path(tmp_path: Path) -> str:
    tool = tmp_path / "bin/nox"
    tool.parent.mkdir()
    tool.write_text(NOX.format(python=sys.executable))
    tool.chmod(0o755)
    return f"{tool.parent}{os.pathsep}{os.environ['PATH']}"


def ended(file: Path, root: Path, path: str) -> int:
    """The exit code of the job's script in a project, as a runner's shell has it."""
    env = {**os.environ, "PATH": path}
    return subprocess.run(["bash", "-e", "-c", script(file)], cwd=root, env=env, capture_output=True).returncode


@BOTH
def test_clean_needs_hands_and_broken_are_told_apart(file: Path, tmp_path: Path, path: str) -> None:
    clean = two_versions(tmp_path / "clean", {"demo/core.py": "# top\n" + core()["demo/core.py"]}, ONE)
    stuck = two_versions(tmp_path / "stuck", core(l3="THREE"), ONE)
    assert [ended(file, made.root, path) for made in (clean, stuck)] == [0, 3]
    (stuck.root / "patches/demo/1.0/series").write_text("no such file.patch\n")
    assert ended(file, stuck.root, path) == 1  # though its last report says that it needs hands


@BOTH
def test_what_the_job_shows_and_keeps_is_there(file: Path, tmp_path: Path, path: str) -> None:
    made = two_versions(tmp_path / "p", {"demo/core.py": "# top\n" + core()["demo/core.py"]}, ONE)
    assert ended(file, made.root, path) == 0
    named = set(re.findall(r"build/rebase/([a-z-]+\.[a-z]+)", file.read_text()))
    assert named >= ({"report.md", "annotations.txt"} if file == GITHUB else {"junit.xml", "code-quality.json"})
    assert [name for name in named if not (made.root / "build/rebase" / name).is_file()] == []
    assert (made.root / "build/rebase/series/demo/2.0/0001-three-heads.patch").is_file()
