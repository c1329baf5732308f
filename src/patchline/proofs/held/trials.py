"""Trials: does a patch's tests' verdict change when its code does? Each change is tried in a fork of its own."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from patchline.errors import ProofFailed
from patchline.overlay import Overlay
from patchline.progress import EVERY, say
from patchline.proofs import suite
from patchline.proofs.bench import PARALLEL, Bench, modules

LEAST = 60.0
"""Processor seconds that the tests may take in one trial; three times what they take else, where that is more."""

_RUNNER = Path(__file__).with_name("fork_runner.py")
_BESIDE = ("fork_imports.py", "fork_tests.py")
"""What the runner imports."""


class Trial(NamedTuple):
    """One change to one Python file of an overlay: the bytes `start` to `end` replaced."""

    name: str
    path: str
    line: int
    function: str
    start: int
    end: int
    after: str
    explained: bool = False
    """Whether it is known why no test notices it: wide tests are spared then."""


class Tried(NamedTuple):
    """What became of one trial."""

    name: str
    line: int
    how: str
    """`failed` (a test did), `too slow`, `died` (a signal ended the tests), or `survived` (nothing noticed)."""
    by: str
    """The first test that failed."""

    @property
    def noticed(self) -> bool:
        """Whether the tests noticed it."""
        return self.how != "survived"


def attempt(bench: Bench, one: Overlay, what: str, files: Sequence[str], trials: Sequence[Trial]) -> list[Tried]:
    """Runs the test `files` on the overlay `one`, once for each of the trials, two at a time.

    Raises:
        ProofFailed: the tests do not pass without a change, imported another tree, or could not run with one.
    """
    place = bench.place(what, bench.tree(one))
    # A fork that is being killed may still write into the folder that goes away.
    with tempfile.TemporaryDirectory(prefix="patchline-", ignore_cleanup_errors=True) as folder:
        scratch = Path(folder)
        for name in _BESIDE:
            (scratch / name).write_bytes(Path(__file__).with_name(name).read_bytes())
        environment = suite.prepare(place, scratch, scratch / "none.json")
        (scratch / "job.json").write_text(json.dumps(_job(bench, place, files, trials, folder)))
        results = _watch(bench, environment, scratch, place, len(trials))
    return [_tried(trial, results[number]) for number, trial in enumerate(trials)]


def _job(
    bench: Bench, place: suite.Place, files: Sequence[str], trials: Sequence[Trial], scratch: str
) -> dict[str, Any]:
    return {
        "scratch": scratch,
        "files": [*files],
        "pytest": suite.arguments(bench.root),
        "modules": [*place.modules],
        "limit": bench.limit,
        "least": LEAST,
        "parallel": PARALLEL,
        "trials": [
            {
                "number": number,
                "module": modules([trial.path])[0],
                "path": str(place.tree / trial.path),
                "start": trial.start,
                "end": trial.end,
                "after": trial.after,
                "function": trial.function,
                "explained": trial.explained,
            }
            for number, trial in enumerate(trials)
        ],
    }


def _watch(
    bench: Bench, environment: dict[str, str], scratch: Path, place: suite.Place, total: int
) -> dict[int, dict[str, Any]]:
    """Reads the runner's lines to their end; nothing that it started outlives it."""
    log = scratch / "log"
    with log.open("wb") as errors, _started(bench, environment, scratch, errors) as process:
        try:
            found = _results(process, place, log, total)
            status = process.wait()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
    if status or len(found) != total:
        raise ProofFailed(f"{place.what}: the trials could not be made\n{suite.tail(log)}")
    return found


def _started(bench: Bench, environment: dict[str, str], scratch: Path, errors: BinaryIO) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [str(bench.python), "-P", str(_RUNNER), str(scratch / "job.json")],
        cwd=bench.root,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=errors,
        start_new_session=True,
    )


def _results(process: subprocess.Popen[bytes], place: suite.Place, log: Path, total: int) -> dict[int, dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {}
    told = time.monotonic()
    assert process.stdout is not None
    for line in process.stdout:
        one = json.loads(line)
        if "imported" in one:
            suite.check_imports(place, one["imported"], log)
            continue
        found[one["number"]] = one
        if time.monotonic() - told > EVERY or len(found) == total:
            told = time.monotonic()
            unnoticed = sum(each["how"] == "survived" for each in found.values())
            say(f"{place.what}: {len(found)} of {total} changes tried, {unnoticed} not noticed")
    return found


def _tried(trial: Trial, result: dict[str, Any]) -> Tried:
    if result["how"] == "broken":
        raise ProofFailed(f"the tests could not run with this change: {trial.name}\n{result['log']}")
    return Tried(trial.name, trial.line, result["how"], result["by"])
