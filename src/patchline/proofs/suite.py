"""One run of tests in a proof environment, on stock or on an overlay, as a record."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from patchline.errors import DidNotEnd, ProofFailed
from patchline.progress import EVERY, say
from patchline.proofs import evidence

TESTS = Path("tests", "patches")
"""Where patches' tests lie, from the project's root."""

_PLUGIN = Path(__file__).with_name("report_plugin.py")
_PACKAGE = Path(__file__).parents[1]
FOR_TESTS = ("__init__.py", "kv_heads.py")
"""Of patchline itself, what a patch's tests may import: they run where nothing of it is installed."""
_KEPT = ("PATH", "HOME", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR")
_POLL = 0.05
_running: set[int] = set()
"""Groups of the runs going on. Each is taken out before its end is taken, so none is another's."""
_BY_HAND = "run the tests by hand in the proof's environment"

# No configuration and no conftest.py, from wherever: a test's verdict is the test's own.
_PYTEST = ("-p", "report_plugin", "-p", "no:cacheprovider", "-c", os.devnull, "--noconftest")

# Longer ones parse sources, which Python 3.11 cannot while another thread does too: a SystemError ends pytest.
_SHORT = "--tb=line"


class Test(NamedTuple):
    """One test's run."""

    id: str
    """As pytest names it: the path of its file from the project's root, and the rest after `::`."""
    holds: str | None
    """Pattern of the text that it must fail with on stock; None where it has no such mark."""
    unchanged: bool
    fault: str
    """What is wrong with its mark; empty where nothing is."""
    outcome: str
    """`passed`, `failed`, `error` (in its set-up), `skipped`, `xfail` or `not run`."""
    text: str
    failures: list[tuple[str, str]]
    """Text of every failure, subtests' too, and the exception's type where it may be an accident."""
    seconds: float
    properties: dict[str, str]
    """What it noted with pytest's `record_property`, as texts."""
    wide: bool
    """Whether trials of single changes spare it, where a narrower test speaks already."""

    @property
    def file(self) -> str:
        """The path of its file from the project's root: evidence is judged in other places than it was made in."""
        return self.id.partition("::")[0]


class Run(NamedTuple):
    """One run of a suite. With `first_failure` the tests after that one did not run."""

    tests: dict[str, Test]
    deselected: list[str]
    errors: list[str]
    seconds: float


class Place(NamedTuple):
    """The tree that a run has to import the package from; anything else proves nothing."""

    what: str
    """In words, for messages."""
    tree: Path
    path: Path | None
    """Put before the environment's packages."""
    packages: tuple[str, ...]
    """One of them has to be imported."""
    modules: tuple[str, ...]
    """Those that the series changes."""
    needs: tuple[str, ...]
    """One of them has to be imported, where there are any."""


def run(
    python: Path, root: Path, files: Sequence[str], place: Place, *, limit: float, first_failure: bool = False
) -> Run:
    """Runs the test `files` (relative to `root`) with `python` for at most `limit` seconds.

    With `first_failure` it stops there.

    Raises:
        DidNotEnd: the run did not end in time, or ended without a report.
        ProofFailed: it ended with a status that its report does not explain, or imported another tree.
    """
    with tempfile.TemporaryDirectory(prefix="patchline-") as scratch:
        report, log = Path(scratch, "report.json"), Path(scratch, "log")
        environment = prepare(place, Path(scratch), report)
        command = [str(python), "-P", "-m", "pytest", *arguments(root), *(["-x"] if first_failure else []), *files]
        started = time.monotonic()
        status = _watch(command, root, environment, log, place.what, limit)
        return _read(report, log, place, status, time.monotonic() - started, root, evidence.tests(root, files))


def arguments(root: Path) -> list[str]:
    """How pytest runs a patch's tests, but for their files."""
    return [*_PYTEST, "--confcutdir", str(root / TESTS), "--rootdir", str(root), "-q", "--no-header", _SHORT]


def prepare(place: Place, scratch: Path, report: Path) -> dict[str, str]:
    """Puts into `scratch` what tests may import besides the package; returns the process's environment."""
    (scratch / "report_plugin.py").write_bytes(_PLUGIN.read_bytes())
    (scratch / "patchline").mkdir()
    for name in FOR_TESTS:
        (scratch / "patchline" / name).write_bytes((_PACKAGE / name).read_bytes())
    places = [str(place.path)] if place.path else []
    return {name: os.environ[name] for name in _KEPT if name in os.environ} | {
        "PYTHONPATH": os.pathsep.join([*places, str(scratch)]),
        "PATCHLINE_REPORT": str(report),
        "PATCHLINE_MODULES": " ".join(sorted({*place.packages, *place.modules})),
        "PYTHONUNBUFFERED": "1",
        # Plugins that happen to be installed are not asked for.
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "LC_ALL": "C.UTF-8",
    }


def _watch(command: list[str], cwd: Path, environment: dict[str, str], log: Path, what: str, limit: float) -> int:
    """Runs to the end and returns the status; nothing that the tests started outlives it."""
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
    _running.add(process.pid)
    try:
        while not _ended(process.pid, EVERY):
            spent = time.monotonic() - started
            say(f"{what}: {spent:.0f} s: {_last_line(log)}")
            if spent > limit:
                raise DidNotEnd(
                    f"{what}: the tests did not end within {limit:.0f} s\n{tail(log)}",
                    next="give them more with --limit, or find the one that hangs",
                )
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        _running.discard(process.pid)
        status = process.wait()
    return status


def stop_all() -> None:
    """Ends the runs that other threads wait for."""
    for pid in [*_running]:
        with suppress(ProcessLookupError):
            os.killpg(pid, 9)


def _ended(pid: int, seconds: float) -> bool:
    """Waits for an end without taking it: until it is taken, the number of the group is nobody else's."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG):
            return True
        time.sleep(_POLL)
    return False


def _read(
    report: Path, log: Path, place: Place, status: int, seconds: float, root: Path, covered: Collection[str]
) -> Run:
    if not report.exists():
        raise DidNotEnd(f"{place.what}: pytest ended without a report\n{tail(log)}", next=_BY_HAND)
    data = json.loads(report.read_bytes())
    found = Run(_tests(data), data["deselected"], data["errors"], seconds)
    if not _explains(found, status):
        raise ProofFailed(
            f"{place.what}: pytest ended with status {status}, which its report does not explain: "
            f"nothing was proven\n{tail(log)}",
            next=_BY_HAND,
        )
    check_imports(place, data["imported"], log)
    _check_covered(place, root, data["used"], covered)
    return found


def _tests(data: dict[str, Any]) -> dict[str, Test]:
    records = {
        name: {**record, "failures": [(*one,) for one in record["failures"]]} for name, record in data["tests"].items()
    }
    return {name: Test(name, **record) for name, record in records.items()}


def _explains(found: Run, status: int) -> bool:
    """Whether pytest's own verdict is the report's: see pytest's exit codes."""
    outcomes = {name: test.outcome for name, test in found.tests.items()}
    failed = any(outcome in ("failed", "error") for outcome in outcomes.values())
    left = {name for name, outcome in outcomes.items() if outcome == "not run"} - {*found.deselected}
    ran = any(outcome != "not run" for outcome in outcomes.values())
    if status == 0:
        return ran and not failed and not left and not found.errors
    if status == 1:
        return failed and not found.errors
    if status == 2:
        return bool(found.errors) and not ran
    return status == 5 and not ran and not left and not found.errors


def check_imports(place: Place, imported: dict[str, list[str]], log: Path) -> None:
    """Refuses a run that used other files than those of `place.tree`.

    Raises:
        ProofFailed: says which.
    """
    for name, files in imported.items():
        for file in files:
            if not Path(file).resolve().is_relative_to(place.tree):
                raise ProofFailed(
                    f"{place.what}: the tests imported {name} from {file}, not from {place.tree}: nothing was proven"
                )
    for names in (place.packages, place.needs):
        if names and not any(imported[name] for name in names):
            raise ProofFailed(
                f"{place.what}: the tests did not import {' or '.join(names)}: nothing was proven\n{tail(log)}"
            )


def _check_covered(place: Place, root: Path, used: list[str], covered: Collection[str]) -> None:
    """Refuses a run whose tests took modules from the project that evidence would not cover."""
    loose = [path for path in used if path not in covered and not (root / path).is_relative_to(place.tree)]
    if loose:
        raise ProofFailed(
            f"{place.what}: the tests imported what evidence of them does not cover: {', '.join(loose)}",
            next="move it beside the tests, or into the folder that theirs is named after",
        )


def tail(log: Path, lines: int = 20) -> str:
    """The last lines of a log, for a message."""
    return "\n".join(f"  {line}" for line in log.read_text(errors="replace").splitlines()[-lines:])


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").split()
    return lines[-1][-80:] if lines else "starting"
