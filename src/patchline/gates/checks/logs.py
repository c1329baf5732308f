"""What the engines of one prefill/decode pair logged: each decode rank's transfer plan, and no failed transfer.

The texts are those of vLLM 0.31.0's NIXL connector and scheduler.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from patchline.gates.checks.result import Result, cut
from patchline.progress import say

_LINE = 2**20
"""Bytes of a line that are read in one piece."""

FAILURES = {
    "SPLIT region": re.compile(r"SPLIT region"),  # base_worker, the check of block lengths
    "handshake failure": re.compile(
        r"NIXL transfer failure: \S*handshake"  # handshake_failed, handshake_setup_failed, push_…
        r"|NIXL compatibility hash mismatch|Failed to decode Nixl|NIXL agent engine ID mismatch"
    ),
    "failed transfer": re.compile(
        r"NIXL transfer failure: (?!\S*handshake)"  # transfer_failed, transfer_setup_failed, notification_failed, …
        r"|Num failed transfers=[1-9]|KV load failure[ :]"
    ),
    "expired KV": re.compile(
        r"Num KV expired reqs=[1-9]|Releasing expired KV blocks|Declining expired remote read"
        r"|Potentially invalid KV blocks"
    ),
}
"""What no engine may log, by kind."""

UNREADABLE = "a transfer plan that cannot be read"

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_PLAN = re.compile(r"TransferTopology\(([^()]*)\)")
_WORKER = re.compile(r"\(Worker\w*_TP(\d+)\w* pid=")  # MultiprocExecutor's prefix: Worker[_DPn][_PPn]…_TPn[…]
_ENGINE = re.compile(r"Initializing NIXL (?:worker|Scheduler) (\S+)")


class Plan(NamedTuple):
    """One `TransferTopology(…)` line."""

    rank: int | None
    """The decode rank that logged it, if that can be told."""
    ratio: int
    local: int
    """TP of the engine that logged it."""
    remote: int
    place: str
    """FILE:LINE"""

    @property
    def said(self) -> str:
        """Its three numbers, as the engine logs them."""
        return topology(self.ratio, self.local, self.remote)


class Read(NamedTuple):
    """What was found in all files."""

    plans: list[Plan]
    engines: set[str]
    failures: Counter[str]
    first: dict[str, str]
    """For each kind of failure its first line, with its place."""
    faults: list[str]


def topology(ratio: int, local: int, remote: int) -> str:
    """A plan's three numbers, in short form."""
    return f"TransferTopology(tp_ratio={ratio}, local_tp={local}, remote_tp={remote})"


def logs(paths: list[Path], *, decode: int, prefill: int) -> Result:
    """Reads the logs of one pair: files, or folders whose `*.log` files count. TPs are `decode` and `prefill`.

    Every decode rank has to log its plan once, with the expected numbers; where prefill TP is the larger one, once for
    each prefill rank that it reads. Both engines must be there: each names itself when its connector starts.
    """
    files, faults = _files(paths)
    read = Read([], set(), Counter(), {}, faults)
    records = [_read(file, read) for file in files]
    ratio = decode // prefill if decode >= prefill else -(prefill // decode)
    faults += [f"{_lines(count)} of {kind}, the first at {read.first[kind]}" for kind, count in read.failures.items()]
    faults += _wrong_plans(read.plans, decode, prefill, ratio)
    if len(read.engines) < 2:
        faults.append(f"the logs of {len(read.engines)} engines are here, and a pair has 2")
    lines = sum(int(record["lines"]) for record in records)
    numbers = {
        "expected": topology(ratio, decode, prefill),
        "plans": len(read.plans),
        "ranks": sorted({plan.rank for plan in read.plans if plan.rank is not None}),
        "engines": len(read.engines),
        "failures": {kind: read.failures[kind] for kind in (*FAILURES, UNREADABLE)},
        "files": records,
    }
    failures = read.failures.total()
    say(f"logs: {_lines(lines)} in {len(files)} files, {len(read.plans)} transfer plans, {failures} of failures")
    return Result("logs", lines, faults, numbers)


