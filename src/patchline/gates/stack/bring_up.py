"""Starting a group of processes and waiting until each is ready."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from patchline.gates.stack import logs
from patchline.gates.stack.processes import Launch, Processes, StackFailed
from patchline.progress import EVERY, say

_LOOK = (0.2, 2.0)
"""Seconds between two looks, first and last: servers log each question."""
_TRIES = 3
"""Starts of one process, where each time somebody else has its port."""


class Waiting:
    """Processes that are not ready yet."""

    def __init__(self, processes: Processes, makers: Mapping[str, Callable[[], Launch]], limit: float) -> None:
        self.processes, self.makers, self.limit = processes, makers, limit
        self.launches: dict[str, Launch] = {}
        self.starts: dict[str, int] = dict.fromkeys(makers, 0)
        self.missing: dict[str, str] = {}
        self.began = time.monotonic()

    def start(self, name: str) -> None:
        """Starts it, with ports that its maker has just taken."""
        self.starts[name] += 1
        self.launches[name] = self.makers[name]()
        self.missing[name] = "it has just been started"
        self.processes.start(name, self.launches[name])

    def look(self) -> None:
        """Looks at each once; one whose port was taken is started again with others.

        Raises:
            StackFailed: something ended for another reason, or too often.
        """
        for name in self.missing:
            if self.processes.ended(name) and logs.port_taken(self.processes.logs[name]):
                self._again(name)
        self.processes.check()
        for name in list(self.missing):
            self.missing[name] = self.launches[name].missing()
            if not self.missing[name]:
                del self.missing[name]
                say(f"{name} is ready after {self.seconds:.0f} s")

    def _again(self, name: str) -> None:
        if self.starts[name] < _TRIES:
            say(f"another process has a port of {name}: it is started again with others")
            self.start(name)

    @property
    def seconds(self) -> float:
        """Since the first start."""
        return time.monotonic() - self.began

    def tell(self) -> None:
        """Says what is awaited."""
        for name, missing in self.missing.items():
            line = logs.last(self.processes.logs[name])
            say(f"{name}, {self.seconds:.0f} of {self.limit:.0f} s: {missing}; it says: {line}")

    def too_late(self) -> StackFailed:
        """The error for those that are still not ready."""
        name, missing = next(iter(self.missing.items()))
        log = self.processes.logs[name]
        return StackFailed(
            f"{name} was not ready within {self.limit:.0f} s: {missing}\n{logs.shown(log)}",
            where=str(log),
            next="read its log; give it more time where it only was slow",
        )


def bring_up(processes: Processes, makers: Mapping[str, Callable[[], Launch]], limit: float) -> None:
    """Starts the processes that `makers` describe, at once, and waits until all are ready; `limit` in seconds.

    Raises:
        StackFailed: one ended, or was not ready in time. The caller ends the others.
    """
    waiting = Waiting(processes, makers, limit)
    for name in makers:
        waiting.start(name)
    told = time.monotonic()
    while True:
        waiting.look()
        if not waiting.missing:
            return
        if waiting.seconds > limit:
            raise waiting.too_late()
        if time.monotonic() - told >= EVERY:
            told = time.monotonic()
            waiting.tell()
        time.sleep(min(max(_LOOK[0], waiting.seconds / 20), _LOOK[1]))
