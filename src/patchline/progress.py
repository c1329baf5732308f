"""Progress of long work: a live bar on a terminal, a plain line now and then elsewhere.

Everything goes to standard error, so that `--json` keeps standard output for itself.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

EVERY = 10.0
"""Seconds between two plain lines."""


def say(text: str) -> None:
    """One plain line for the person who watches."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def bytes_of(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Gives a function to call with the number of bytes that have come in since the last call."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        with Progress(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task(what, total=total)
            yield lambda count: bar.advance(task, count)
        return
    done, told = 0, time.monotonic()
    say(f"{what}: {total / 1e6:.1f} MB")

    def count_up(count: int) -> None:
        nonlocal done, told
        done += count
        if time.monotonic() - told >= EVERY:
            told = time.monotonic()
            say(f"{what}: {done / 1e6:.1f} of {total / 1e6:.1f} MB")

    yield count_up
