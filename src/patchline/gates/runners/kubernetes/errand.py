"""A Job that does something once and ends: waiting for it, and what it printed."""

from __future__ import annotations

import time
from typing import NamedTuple

from patchline.gates.runners.kubernetes.cluster import Cluster
from patchline.gates.runners.kubernetes.seen import Seen, seen
from patchline.gates.stack.processes import StackFailed
from patchline.progress import EVERY, say


class Said(NamedTuple):
    """What one pod of it printed, on both streams."""

    pod: Seen
    text: str


def run(cluster: Cluster, name: str, limit: float) -> list[Said]:
    """Waits until all pods of the Job `name` ended, with any status; `limit` is in seconds.

    Raises:
        StackFailed: one cannot start, has found no node for too long, or did not end in time.
    """
    began = told = placed = time.monotonic()
    while True:
        found = seen(name, cluster.items())
        if all(one.pod and one.ended for one in found):
            return [Said(one, cluster.call("logs", f"pod/{one.pod}").decode(errors="replace")) for one in found]
        now = time.monotonic()
        placed = placed if any(one.homeless for one in found) else now
        _refuse(cluster, found, placed=now - placed, seconds=now - began, limit=limit)
        if now - told >= EVERY:
            told = now
            say(
                f"{name}, {now - began:.0f} of {limit:.0f} s: {', '.join(one.ended or one.waits for one in found)}"[
                    :400
                ]
            )
        time.sleep(cluster.patience.look)


def _refuse(cluster: Cluster, found: list[Seen], *, placed: float, seconds: float, limit: float) -> None:
    for one in found:
        if one.stuck or (one.ended and not one.pod):
            raise _failed(cluster, one, f"cannot run: {one.stuck or one.ended}")
        if one.homeless and placed > cluster.patience.placing:
            raise _failed(cluster, one, f"finds no place within {cluster.patience.placing:g} s: {one.homeless}")
    if seconds > limit:
        late = next(one for one in found if not one.ended)
        raise _failed(cluster, late, f"did not end within {limit:.0f} s: {late.waits}")


def _failed(cluster: Cluster, one: Seen, what: str) -> StackFailed:
    return StackFailed(f"{one.name} {what}", where=one.pod or one.name, next=cluster.hint)
