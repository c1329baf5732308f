"""A gate: every layout of a fleet on stock and on the overlay, with the same flags, and one record of the outcomes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import msgspec

from patchline.errors import ProofFailed
from patchline.gates import jobs
from patchline.gates.fleet import Fleet, is_gpu
from patchline.gates.gpus import Gpu
from patchline.gates.outcomes import Outcome
from patchline.gates.records import TESTS, Junit, Record, coverage, kind_of, refuse_without_before, verdict
from patchline.gates.runners.runner import NotRun
from patchline.gates.setting import Gate, Setting, gate_of, prepare
from patchline.progress import say
from patchline.proofs import evidence


class Done(NamedTuple):
    """A gate's record and verdict."""

    gate: Gate
    record: Record
    faults: list[str]
    verified: str
    """When the evidence was made that was judged; empty where the gate ran now."""
    partial: bool
    """Whether only some plays ran: that is no gate, and no record."""

    @property
    def passed(self) -> bool:
        """Whether the gate is passed."""
        return not self.faults and not self.partial


def gate(name: str, *, fresh: bool = False, record: bool = False, only: Sequence[str] = (), runner: str = "") -> Done:
    """Runs the gate of a fleet, or judges the record of the same inputs again.

    `only` names plays, by parts of their names; such a run is for looking, and is not kept. What is passed is kept in
    the cache, and with `record` in the project.

    Raises:
        NotRun: the fleet's GPUs are not here.
        Refused: the gate before it has not been passed with this overlay.
        UsageError: there is no such fleet; a setting, a program or a model is missing.
        ProofFailed: the tests did not come to an end.
        SourceMismatch: something is not what it was made as, or a record was edited.
    """
    one = gate_of(name)
    covers, kind = coverage(one), kind_of(name)
    whole = not only and not runner
    found = evidence.find(one.carried.project, kind, one.carried.name, covers) if whole and not fresh else None
    if not found:
        refuse_without_before(one)
        if jobs.wanted(runner or one.fleet.runner):
            jobs.run(one, record=record, whole=whole)
            found = jobs.record_of(evidence.find(one.carried.project, kind, one.carried.name, covers))
    if found:
        made = msgspec.convert(found.result, Record)
        done = Done(one, made, verdict(one.fleet, made), found.made, False)
    else:
        made = _run(one, prepare(one, runner), only, runner)
        done = Done(one, made, _judged(one.fleet, made, whole), "", not whole)
    if done.passed and (not found or record):
        kept = found or evidence.new(kind, one.carried.name, covers, msgspec.to_builtins(made), made.versions)
        evidence.keep(kept, one.carried.project if record else None)
    return done


def _judged(fleet: Fleet, record: Record, whole: bool) -> list[str]:
    if whole:
        return verdict(fleet, record)
    return [f"{outcome.play}: {fault}" for outcome in record.outcomes for fault in outcome.faults]


def _run(one: Gate, setting: Setting, only: Sequence[str], runner: str) -> Record:
    gpus, began = _gpus(one.fleet, setting), time.gmtime()
    logs = one.carried.project.root / "build" / "gates" / one.fleet.name / time.strftime("%Y%m%dT%H%M%SZ", began)
    with tempfile.TemporaryDirectory(prefix="patchline-gate-") as folder:
        outcomes, junit = _tests(one, Path(folder), logs, only, runner)
    say(f"the logs are in {logs.relative_to(one.carried.project.root)}")
    started, ended = (time.strftime("%Y-%m-%dT%H:%M:%SZ", moment) for moment in (began, time.gmtime()))
    return Record(started, ended, setting.runner.name, setting.runner.image, gpus, setting.versions, outcomes, junit)


def _gpus(fleet: Fleet, setting: Setting) -> list[Gpu]:
    """The fleet's GPUs; raises NotRun where they are not here."""
    if not fleet.gpu:
        return []
    gpus = setting.runner.gpus()
    ours = [gpu for gpu in gpus if is_gpu(gpu.name, fleet.gpu)]
    if not ours:
        others = ", ".join(sorted({gpu.name for gpu in gpus}))
        raise NotRun(f"not run: no {fleet.gpu} seen" + (f", but {others}" if others else ""))
    return ours


def _tests(one: Gate, folder: Path, logs: Path, only: Sequence[str], runner: str) -> tuple[list[Outcome], Junit]:
    """Runs the gate's tests in a process of their own; what each found is a file in `folder`."""
    report = folder / "junit.xml"
    command = [sys.executable, "-m", "pytest", TESTS, "-c", os.devnull, "--rootdir", ".", "-p", "no:cacheprovider"]
    command += ["-s", "-q", "--tb=line", "--junitxml", str(report), "--fleet", one.fleet.name]
    command += ["--outcomes", str(folder), "--logs", str(logs), *(["--runner", runner] if runner else [])]
    command += [word for part in only for word in ("--only", part)]
    status = _watch(command, one.carried.project.root)
    outcomes = [msgspec.json.decode(path.read_bytes(), type=Outcome) for path in sorted(folder.glob("*.json"))]
    if not report.exists() or not outcomes:
        raise ProofFailed(f"the gate's tests ended with status {status}, and left no report", next=" ".join(command))
    return outcomes, _totals(report)


def _watch(command: list[str], root: Path) -> int:
    """Runs to the end; what it prints goes to standard error."""
    process = subprocess.Popen(command, cwd=root, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    with process:
        try:
            return process.wait()
        except BaseException:
            process.terminate()  # its supervisor sees it go, and takes every engine down
            raise


def _totals(report: Path) -> Junit:
    """What a report in JUnit's form counts."""
    suites = ElementTree.parse(report).getroot().iter("testsuite")
    counts = [[int(suite.get(name, 0)) for name in Junit._fields] for suite in suites]
    return Junit(*(sum(column) for column in zip(*counts, strict=True)))
