"""What is asked again, after how long, and when that ends."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from patchline.errors import Unreachable

T = TypeVar("T")


class Broken(Exception):
    """An exchange that may end better the next time; never seen outside of this room."""

    def __init__(self, reason: str, wait: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.wait = wait
        """Seconds that the other side asked for."""


class Patience(NamedTuple):
    """How often something is tried, and the seconds between two tries: doubled each time, and then spread."""

    tries: int = 6
    first: float = 0.5
    longest: float = 30.0
    asked: float = 300.0
    """Of a Retry-After; who wants a longer wait gets none."""

    def before(self, number: int, broken: Broken) -> float | None:
        """Seconds before the try after try `number`; None where there is none."""
        if number >= self.tries or (broken.wait or 0) > self.asked:
            return None
        own = min(self.longest, self.first * 2.0 ** (number - 1)) * random.uniform(0.5, 1.0)  # not all at one moment
        return own if broken.wait is None else max(own, broken.wait)

    def pause(self, number: int, broken: Broken, where: str) -> None:
        """Waits after try `number`.

        Raises:
            Unreachable: it was the last one, or the other side wants to be left alone for too long.
        """
        wait = self.before(number, broken)
        if wait is None:
            raise _end(number, broken, where) from broken
        time.sleep(wait)


def persist(patience: Patience, where: str, attempt: Callable[[], T]) -> T:
    """What `attempt` gives once it is not `Broken`.

    Raises:
        Unreachable: it always was, or the other side wants to be left alone for too long.
    """
    number = 0
    while True:
        number += 1
        try:
            return attempt()
        except Broken as broken:
            patience.pause(number, broken, where)


def _end(number: int, broken: Broken, where: str) -> Unreachable:
    tried = f"tried {number} times" if number > 1 else "not tried again"
    asked = f"; it asks to be left alone for {broken.wait:g} s" if broken.wait else ""
    return Unreachable(
        f"the registry did not do it: {broken.reason} ({tried}{asked})",
        where=where,
        next="run the same command again later: what the registry has got is not sent twice",
    )
