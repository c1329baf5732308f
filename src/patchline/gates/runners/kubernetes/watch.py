"""Watching the parts of a play: their logs are followed from their start, and what ended or is stuck is an error."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from patchline.gates.runners.kubernetes.cluster import Cluster
from patchline.gates.runners.kubernetes.seen import Seen, seen
from patchline.gates.stack import logs
from patchline.gates.stack.processes import Launch, Processes, StackFailed
from patchline.progress import EVERY, say


class Watch:
    """The parts of one play in its namespace; `processes` follow their logs."""

    def __init__(self, cluster: Cluster, processes: Processes) -> None:
        self.cluster, self.processes = cluster, processes
        self.parts: list[str] = []
        self.began = time.monotonic()
        self._homeless: dict[str, float] = {}

    @property
    def seconds(self) -> float:
        """Since the first start."""
        return time.monotonic() - self.began

    @property
    def logs(self) -> dict[str, Path]:
        """The log file of each part, by its name."""
        return {name: self.processes.logs[name] for name in self.parts if name in self.processes.logs}

    def look(self) -> list[Seen]:
        """Looks once at every part.

        Raises:
            StackFailed: one ended, cannot start, has found no node for too long, or its log is not followed any more.
        """
        items = self.cluster.items()
        found = [one for name in self.parts for one in seen(name, items)]
        for one in found:
            if one.started and one.name not in self.processes.logs:
                self._follow(one)
        for one in found:
            self._judge(one)
        return found

    def _follow(self, one: Seen) -> None:
        """Has the log of a part kept."""
        command = self.cluster.command("logs", "--follow", f"pod/{one.pod}")
        self.processes.start(one.name, Launch(command, self.cluster.env, str))

    def _judge(self, one: Seen) -> None:
        if one.ended:
            self._hear_out(one.name)
            raise self._failed(one, one.ended)
        if one.stuck:
            raise self._failed(one, f"cannot start: {one.stuck}")
        if not one.homeless:
            self._homeless.pop(one.name, None)
        elif time.monotonic() - self._homeless.setdefault(one.name, time.monotonic()) > self.cluster.patience.placing:
            raise self._failed(one, f"finds no place within {self.cluster.patience.placing:g} s: {one.homeless}")
        if one.started and self.processes.ended(one.name):
            self._broken(one)

    def _broken(self, one: Seen) -> None:
        """Its log ended: either it did, too, which the cluster tells late, or nothing keeps what it says."""
        until = time.monotonic() + self.cluster.patience.words
        while time.monotonic() < until:
            for again in seen(one.name, self.cluster.items()):
                if again.ended:
                    raise self._failed(again, again.ended)
            time.sleep(self.cluster.patience.look)
        why = fault.what.partition("\n")[0] if (fault := self.processes.fault()) else ""
        raise self._failed(one, f"runs on, and its log is not kept any more: {why}")

    def _hear_out(self, name: str) -> None:
        """Waits for the last words of a part that ended."""
        until = time.monotonic() + self.cluster.patience.words
        while name in self.processes.logs and not self.processes.ended(name) and time.monotonic() < until:
            time.sleep(0.02)

    def _failed(self, one: Seen, what: str) -> StackFailed:
        log = self.processes.logs.get(one.name)
        told = f"{one.name} {what}" + (f"\n{logs.shown(log)}" if log else "")
        return StackFailed(
            told, where=str(log or one.pod or one.name), next=f"less {log}" if log else self.cluster.hint
        )

    def until_ready(self, names: Sequence[str], limit: float) -> None:
        """Adds parts, and waits until all are ready; `limit` is in seconds from the first start.

        Raises:
            StackFailed: as `look`, or one was not ready in time.
        """
        self.parts += names
        ready: set[str] = set()

        def missing() -> dict[str, str]:
            found = self.look()
            for one in found:
                if one.ready and one.name not in ready:
                    ready.add(one.name)
                    say(f"{one.name} is ready after {self.seconds:.0f} s on {one.node}")
            return {one.name: one.waits for one in found if not one.ready}

        self.wait(missing, limit)

    def wait(self, missing: Callable[[], dict[str, str]], limit: float) -> None:
        """Waits until nothing is `missing`, which gives for each part what it is at, and says so from time to time.

        Raises:
            StackFailed: something still is when `limit` is over, in seconds from the first start.
        """
        told = time.monotonic()
        while lacks := missing():
            if self.seconds > limit:
                name, what = next(iter(lacks.items()))
                raise self._failed(Seen(name), f"was not ready within {limit:.0f} s: {what}")
            if time.monotonic() - told >= EVERY:
                told = time.monotonic()
                self._tell(lacks, limit)
            time.sleep(self.cluster.patience.look)

    def _tell(self, lacks: dict[str, str], limit: float) -> None:
        for name, what in lacks.items():
            log = self.processes.logs.get(name)
            says = f"; it says: {logs.last(log)}" if log else ""
            say(f"{name}, {self.seconds:.0f} of {limit:.0f} s: {what[:300]}{says}")
