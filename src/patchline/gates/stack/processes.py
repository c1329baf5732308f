"""The processes of one stack, as we see them from before their supervisor."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, NamedTuple

from patchline.errors import Unreachable
from patchline.gates.stack import logs, supervisor
from patchline.progress import say

GRACE = 10.0
"""Seconds that processes have from SIGTERM to SIGKILL."""


class StackFailed(Unreachable):
    """A process of a stack is not there: it ended, never became ready, or its log could not be kept."""


class Launch(NamedTuple):
    """How one process is started, and when it counts as ready."""

    command: Sequence[str]
    env: Mapping[str, str]
    missing: Callable[[], str]
    """What it still lacks, in words; empty when it is ready."""


class Processes:
    """Starts processes and knows which have ended; ends all of them, and all that they started, when it is closed.

    `root` is the folder of the logs. `scratch` is a new folder, in `within` where that is given, for all
    else that they write; it goes away with them.
    """

    def __init__(self, root: Path, *, grace: float = GRACE, within: Path | None = None) -> None:
        self.logs: dict[str, Path] = {}
        self._root, self._grace = root, grace
        self.scratch = Path(tempfile.mkdtemp(prefix="patchline-", dir=within))
        self.pids: dict[str, int] = {}
        self._ended: dict[str, StackFailed] = {}
        self._changed = threading.Condition()
        self._watchers: list[Callable[[], None]] = []
        self._closing = False
        self._left: list[int] = []
        command = [sys.executable, "-I", supervisor.__file__, str(self.scratch), str(grace)]
        self._supervisor = subprocess.Popen(
            [*command, str(os.getpid())],
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._orders, self._events = _both(self._supervisor)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def start(self, name: str, launch: Launch) -> None:
        """Starts a process, or starts one again that has ended.

        Raises:
            UsageError: its log cannot be written.
            StackFailed: it cannot be started.
        """
        log = self.logs[name] if name in self.logs else logs.new(self._root, name)
        self.logs[name] = log
        with self._changed:
            self._ended.pop(name, None)
            self.pids.pop(name, None)
        order = {"command": list(launch.command), "env": dict(launch.env)}
        self._order({"name": name, "log": str(log), "cwd": str(self.scratch), **order})
        with self._changed:
            self._changed.wait_for(lambda: name in self.pids or self._ended)
        if name not in self.pids:
            self.check()

    def send(self, name: str, number: signal.Signals) -> None:
        """Sends a signal to a process; its own children do not get it."""
        self._order({"name": name, "signal": int(number)})

    def _order(self, order: Mapping[str, Any]) -> None:
        try:
            self._orders.write(json.dumps(order).encode() + b"\n")
            self._orders.flush()
        except OSError as gone:
            raise self._lost() from gone

    def ended(self, name: str) -> bool:
        """Whether it ended."""
        return name in self._ended

    def fault(self, wait: float = 0.0) -> StackFailed | None:
        """What is wrong with the first process that is not there any more; `wait` is in seconds, for its end."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended, wait)
            return next(iter(self._ended.values()), None)

    def check(self) -> None:
        """Raises StackFailed where a process is not there any more."""
        if fault := self.fault():
            raise fault

    def on_fault(self, call: Callable[[], None]) -> None:
        """Has `call` called, in another thread, when a process ends that we did not end."""
        self._watchers.append(call)

    def _read(self) -> None:
        for line in self._events:
            self._take(json.loads(line))
        with self._changed:
            if not self._closing:
                self._ended.setdefault("", self._lost())
            self._changed.notify_all()
        self._tell_watchers()

    def _take(self, event: Mapping[str, Any]) -> None:
        name, kind = event.get("name", ""), event["event"]
        with self._changed:
            if kind == "started":
                self.pids[name] = event["pid"]
            elif kind == "down":
                self._left = event["left"]
            elif not self._closing and "" not in self._ended:
                self._ended[name] = self._lost() if kind == "stopping" else self._fault(event)
            self._changed.notify_all()
        if kind not in ("started", "down"):
            self._tell_watchers()

    def _tell_watchers(self) -> None:
        for call in [] if self._closing else self._watchers:
            call()

    def _fault(self, event: Mapping[str, Any]) -> StackFailed:
        name = event["name"]
        log = self.logs[name]
        if event["event"] == "log":
            return StackFailed(
                f"the log of {name} cannot be kept: {event['why']}; the stack was ended",
                where=str(log),
                next="make room there, or give another folder for logs",
            )
        if event["event"] == "refused":
            return StackFailed(f"{name} cannot be started: {event['why']}", where=str(log))
        return StackFailed(f"{name} {_how(event['status'])}\n{logs.shown(log)}", where=str(log), next=f"less {log}")

    def _lost(self) -> StackFailed:
        return StackFailed("the supervisor of the stack was killed, and the stack went with it", where=str(self._root))

    def close(self) -> None:
        """Ends everything; returns when nothing is left."""
        with self._changed:
            self._closing = True
        try:
            self._orders.close()
        except OSError:  # it is dead: what it had not read is lost with it
            say("the supervisor of the stack is gone already")
        self._supervisor.wait()
        self._reader.join()
        self._events.close()
        if self._left:
            raise StackFailed(f"these processes could not be ended: {', '.join(map(str, self._left))}", next="ps -ef")

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _how(status: int) -> str:
    return f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"


def _both(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    assert process.stdin
    assert process.stdout
    return process.stdin, process.stdout
