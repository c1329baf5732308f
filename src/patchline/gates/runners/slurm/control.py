"""What Slurm says of a job, its nodes and its steps; only what a cluster without accounting says, too."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from patchline.errors import CommandFailed, UsageError
from patchline.run import run

GONE = "GONE"
"""The state of a job that ended so long ago that Slurm has forgotten it (`MinJobAge`)."""
_BY_ITSELF = frozenset({"COMPLETED", "FAILED", GONE})
_KILLED = frozenset(
    {"BOOT_FAIL", "CANCELLED", "DEADLINE", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT"}
)
_KEPT = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "LD_LIBRARY_PATH", "SLURM_CONF")


class Seen(NamedTuple):
    """A job as Slurm sees it."""

    state: str
    reason: str = ""
    nodes: str = ""

    @property
    def waits(self) -> bool:
        """Whether it has no nodes yet."""
        return self.state in ("PENDING", "CONFIGURING")

    @property
    def ended(self) -> bool:
        """Whether nothing of it runs any more."""
        return self.by_itself or self.state in _KILLED

    @property
    def by_itself(self) -> bool:
        """Whether its script ran to an end, as far as Slurm knows."""
        return self.state in _BY_ITSELF

    def __str__(self) -> str:
        about = self.reason if self.reason not in ("", "None") else self.nodes
        return f"{self.state} ({about})" if about else self.state


def environment() -> dict[str, str]:
    """The environment of Slurm's commands: no `SLURM_*`, `SRUN_*` or `SQUEUE_*` of a caller steers them."""
    return {name: os.environ[name] for name in _KEPT if name in os.environ}


def ask(*words: str) -> str:
    """What one of Slurm's commands prints.

    Raises:
        CommandFailed: it is not there, or its status is not 0.
    """
    return run(words, cwd=Path("/"), env=environment()).stdout.decode(errors="replace").strip()


def said(failed: CommandFailed) -> str:
    """What a command that failed said last."""
    return failed.where.strip().splitlines()[-1].strip().removeprefix("stderr: ").removeprefix("stdout: ")


def seen(job: str) -> Seen:
    """A job, by its number.

    Raises:
        CommandFailed: Slurm does not answer.
    """
    try:
        text = ask("scontrol", "--oneliner", "show", "job", job)
    except CommandFailed as failed:
        if "Invalid job id" in failed.where:
            return Seen(GONE)
        raise
    return Seen(*(_value(text, name) for name in ("JobState", "Reason", "NodeList")))


def _value(text: str, name: str) -> str:
    found = re.search(rf"(?:^|\s){name}=(\S*)", text)
    return found[1] if found and found[1] != "(null)" else ""


def hosts(nodes: str) -> list[str]:
    """The names in a list as Slurm writes it, such as `n[1-2]`."""
    return ask("scontrol", "show", "hostnames", nodes).split()


def addresses(nodes: Sequence[str]) -> list[str]:
    """The IPv4 address of each node, by Slurm's `NodeAddr`.

    Raises:
        UsageError: one has none, or one is loopback's here and the others could not reach it.
    """
    found = [_address(node) for node in nodes]
    for node, address in zip(nodes, found, strict=True):
        if address.startswith("127.") and len(set(found)) > 1:
            raise UsageError(
                f"the node {node} is {address} to itself, where the other node cannot reach it",
                where="Slurm's NodeAddr, as this host resolves it",
                next=f"give {node} the address of its network there or in /etc/hosts",
            )
    return found


def _address(node: str) -> str:
    name = _value(ask("scontrol", "--oneliner", "show", "node", node), "NodeAddr")
    try:
        return str(socket.getaddrinfo(name or node, None, socket.AF_INET)[0][4][0])
    except OSError as unknown:
        raise UsageError(f"the node {node} has no address: {unknown}", where=f"NodeAddr={name}") from unknown


def steps(job: str, name: str) -> list[str]:
    """The numbers of the job's steps of that name that live."""
    listed = ask("squeue", "--noheader", "--steps", f"--jobs={job}", "--format=%i %j")
    return [number for number, _, its in (line.strip().partition(" ") for line in listed.splitlines()) if its == name]


def end(*which: str) -> None:
    """Ends jobs and steps, by number, or the jobs that a flag of `scancel` names; those that are gone are no error."""
    ask("scancel", "--quiet", *which)
