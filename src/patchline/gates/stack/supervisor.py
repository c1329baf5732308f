"""The program between us and a stack's processes: it starts them, keeps their logs, and ends them when we go.

It is run as a script, with the standard library alone. Orders come on standard input and events go to standard
output, one JSON object a line. It ends everything when standard input ends, when its parent dies however it dies, or
on SIGTERM. Two of these processes stand in a row: the outer one only waits, and ends what the inner one leaves should
somebody kill that. Each is a child subreaper (`prctl`): what a descendant leaves behind by double fork or `setsid` is
handed to the nearest of them and stays in its tree.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

_PDEATHSIG, _SUBREAPER = 1, 36  # PR_SET_PDEATHSIG and PR_SET_CHILD_SUBREAPER of <sys/prctl.h>
_LIBC = ctypes.CDLL(None, use_errno=True)
_PIECE = 2**16
_TICK = 0.1
"""Seconds between two looks at what has ended."""
_ORPHANS = 1.0
"""Seconds for what is left once every process that we started has ended."""
_TRACKER = b"multiprocessing.resource_tracker"
_TRACKERS = 2.0
"""Seconds that Python's trackers live longer than the others: they remove the shared memory that those leave."""


def _prctl(option: int, value: int) -> None:
    if _LIBC.prctl(option, value, 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def descendants(of: int) -> list[int]:
    """The processes below `of`, zombies too, in no order."""
    children: dict[int, list[int]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # it has just ended
                stat = Path(entry.path, "stat").read_text(errors="replace")
                children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry.name))
    found, ask = [], [of]
    while ask:
        below = children.get(ask.pop(), [])
        found += below
        ask += below
    return found


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # one that became another user's is seen at the end
        os.kill(pid, number)


def _reap() -> dict[int, int]:
    """Statuses of the children that have ended, as `os.waitstatus_to_exitcode` gives them."""
    ended = {}
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            ended[pid] = os.waitstatus_to_exitcode(status)
    return ended


def _kill_all(limit: float = 10.0) -> list[int]:
    """Kills every descendant, again and again until there is none; gives those left after `limit` seconds."""
    began = time.monotonic()
    while left := descendants(os.getpid()):
        seconds = time.monotonic() - began
        for pid in left:
            if seconds > _TRACKERS or not _is_tracker(pid):
                _send(pid, signal.SIGKILL)
        _reap()
        if seconds > limit:
            return left
        time.sleep(0.01)
    return []


def _is_tracker(pid: int) -> bool:
    try:
        return _TRACKER in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it has just ended
        return False


def _groups(scratch: str) -> set[str]:
    """Names of the rank groups of vLLM's CPU engines: each has a file in TMPDIR while it lives."""
    return {path.name for path in Path(scratch).glob("vllm_dist_*")}


def _clear(scratch: str, groups: set[str]) -> None:
    """Removes the shared memory that the groups leave behind (4 MiB a rank, also when they end well), and `scratch`."""
    for name in groups | _groups(scratch):
        for segment in Path("/dev/shm").glob(f"{name}-*"):
            segment.unlink(missing_ok=True)
    shutil.rmtree(scratch, ignore_errors=True)


class _Process:
    """One started process and its log."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.name, self.full = order["name"], False
        self.log = open(order["log"], "ab", buffering=0)  # noqa: SIM115 - closed when its pipe ends
        self.pipe, theirs = os.pipe()
        os.set_blocking(self.pipe, False)
        try:
            # Kept: one that is forgotten takes the status of its process with it.
            self.popen = subprocess.Popen(
                order["command"],
                cwd=order["cwd"],
                env=order["env"],
                stdin=subprocess.DEVNULL,
                stdout=theirs,
                stderr=theirs,
                start_new_session=True,
                preexec_fn=_dies_with_us,  # noqa: PLW1509 - this process has one thread
            )
        finally:
            os.close(theirs)

    def take(self) -> OSError | None:
        """Moves what it printed to its log; gives the first error that the log's file system has."""
        with contextlib.suppress(BlockingIOError):
            data = os.read(self.pipe, _PIECE)
            if not data:
                self.close()
            elif not self.full:
                return self._write(data)
        return None

    def _write(self, data: bytes) -> OSError | None:
        try:
            while data:
                data = data[self.log.write(data) :]
        except OSError as failed:
            self.full = True
            return failed
        return None

    def close(self) -> None:
        if self.pipe >= 0:
            os.close(self.pipe)
            self.log.close()
            self.pipe = -1


