"""One run of tests in a proof environment, on stock or on an overlay, as a record."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from patchline.errors import ProofFailed
from patchline.progress import EVERY, say

_PLUGIN = Path(__file__).with_name("report_plugin.py")
_KEPT = ("PATH", "HOME", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR")


class Test(NamedTuple):
    """One test's run."""

    id: str
    file: str
    holds: str | None
    """Pattern of the text that it must fail with on stock; None where it has no such mark."""
    unchanged: bool
    outcome: str
    """`passed`, `failed`, `error` (in its set-up), `skipped`, `xfail` or `not run`."""
    text: str
    seconds: float


class Run(NamedTuple):
    """One run of a suite."""

    tests: dict[str, Test]
    deselected: list[str]
    errors: list[str]
    seconds: float


def run(
    python: Path,
    root: Path,
    files: Sequence[str],
    *,
    package: str,
    tree: Path,
    path: Path | None,
    what: str,
    limit: float,
) -> Run:
    """Runs the test `files` (relative to `root`) with `python`; `path` is put before its packages.

    `package` must be imported from below `tree`: whatever else ran proves nothing. `limit` is in
    seconds.

    Raises:
        ProofFailed: the run did not end in time, ended without a report, or imported another tree.
    """
    with tempfile.TemporaryDirectory(prefix="patchline-") as scratch:
        report, log = Path(scratch, "report.json"), Path(scratch, "log")
        Path(scratch, "report_plugin.py").write_bytes(_PLUGIN.read_bytes())
        places = [str(path)] if path else []
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ} | {
            "PYTHONPATH": os.pathsep.join([*places, scratch]),
            "PATCHLINE_REPORT": str(report),
            "PATCHLINE_PACKAGES": package,
            "PYTHONUNBUFFERED": "1",
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "LC_ALL": "C.UTF-8",
        }
        command = [
            str(python),
            "-P",
            "-m",
            "pytest",
            "-p",
            "report_plugin",
            "-p",
            "no:cacheprovider",
            "-c",
            os.devnull,
        ]
        command += ["--rootdir", str(root), "-q", "--no-header", "--tb=short", *files]
        started = time.monotonic()
        _watch(command, root, environment, log, what, limit)
        return _read(report, log, package, tree, what, time.monotonic() - started)


def _watch(command: list[str], cwd: Path, environment: dict[str, str], log: Path, what: str, limit: float) -> None:
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    started = time.monotonic()
    try:
        while True:
            try:
                process.wait(timeout=EVERY)
                return
            except subprocess.TimeoutExpired:
                spent = time.monotonic() - started
                say(f"{what}: {spent:.0f} s: {_last_line(log)}")
                if spent > limit:
                    raise ProofFailed(
                        f"{what}: the tests did not end within {limit:.0f} s\n{_tail(log)}",
                        next="give them more with --limit, or find the one that hangs",
                    ) from None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, 9)
            process.wait()


def _read(report: Path, log: Path, package: str, tree: Path, what: str, seconds: float) -> Run:
    if not report.exists():
        raise ProofFailed(
            f"{what}: pytest ended without a report\n{_tail(log)}",
            next="run the tests by hand in the proof's environment",
        )
    data = json.loads(report.read_bytes())
    imported = data["imported"][package]
    if imported is None:
        raise ProofFailed(f"{what}: the tests did not import {package}: nothing was proven\n{_tail(log)}")
    if not Path(imported).is_relative_to(tree):
        raise ProofFailed(f"{what}: the tests imported {package} from {imported}, not from {tree}: nothing was proven")
    tests = {name: Test(name, **record) for name, record in data["tests"].items()}
    return Run(tests, data["deselected"], data["errors"], seconds)


def _tail(log: Path, lines: int = 20) -> str:
    return "\n".join(f"  {line}" for line in log.read_text(errors="replace").splitlines()[-lines:])


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").split()
    return lines[-1][-80:] if lines else "starting"