def _files(paths: list[Path]) -> tuple[list[Path], list[str]]:
    """The log files, and a fault for each path that has none."""
    files: dict[Path, None] = {}
    faults = []
    for path in paths:
        found = sorted(one for one in path.rglob("*.log") if one.is_file()) if path.is_dir() else [path]
        found = [one for one in found if one.is_file()]
        if not found:
            faults.append(f"no log at {path}")
        files |= dict.fromkeys(found)
    return list(files), faults


def _read(path: Path, read: Read) -> dict[str, str | int]:
    """Adds what `path` says to `read`; gives the file's record."""
    name = "/".join(path.parts[-2:])
    hasher, count, size = hashlib.sha256(), 0, 0
    try:
        for count, data in enumerate(_pieces(path), 1):
            hasher.update(data)
            size += len(data)
            _take(_COLOURS.sub("", data.decode(errors="replace")), f"{name}:{count}", read)
    except OSError as failed:
        read.faults.append(f"{name} cannot be read: {failed.strerror}")
    if size == 0:
        read.faults.append(f"{name} is empty")
    return {"name": name, "sha256": hasher.hexdigest(), "bytes": size, "lines": count}


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.readline(_LINE):
            yield piece


def _take(line: str, place: str, read: Read) -> None:
    for kind, pattern in FAILURES.items():
        if pattern.search(line):
            read.failures[kind] += 1
            read.first.setdefault(kind, f"{place}: {cut(line, 240)}")
    if engine := _ENGINE.search(line):
        read.engines.add(engine[1])
    if "TransferTopology(" in line:
        if plan := _plan(line, place):
            read.plans.append(plan)
        else:
            read.failures[UNREADABLE] += 1
            read.first.setdefault(UNREADABLE, f"{place}: {cut(line, 240)}")


def _plan(line: str, place: str) -> Plan | None:
    """The plan in a line; None where its numbers are not there, or contradict the worker that logs it."""
    written = _PLAN.search(line)
    pairs = (part.partition("=") for part in written[1].split(",")) if written else ()
    values = {name.strip(): int(value) for name, _, value in pairs if re.fullmatch(r"\s*-?[0-9]{1,9}\s*", value)}
    if not {"tp_ratio", "local_tp", "remote_tp"} <= values.keys():
        return None
    worker = _WORKER.search(line)
    told, prefix = values.get("local_rank"), int(worker[1]) if worker else None
    if None not in (told, prefix) and told != prefix:
        return None
    rank = told if told is not None else prefix
    if rank is None and values["local_tp"] == 1:
        rank = 0  # one worker lives in its engine's process and has no TP in its prefix
    return Plan(rank, values["tp_ratio"], values["local_tp"], values["remote_tp"], place)


def _wrong_plans(plans: list[Plan], decode: int, prefill: int, ratio: int) -> list[str]:
    expected = topology(ratio, decode, prefill)
    others = [plan for plan in plans if plan.said != expected]
    right = Counter(plan.rank for plan in plans if plan.said == expected)
    faults = _different(others, expected)
    each = max(1, prefill // decode)
    different = {plan.rank for plan in others}
    for rank in range(decode):
        count = right.pop(rank, 0)
        if count != each and not (count == 0 and rank in different):
            faults.append(f"rank {rank} logs {_plans(count)}; {each} is expected")
    return faults + [f"{_rank(rank)} logs {_plans(count)}, of TP {decode}" for rank, count in right.items()]


def _different(plans: list[Plan], expected: str) -> list[str]:
    """One fault for each rank and each plan that is not the expected one."""
    first = {(plan.rank, plan.said): plan.place for plan in reversed(plans)}
    return [
        f"{_rank(rank)} logs {said} at {place}; {expected} is expected"
        for (rank, said), place in sorted(first.items(), key=str)
    ]


def _plans(count: int) -> str:
    return f"{count} transfer plan{'' if count == 1 else 's'}"


def _rank(rank: int | None) -> str:
    return "an unknown rank" if rank is None else f"rank {rank}"


def _lines(count: int) -> str:
    return f"{count} line{'' if count == 1 else 's'}"
