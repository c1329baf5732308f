"""All suites on one tree: the files spread over two processes at once, each begun anew after one that died."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from patchline.errors import ProofFailed
from patchline.progress import EVERY, say
from patchline.proofs.upstream.process import FileRun, Place, Process

AT_ONCE = 2
"""Processes at once: one takes a core, and up to 2 GiB."""
_POLL = 0.2


class Ran(NamedTuple):
    """One run of all suites."""

    files: dict[str, FileRun]
    seconds: float
    imported: frozenset[str]
    """Those modules of `Place` that any of the tests imported, all from the tree."""


def spread(weights: Mapping[str, float]) -> list[list[str]]:
    """The files in `AT_ONCE` lists of about the same weight, the heaviest first."""
    lists: list[list[str]] = [[] for _ in range(AT_ONCE)]
    loads = [0.0] * AT_ONCE
    for file in sorted(weights, key=lambda file: (-weights[file], file)):
        least = loads.index(min(loads))
        lists[least].append(file)
        loads[least] += weights[file]
    return [one for one in lists if one]


def run(place: Place, lists: Sequence[Sequence[str]]) -> Ran:
    """Runs each list in a process of its own.

    A file in which a process dies, or which takes longer than `place.limit`, has that as its fault; the files
    after it run in a new process.

    Raises:
        ProofFailed: see `Process.results`.
    """
    started = told = time.monotonic()
    files: dict[str, FileRun] = {}
    imported: set[str] = set()
    count = ended = 0
    live: list[Process] = []
    try:
        for count, one in enumerate(lists, 1):
            live.append(Process(place, one, count))
        while live:
            time.sleep(_POLL)
            for process in [process for process in live if process.ended()]:
                live.remove(process)
                found = process.results()
                files |= found
                imported |= process.imported()
                ended += process.count
                if left := [target for target in process.targets if target.partition("::")[0] not in found]:
                    count += 1
                    live.append(Process(place, left, count))
            if time.monotonic() - told > EVERY:
                told = time.monotonic()
                say(_progress(place, live, ended, told - started))
    finally:
        for process in live:
            process.stop()
    return Ran(files, time.monotonic() - started, frozenset(imported))


def _progress(place: Place, live: Sequence[Process], ended: int, seconds: float) -> str:
    now = ", ".join(process.now.rpartition("/")[2] or "starting" for process in live)
    tests = ended + sum(process.count for process in live)
    return f"{place.what}: {seconds:.0f} s, {tests} tests: {now}"


def check_imports(place: Place, ran: Ran) -> None:
    """Refuses a whole run that had nothing to do with the package, or with what the series changes in it.

    Raises:
        ProofFailed: says which module no test imported.
    """
    for names in (place.packages, place.modules):
        if names and not ran.imported & {*names}:
            raise ProofFailed(f"{place.what}: the tests did not import {' or '.join(names)}: nothing was proven")