def _dies_with_us() -> None:
    _prctl(_PDEATHSIG, signal.SIGKILL)


class _Inner:
    """The process that starts the others."""

    def __init__(self, scratch: str, grace: float, parent: int) -> None:
        self.scratch, self.grace, self.parent = scratch, grace, parent
        self.processes: dict[int, _Process] = {}
        self.logged: list[_Process] = []
        self.stopping, self.orders = False, b""

    def run(self) -> None:
        os.set_blocking(0, False)
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "stopping", True))
        while not self.stopping:
            self._turn()
        self._tell({"event": "stopping"})
        groups = _groups(self.scratch)  # those that end well take their files with them
        until = time.monotonic() + self.grace
        for pid in reversed(self.processes):
            _send(pid, signal.SIGTERM)
        while self.processes and time.monotonic() < until:
            self._turn()
        until = min(until, time.monotonic() + _ORPHANS)
        while descendants(os.getpid()) and time.monotonic() < until:
            self._turn()
        left = _kill_all()
        _clear(self.scratch, groups)
        self._tell({"event": "down", "left": left})

    def _turn(self) -> None:
        """Waits for something, and sees to it."""
        self.logged = [process for process in self.logged if process.pipe >= 0]
        pipes = {process.pipe: process for process in self.logged}
        ready, _, _ = select.select([*pipes, *([] if self.stopping else [0, self.parent])], [], [], _TICK)
        for pipe in ready:
            if pipe in pipes:
                self._took(pipes[pipe])
        if self.parent in ready:
            self.stopping = True
        elif 0 in ready:
            self._listen()
        for pid, status in _reap().items():
            if process := self.processes.pop(pid, None):
                self._ended(process, status)

    def _took(self, process: _Process) -> None:
        if failed := process.take():
            self.stopping = True  # nothing counts that left no log
            self._tell({"event": "log", "name": process.name, "why": failed.strerror})

    def _ended(self, process: _Process, status: int) -> None:
        """Tells it once its last words are in the log; its own children may print on."""
        while process.pipe >= 0 and select.select([process.pipe], [], [], 0)[0]:
            self._took(process)
        self._tell({"event": "ended", "name": process.name, "status": status})

    def _listen(self) -> None:
        data = os.read(0, _PIECE)
        self.stopping = not data
        *lines, self.orders = (self.orders + data).split(b"\n")
        for line in lines:
            self._order(json.loads(line))

    def _order(self, order: dict[str, Any]) -> None:
        if "signal" in order:
            for pid, process in self.processes.items():
                if process.name == order["name"]:
                    _send(pid, order["signal"])
            return
        try:
            process = _Process(order)
        except OSError as failed:
            self._tell({"event": "refused", "name": order["name"], "why": str(failed)})
            return
        self.processes[process.popen.pid] = process
        self.logged.append(process)
        self._tell({"event": "started", "name": process.name, "pid": process.popen.pid})

    def _tell(self, event: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # nobody listens any more: the end of standard input says so, too
            os.write(1, json.dumps(event).encode() + b"\n")


def _outer(inner: int, scratch: str, parent: int) -> int:
    """Waits for the inner process; what it left, dead before its time, is ended here."""
    signal.signal(signal.SIGTERM, lambda *_: _send(inner, signal.SIGTERM))
    os.close(0)
    os.close(parent)
    status = os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1])
    left = _kill_all()
    _clear(scratch, set())
    return 1 if left or status else 0


def main(scratch: str, grace: str, parent: str) -> int:
    """Runs both; `parent` is the process whose end ends everything, `grace` the seconds between TERM and KILL.

    The folder `scratch` is removed at the end.
    """
    handle = os.pidfd_open(int(parent))
    for number in (signal.SIGINT, signal.SIGHUP):  # they are for our parent, which tells us
        signal.signal(number, lambda *_: None)  # not SIG_IGN, which what we start would inherit
    _prctl(_SUBREAPER, 1)
    outer = os.getpid()
    inner = os.fork()
    if inner:
        return _outer(inner, scratch, handle)
    _prctl(_SUBREAPER, 1)
    _prctl(_PDEATHSIG, signal.SIGTERM)
    if os.getppid() == outer:  # else it died before we asked to be told
        _Inner(scratch, float(grace), handle).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
