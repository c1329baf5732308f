"""A gate: every layout of a fleet on stock and on the overlay, with the same flags, and one record of the outcomes."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from patchline.errors import Unreachable
from patchline.gates import jobs, suite
from patchline.gates.fleet import is_gpu
from patchline.gates.gpus import Gpu
from patchline.gates.records import Record, coverage, kind_of, refuse_without_before, verdict
from patchline.gates.runners.runner import NotRun
from patchline.gates.setting import Gate, gate_of, prepare, runner_of
from patchline.progress import say
from patchline.proofs import evidence
from patchline.proofs.evidence import Evidence


class Done(NamedTuple):
    """A gate's record and verdict."""

    gate: Gate
    record: Record
    faults: list[str]
    verified: str
    """When the evidence was made that was judged; empty where the gate ran now."""
    partial: bool
    """Whether only some plays ran, or where the fleet does not: that is no gate, and no record."""

    @property
    def passed(self) -> bool:
        """Whether the gate is passed."""
        return not self.faults and not self.partial


class Asked(NamedTuple):
    """How a gate is to run."""

    fresh: bool = False
    """Whether it runs although there is a record."""
    record: bool = False
    """Whether the project keeps the record."""
    only: Sequence[str] = ()
    """Parts of the names of plays: only these run."""
    runner: str = ""
    """Another one than the fleet's."""

    @property
    def partial(self) -> bool:
        """Whether that is no gate."""
        return bool(self.only or self.runner)


def gate(name: str, asked: Asked) -> Done:
    """Runs the gate of a fleet, or judges the record of the same inputs again.

    What is passed is kept in the cache, and with `record` in the project; a part of a gate is not kept.

    Raises:
        NotRun: the fleet's GPUs are not here.
        Refused: the gate before it has not been passed with this overlay.
        UsageError: there is no such fleet; a setting, a program or a model is missing.
        ProofFailed: the tests did not come to an end.
        SourceMismatch: something is not what it was made as, or a record was edited.
    """
    one = gate_of(name)
    found = None if asked.fresh or asked.partial else _find(one)
    if not found:
        refuse_without_before(one)
        if jobs.wanted(asked.runner or one.fleet.runner):
            began = time.gmtime()
            jobs.run(one, record=asked.record, whole=not asked.partial)
            found = jobs.record_of(_find(one), began)
    done = _judged(one, found) if found else _run(one, asked)
    if done.passed and (not found or asked.record):
        made = done.record
        kept = found or evidence.new(
            kind_of(name), one.carried.name, coverage(one), msgspec.to_builtins(made), made.versions
        )
        evidence.keep(kept, one.carried.project if asked.record else None)
    return done


def _find(one: Gate) -> Evidence | None:
    return evidence.find(one.carried.project, kind_of(one.fleet.name), one.carried.name, coverage(one))


def _judged(one: Gate, found: Evidence) -> Done:
    record = msgspec.convert(found.result, Record)
    return Done(one, record, verdict(one.fleet, record), found.made, False)


def _run(one: Gate, asked: Asked) -> Done:
    gpus, setting, began = _gpus(one, asked.runner), prepare(one, asked.runner), time.gmtime()
    root = one.carried.project.root
    logs = root / "build" / "gates" / one.fleet.name / time.strftime("%Y%m%dT%H%M%SZ", began)
    with tempfile.TemporaryDirectory(prefix="patchline-gate-") as folder:
        what = suite.Asked(one.fleet.name, logs, asked.only, asked.runner)
        outcomes, junit = suite.run(root, what, Path(folder))
    setting.check()
    say(f"the logs are in {logs.relative_to(root)}")
    started, ended = (time.strftime("%Y-%m-%dT%H:%M:%SZ", moment) for moment in (began, time.gmtime()))
    runner = setting.runner
    record = Record(started, ended, runner.name, runner.image, gpus, setting.versions, setting.models, outcomes, junit)
    faults = _of_part(record) if asked.partial else verdict(one.fleet, record)
    return Done(one, record, faults, "", asked.partial)


def _of_part(record: Record) -> list[str]:
    """What went wrong in a part of a gate."""
    faults = [f"{outcome.play}: {fault}" for outcome in record.outcomes for fault in outcome.faults]
    junit = record.junit
    if not faults and (junit.failures or junit.errors or junit.skipped or junit.tests != len(record.outcomes)):
        faults.append(f"not every test ran and passed: {junit}, {len(record.outcomes)} outcomes")
    return faults


def _gpus(one: Gate, runner: str) -> list[Gpu]:
    """The GPUs that the runner sees; raises NotRun where none is the fleet's."""
    wanted = one.fleet.gpu
    if not wanted:
        return []
    try:
        gpus = runner_of(runner or one.fleet.runner, one).gpus()
    except Unreachable as silent:
        raise NotRun(f"not run: no {wanted} seen: {silent.what}", next=silent.next) from silent
    if not any(is_gpu(gpu.name, wanted) for gpu in gpus):
        others = ", ".join(sorted({gpu.name for gpu in gpus}))
        raise NotRun(f"not run: no {wanted} seen" + (f", but {others}" if others else ""))
    return gpus
