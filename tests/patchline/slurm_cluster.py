"""A Slurm of a test's own: real daemons of Debian's slurm-wlm, two nodes on one host, nothing outside its folder."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from patchline.gates.stack.ports import HOST, Ports

PROGRAMS = {"slurmctld": "slurm-wlm", "slurmd": "slurm-wlm", "sbatch": "slurm-wlm", "munged": "munge"}
"""Debian's package of each program that is run here."""

# n3 is known and never there. Clusters track processes by cgroup, which not every test machine has to give.
CONF = """\
ClusterName=patchline
SlurmctldHost={name}({host})
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SwitchType=switch/none
MpiDefault=none
KillWait=2
SlurmdTimeout=300
ReturnToService=2
SchedulerParameters=sched_interval=1,sched_min_interval=0,batch_sched_delay=0
GresTypes=gpu
NodeName=n1 NodeHostname={name} NodeAddr={host} Port={ports[1]} CPUs=2 Gres=gpu:h20:8 Feature=h20 State=UNKNOWN
NodeName=n2 NodeHostname={name} NodeAddr={host} Port={ports[2]} CPUs=2 Gres=gpu:h20:8 Feature=h20 State=UNKNOWN
NodeName=n3 NodeHostname={name} NodeAddr={host} Port={ports[3]} CPUs=2 State=DOWN
PartitionName=all Nodes=n[1-2] Default=YES MaxTime=INFINITE State=UP
PartitionName=small Nodes=n[1-2] MaxNodes=1 State=UP
PartitionName=away Nodes=n3 State=UP
"""


class Cluster(NamedTuple):
    """The nodes `n1` and `n2`, with eight GPUs of type h20 each, are idle; `n3` is down."""

    folder: Path

    @property
    def conf(self) -> Path:
        """For SLURM_CONF."""
        return self.folder / "slurm.conf"

    def ask(self, *words: str) -> str:
        """What one of Slurm's commands prints."""
        env = {**os.environ, "SLURM_CONF": str(self.conf)}
        return subprocess.run(words, env=env, check=True, capture_output=True, text=True, timeout=30).stdout.strip()

    def jobs(self) -> str:
        """Those that have not ended."""
        return self.ask("squeue", "--noheader", "--format=%i %T")

    def processes(self) -> list[int]:
        """Its daemons, and what of its jobs and steps still knows its configuration; no zombies."""
        mine = f"SLURM_CONF={self.conf}".encode()
        pids = [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()]
        return [pid for pid in pids if pid != os.getpid() and mine in _environ(pid)]


def _environ(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # it has just ended, or is another user's
        return []


def programs() -> dict[str, str]:
    """Where the programs are, by name; a test without them would show nothing, and fails."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin"])
    found = {name: shutil.which(name, path=path) for name in PROGRAMS}
    if missing := [name for name, place in found.items() if not place]:
        packages = " ".join(sorted({PROGRAMS[name] for name in missing}))
        raise RuntimeError(f"no {', '.join(missing)}: apt-get install --no-install-recommends {packages}")
    return {name: place for name, place in found.items() if place}


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """Brings one up in the empty `folder`, in about two seconds; at its end no process is left."""
    own, found = Cluster(folder), programs()
    with ExitStack() as stack, Ports() as ports:
        _write(own, [ports.take() for _ in range(4)])
        stack.enter_context(_daemon(own, "munged", _munged(found["munged"], folder)))
        _wait((folder / "munge.socket").exists, own)
        stack.enter_context(_daemon(own, "slurmctld", [found["slurmctld"], "-D"]))
        for node in ("n1", "n2"):
            stack.enter_context(_daemon(own, node, [found["slurmd"], "-D", "-N", node]))
        _wait(lambda: own.ask("sinfo", "--noheader", "--partition=all", "--format=%T %D") == "idle 2", own)
        stack.callback(_emptied, own)
        yield own
    assert not own.processes()


def _write(own: Cluster, ports: Sequence[int]) -> None:
    user = pwd.getpwuid(os.getuid()).pw_name
    for name in ("state", "spool-n1", "spool-n2"):
        (own.folder / name).mkdir()
    for number in range(8):
        (own.folder / f"nvidia{number}").touch()
    values = {"name": socket.gethostname(), "host": HOST, "ports": ports, "user": user, "folder": own.folder}
    own.conf.write_text(CONF.format(**values))
    (own.folder / "gres.conf").write_text(f"NodeName=n[1-2] Name=gpu Type=h20 File={own.folder}/nvidia[0-7]\n")
    (own.folder / "munge.key").write_bytes(os.urandom(128))
    (own.folder / "munge.key").chmod(0o600)


def _munged(program: str, folder: Path) -> list[str]:
    kinds = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    return [program, "--force", "--foreground", *(f"--{flag}={folder}/munge.{end}" for flag, end in kinds.items())]


@contextmanager
def _daemon(own: Cluster, name: str, words: Sequence[str]) -> Iterator[None]:
    env = {"PATH": os.environ["PATH"], "SLURM_CONF": str(own.conf)}
    words = ["setpriv", "--pdeathsig", "KILL", *words]  # should the test be killed
    with (
        (own.folder / f"{name}.out").open("wb") as out,
        subprocess.Popen(words, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, process_group=0) as process,
    ):
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # slurmctld takes 10 s to end well, and nobody wants its state


def _wait(what: Callable[[], bool], own: Cluster, limit: float = 20.0) -> None:
    until = time.monotonic() + limit
    while True:
        try:
            if what():
                return
        except subprocess.CalledProcessError:  # its controller does not listen yet
            pass
        if time.monotonic() > until:
            told = "\n".join(f"{path.name}: {path.read_text()[-2000:]}" for path in own.folder.glob("*.out"))
            raise RuntimeError(f"Slurm did not come up or did not come to rest: {told}")
        time.sleep(0.1)


def _emptied(own: Cluster) -> None:
    """Cancels what a failed test left: daemons that are gone would leave its processes to nobody."""
    if own.jobs():
        own.ask("scancel", f"--user={pwd.getpwuid(os.getuid()).pw_name}")
        _wait(lambda: not own.jobs(), own)
