"""Gates that run in a job of their own: outside of one the gate submits itself, follows it, and reads its record."""

from __future__ import annotations

import sys
import time

from patchline.errors import (
    CommandFailed,
    PatchlineError,
    ProofFailed,
    Refused,
    SourceMismatch,
    Unreachable,
    UsageError,
)
from patchline.gates.runners.slurm import runner as slurm
from patchline.gates.runners.slurm.job import submit
from patchline.gates.setting import Gate
from patchline.proofs.evidence import Evidence

_KINDS: tuple[type[PatchlineError], ...] = (UsageError, SourceMismatch, Refused, ProofFailed, Unreachable)


def wanted(runner: str) -> bool:
    """Whether a gate with this runner has to be submitted: it is Slurm's, and there is no job around us."""
    return runner == "slurm" and not slurm.inside()


def run(gate: Gate, *, record: bool, whole: bool) -> None:
    """Runs the gate in a job, to its end. The project and the cache must be where its nodes see them.

    Raises:
        NotRun: there is no Slurm here, or it gives no nodes.
        UsageError: only a part is asked for: that is for looking, inside of a job.
        PatchlineError: the job ended with another status than 0; the error is of the kind that this status means.
    """
    if not whole:
        raise UsageError("a part of a gate leaves no record that could be read here", next="run it in a job: salloc")
    root = gate.carried.project.root
    out = root / "build" / "gates" / gate.fleet.name / time.strftime("job-%Y%m%dT%H%M%SZ", time.gmtime())
    command = [sys.executable, "-m", "patchline", "gate", gate.fleet.name, "--fresh", *["--record"] * record]
    status = submit(gate.fleet, command, root, out)
    if status:
        kind = next((kind for kind in _KINDS if kind.exit == status), CommandFailed)
        raise kind(f"the gate's job ended with status {status}", where=str(out), next=f"less {out}/slurm-*.log")


def record_of(found: Evidence | None, began: time.struct_time) -> Evidence:
    """The record that a job left which `began` then.

    Raises:
        ProofFailed: none is seen from here, or only an older one.
    """
    if found is None or found.made < time.strftime("%Y-%m-%dT%H:%M:%SZ", began):
        raise ProofFailed(
            "the gate's job was passed, and its record is not seen from here",
            next="let the job's nodes share the cache (PATCHLINE_CACHE), or run it with --record",
        )
    return found
