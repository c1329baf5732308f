"""A gate's tests, run by pytest in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import msgspec

from patchline.errors import ProofFailed
from patchline.gates.outcomes import Outcome
from patchline.gates.records import TESTS, Junit

PARENT = "PATCHLINE_GATE"
"""The environment variable that holds our process id: the tests end when we do."""

_PATIENCE = 90.0
"""Seconds that the tests have to take their engines down."""


class Asked(NamedTuple):
    """What is to run, and where it leaves what it finds."""

    fleet: str
    logs: Path
    only: Sequence[str]
    runner: str


def run(root: Path, asked: Asked, folder: Path) -> tuple[list[Outcome], Junit]:
    """Runs the tests of the project at `root`; each leaves its outcome in `folder`.

    Raises:
        ProofFailed: they left no report.
    """
    report = folder / "junit.xml"
    command = [sys.executable, "-m", "pytest", TESTS, "-c", os.devnull, "--rootdir", ".", "--confcutdir", TESTS]
    command += ["-p", "no:cacheprovider", "-s", "-q", "--tb=line", "--junitxml", str(report)]
    command += ["--fleet", asked.fleet, "--outcomes", str(folder), "--logs", str(asked.logs)]
    command += [*(["--runner", asked.runner] if asked.runner else []), *(f"--only={part}" for part in asked.only)]
    status = _watch(command, root)
    left = sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
    outcomes = [msgspec.json.decode(path.read_bytes(), type=Outcome) for path in left]
    if not report.exists() or not outcomes:
        raise ProofFailed(f"the gate's tests ended with status {status}, and left no report", next=" ".join(command))
    return outcomes, totals(report)


def _watch(command: list[str], root: Path) -> int:
    """Runs to the end; what it prints goes to standard error."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    ours = {**kept, PARENT: str(os.getpid())}
    process = subprocess.Popen(command, cwd=root, env=ours, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    try:
        return process.wait()
    except BaseException:
        _end(process)
        raise


def _end(process: subprocess.Popen[bytes]) -> None:
    """Lets the tests take everything down; after that their supervisors do."""
    process.terminate()
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def totals(report: Path) -> Junit:
    """What a report in JUnit's form counts."""
    suites = ElementTree.parse(report).getroot().iter("testsuite")
    counts = [[int(suite.get(name, 0)) for name in Junit._fields] for suite in suites]
    return Junit(*(sum(column) for column in zip(*counts, strict=True)))
