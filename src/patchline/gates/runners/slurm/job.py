"""A gate as one job of Slurm's: submitted, followed to its end, and cancelled when nobody follows it any more."""

from __future__ import annotations

import secrets
import shlex
import shutil
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from patchline.errors import CommandFailed, UsageError
from patchline.gates.fleet import Fleet
from patchline.gates.runners.runner import NotRun
from patchline.gates.runners.slurm import control
from patchline.gates.runners.slurm.follow import Follower, Job, NeverStarted
from patchline.gates.runners.slurm.settings import Settings, settings
from patchline.progress import say
from patchline.run import run

_SCRIPT = """\
#!/bin/sh
# A gate in a Slurm job; its exit status is kept in a file that is there only when it ended by itself.
cd {cwd} || exit
{command}
status=$?
echo "$status" > {status}.new && mv {status}.new {status}
exit "$status"
"""


def submit(fleet: Fleet, command: Sequence[str], cwd: Path, out: Path) -> int:
    """Runs `command` in the folder `cwd` as a job on nodes of the fleet, and gives its exit status.

    It has our environment. What it prints goes to our standard error while it runs, and is kept in `out`: a folder
    that nodes see at the same place, as `cwd`. The job is cancelled on Ctrl-C, SIGTERM, SIGHUP and every error; one
    whose submitter was killed by SIGKILL goes on to its end.

    The cluster's ways are settings: PATCHLINE_SLURM_PARTITION, _ACCOUNT, _CONSTRAINT, _GPU, _TIME and
    _PENDING_SECONDS, see `settings.Settings`.

    Raises:
        NotRun: there is no Slurm, it refuses the job, or the job gets no nodes in time.
        UsageError: a setting is wrong, or `out` cannot be written.
        CommandFailed: the job ended without a status: it was killed, or its time was over.
    """
    asked = settings()
    _present(fleet)
    name = f"patchline-{fleet.name}-{secrets.token_hex(4)}"
    with _signals():
        try:
            job = _submitted(fleet, asked, name, _script(command, cwd.absolute(), out.absolute()))
            return _followed(fleet, asked, job)
        except BaseException:
            _cancel(name)
            raise


def _not_run(fleet: Fleet, why: str, next: str, where: str = "") -> NotRun:
    return NotRun(f"not run: no {fleet.gpu or 'node'} seen: {why}", where=where, next=next)


def _present(fleet: Fleet) -> None:
    """Raises NotRun where no Slurm answers."""
    if not shutil.which("sbatch"):
        raise _not_run(fleet, "there is no Slurm here (no sbatch)", "run it on a login node of the Slurm cluster")
    try:
        control.ask("scontrol", "ping")
    except CommandFailed as failed:
        raise _not_run(fleet, "Slurm's controller does not answer", "scontrol ping", failed.where) from failed


def _script(command: Sequence[str], cwd: Path, out: Path) -> Path:
    """Writes the job's script."""
    status = f'{shlex.quote(str(out))}/"slurm-$SLURM_JOB_ID.status"'
    text = _SCRIPT.format(cwd=shlex.quote(str(cwd)), command=shlex.join(command), status=status)
    path = out / "slurm.sh"
    try:
        out.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    except OSError as failed:
        raise UsageError(f"the job's script cannot be written: {failed.strerror}", where=str(path)) from failed
    return path


def _submitted(fleet: Fleet, asked: Settings, name: str, script: Path) -> Job:
    log = str(script.parent).replace("%", "%%") + "/slurm-%j.log"
    words = ["sbatch", "--parsable", f"--job-name={name}", "--no-requeue", "--export=ALL", "--propagate=NONE"]
    words += [*asked.flags(fleet), f"--output={log}", str(script)]
    say(f"+ {shlex.join(words)}")
    try:
        told = run(words, cwd=Path("/")).stdout.decode()
    except CommandFailed as failed:
        next = "see PATCHLINE_SLURM_PARTITION, _ACCOUNT, _CONSTRAINT, _GPU and _TIME, and: sinfo"
        raise _not_run(fleet, f"Slurm refuses the job: {control.said(failed)}", next) from failed
    return Job(told.strip().partition(";")[0], script.parent)


def _followed(fleet: Fleet, asked: Settings, job: Job) -> int:
    try:
        return Follower(job, asked.pending).status()
    except NeverStarted as failed:
        next = "see sinfo and squeue; PATCHLINE_SLURM_PENDING_SECONDS lets it wait longer"
        raise _not_run(fleet, str(failed), next) from failed


def _cancel(name: str) -> None:
    """Cancels by name: an interrupted `sbatch` may not have said the number."""
    say(f"+ scancel --jobname={name}")
    try:
        control.end(f"--jobname={name}")
    except CommandFailed as failed:
        say(f"the job may still be there: {control.said(failed)}")


@contextmanager
def _signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end the block as Ctrl-C does; only a main thread may ask for that."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [one for one in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(one) != signal.SIG_IGN]
    before = {number: signal.signal(number, _interrupted) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupted(*_: object) -> NoReturn:
    raise KeyboardInterrupt
